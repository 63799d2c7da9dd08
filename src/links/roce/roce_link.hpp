// SPDX-License-Identifier: Apache-2.0
//
// RoceLink: a link over one pair of RDMA queues. Puts are RDMA writes, gets RDMA reads, straight between registered
// memory of both sides; the peer's program and loop have no part in them. The frame stream carries everything else:
// the set-up, keys of regions, signals and atomics, which the target's actor executes, and the control frames of
// others.
//
//   dialler                            acceptor
//   offer (addresses) ───────────────▶ chooses the pair of addresses, connects its queues
//   connects its queues ◀───────────── offer (the pair)
//   reads the acceptor's page, ready ▶ reads the dialler's page
//   up ◀────────────────────── ready   up
//
// What is executed: frames have odd numbers, writes even ones. Behind the newest write of a chain goes its number into
// the peer's progress word, and behind that a read of the word, whose completion says that the bytes can be seen there
// (RdmaVisibility). One pair of queues keeps its order, so that the word is a prefix: when the peer has destroyed its
// queues, it tells which writes were executed. close() destroys them, and is therefore the fence.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/assert.hpp"
#include "base/list.hpp"
#include "links/attached.hpp"
#include "links/fifo.hpp"
#include "links/link.hpp"
#include "links/roce/endpoint.hpp"
#include "links/roce/remote_keys.hpp"
#include "links/roce/send_queue.hpp"
#include "links/sequencer.hpp"
#include "links/word_target.hpp"

namespace hixl::links::roce {

[[nodiscard]] const LinkCaps& roce_caps() noexcept;

class RoceLink final : public Link,
                       private FrameSink,
                       private AdapterUser,
                       private runtime::Poller,
                       private runtime::WatchEvents {
 public:
  RoceLink(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream, const LinkServices& services,
           LinkEvents& events, Rails& rails, std::uint32_t max_inline);
  ~RoceLink() override;

  [[nodiscard]] const LinkCaps& caps() const noexcept override { return roce_caps(); }
  [[nodiscard]] Answer post(const Post& post) override;
  std::size_t poll(std::span<Completion> out) override;
  [[nodiscard]] bool send(wire::FrameType type, ConstBytes body) override;
  /// Asks for the region's key. Posts ask by themselves, and wait for it in the link.
  [[nodiscard]] Answer attach(const wire::RegionDescriptor& region) override;
  [[nodiscard]] bool reaches(RegionKey key) const noexcept override;
  [[nodiscard]] bool revoke(RegionKey key) override;
  void close() override;
  [[nodiscard]] bool drained() override { return state_ == State::closed; }
  [[nodiscard]] const wire::ExecutedSet& executed() const noexcept override {
    return state_ == State::closed ? executed_ : sequencer_.executed_set();
  }
  [[nodiscard]] LinkSeq sequence_of(std::uint64_t cookie) const noexcept override;
  [[nodiscard]] bool abandon(std::uint64_t cookie) override;
  [[nodiscard]] std::uint64_t progress() noexcept override;
  [[nodiscard]] Instant last_heard() const noexcept override { return last_heard_; }
  [[nodiscard]] Traffic traffic() const noexcept override { return traffic_; }

 private:
  enum class State : std::uint8_t { setting_up, up, broken, closed };
  struct AttemptTag;
  struct Attempt : ListNode<AttemptTag> {
    Verb verb = Verb::write;
    bool abandoned = false;  ///< a read whose local memory is not ours any more
    std::uint64_t cookie = 0;
    LinkSeq number = 0;  ///< of a write or a word, once it has left
    std::uint64_t bytes = 0;
    std::span<const Segment> segments;
    memory::Device* device = nullptr;
    RegionKey region{};
    std::uint64_t ends_at = 0;  ///< the place in the queue whose completion ends it; 0: not known yet
    // What it has taken, once it is in the queue: see release().
    RemoteKeyEntry* key = nullptr;
    Adapter::Buffer* buffer = nullptr;
    std::uint32_t used = 0;
    std::array<Registration*, wire::k_segments_max> registrations{};  ///< `used` of them
    Error error{};
    std::uint64_t value = 0;
  };
  using Attempts = List<Attempt, AttemptTag>;
  /// A frame of the link itself that waits for credit.
  struct Order {
    wire::FrameType type;
    RegionKey region{};
    Token token{};  ///< of an ask
    Error error{};  ///< of a key or ready
    std::uint32_t key = 0;
    std::uint64_t address = 0;
  };
  /// A read of the peer's word that is under way.
  struct Marker {
    std::uint64_t place;
    LinkSeq number;  ///< what it must find there
  };
  struct Given {
    Registration* registration = nullptr;
    bool dropping = false;  ///< the peer was asked to give it back
    Instant asked{};
  };
  struct Connecting;
  struct EventTask final : runtime::Task {
    explicit EventTask(RoceLink& link) : owner(link) {}
    void run() override { owner.deliver(); }
    RoceLink& owner;
  };
  struct FlushTask final : runtime::Task {
    explicit FlushTask(RoceLink& link) : owner(link) {}
    void run() override { owner.flush(); }
    RoceLink& owner;
  };
  enum class Begun : std::uint8_t { posted, waits, ended };

  // ---- set-up (roce_setup.cpp) ----
  void start();
  [[nodiscard]] Result<void> make_endpoint(const Rails::Path& path);
  [[nodiscard]] Result<void> on_offer(ConstBytes body);
  [[nodiscard]] Result<void> on_peer_ready(ConstBytes body);
  [[nodiscard]] Result<void> answer_offer(const wire::RoceOffer& offer);
  [[nodiscard]] Result<void> take_answer(const wire::RoceOffer& answer);
  void connect(const Endpoint::Peer& peer);
  void on_connected(std::unique_ptr<Endpoint> endpoint, const Result<void>& result);
  void probe();
  void on_probed();
  [[nodiscard]] bool send_offer();
  /// Tells the peer why there will be no link, and ends.
  void refuse_link(const Error& error);

  // ---- frames (roce_frames.cpp) ----
  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) override;
  void on_payload_start(const wire::FrameHeader& header, ConstBytes body) override;
  std::size_t payload_target(std::uint64_t, std::span<iovec>) override { return 0; }
  void on_payload_bytes(std::size_t) override {}
  void on_payload_end() override {}
  void on_sendable() override;
  void on_sent(std::uint64_t) override {}
  void on_down(const Error& error) override { break_down(error); }
  [[nodiscard]] Result<void> handle(const wire::FrameHeader& header, ConstBytes body);
  [[nodiscard]] Result<void> handle_own(const wire::FrameHeader& header, ConstBytes body, bool& own);
  [[nodiscard]] Result<void> on_ack(ConstBytes body);
  [[nodiscard]] Result<void> on_nack(ConstBytes body);
  [[nodiscard]] Result<void> on_atomic_result(ConstBytes body);
  [[nodiscard]] Result<void> on_ask(ConstBytes body);
  [[nodiscard]] Result<void> on_key(ConstBytes body);
  [[nodiscard]] Result<void> on_drop(ConstBytes body);
  [[nodiscard]] Result<void> on_dropped(ConstBytes body);
  void give_key(RegionKey region, Registration& registration);
  [[nodiscard]] Result<void> order(const Order& order);
  [[nodiscard]] bool send_order(const Order& order);
  void send_orders();
  template <class Message>
  [[nodiscard]] bool send_own(wire::FrameType type, const Message& message);

  // ---- posts (roce_post.cpp) ----
  [[nodiscard]] Answer post_word(const Post& post);
  [[nodiscard]] Begun begin(Attempt& attempt);
  [[nodiscard]] Begun begin_without_key(Attempt& attempt, const RemoteKeyEntry* key);
  /// Where the attempt's bytes are, for the card. Takes a buffer if the card does not reach them.
  [[nodiscard]] Begun place(Attempt& attempt, std::span<ibv_sge> pieces, bool inlined);
  [[nodiscard]] Begun place_in_buffer(Attempt& attempt, std::span<ibv_sge> pieces);
  void enqueue(Attempt& attempt, RemoteKeyEntry& key, std::span<const ibv_sge> pieces, bool inlined);
  void flush();
  void add_marker();
  [[nodiscard]] bool numbers_left() noexcept;
  [[nodiscard]] Attempt& take_attempt(const Post& post);
  void release(Attempt& attempt);
  void forget_key(RemoteKeyEntry& key);
  void end(Attempt& attempt, const Error& error);
  void finish(Attempt& attempt);
  [[nodiscard]] Answer refuse(const Post& post, const Error& error);
  [[nodiscard]] Answer busy();

  // ---- completions (roce_completions.cpp) ----
  bool poll() override;
  [[nodiscard]] bool can_sleep() override;
  void on_ready() override;
  /// The count; takes what is there, and ends the link over one that went wrong.
  std::size_t take_completions();
  void on_completion(const ibv_wc& completion);
  void on_place(std::uint64_t place);

  // ---- the card ----
  [[nodiscard]] std::uint32_t port_number() const noexcept override { return port_; }
  [[nodiscard]] std::uint32_t queue_pair_number() const noexcept override;
  void on_adapter_error(const Error& error) override { break_down(error); }
  void on_gids(std::span<const Gid> gids) override;
  void on_buffer() override { flush_later(); }
  void on_registered(RegionKey key) override;

  // ---- events and the end (roce_link.cpp) ----
  [[nodiscard]] bool alive() const noexcept { return state_ == State::setting_up || state_ == State::up; }
  void become_up();
  void break_down(const Error& error);
  void flush_later() { services_.loop.defer(flush_task_); }
  void give_credit();
  [[nodiscard]] bool event_due() noexcept;
  void schedule_events();
  void deliver();
  [[nodiscard]] Error located(Error error) const noexcept;
  void note_executed(LinkSeq word);
  void leave_adapter();

  const LinkIdentity identity_;
  const LinkServices services_;
  LinkEvents& events_;
  Rails& rails_;
  const std::uint32_t max_inline_;
  std::unique_ptr<FrameStream> stream_;  ///< null once this generation has ended
  Sequencer sequencer_;
  WordTarget words_target_;
  State state_ = State::setting_up;
  Instant last_heard_;
  Traffic traffic_{};
  wire::ExecutedSet executed_{};  ///< once closed: frames and writes

  Adapter* adapter_ = nullptr;
  std::uint32_t port_ = 0;
  std::vector<Gid> gids_;  ///< that were offered
  Gid gid_{};              ///< the one in use
  bool gid_chosen_ = false;
  std::unique_ptr<Endpoint> endpoint_;
  Connecting* connecting_ = nullptr;
  std::unique_ptr<runtime::Watch> watch_;
  std::unique_ptr<SendQueue> queue_;
  wire::RoceOffer peer_;
  bool offer_seen_ = false;
  bool probing_ = false;
  bool probed_ = false;
  bool ready_seen_ = false;
  bool armed_ = false;
  std::array<ibv_wc, 8> found_before_sleep_{};
  std::size_t found_ = 0;  ///< of these: not dealt with yet
  std::optional<Error> sleep_error_{};

  RemoteKeys keys_;                                 ///< the peer's
  std::unordered_map<std::uint64_t, Given> given_;  ///< ours that the peer has
  std::vector<RegionKey> asked_;                    ///< … that it waits for
  std::deque<Order> orders_;
  std::vector<Attached> attached_;
  std::size_t attached_told_ = 0;

  std::unique_ptr<Attempt[]> attempts_;
  // Lists behind the attempts, so that they let go of them first.
  mutable Attempts waiting_;    ///< for a key, a registration, a buffer or room in the queue
  mutable Attempts in_flight_;  ///< in the queue, in its order
  mutable Attempts words_;      ///< frames under way, by number
  Attempts done_;
  Attempts free_;
  Fifo<Marker> markers_;
  std::uint32_t uncovered_ = 0;  ///< writes in the queue without a marker behind them
  LinkSeq newest_write_ = 0;
  LinkSeq progress_value_ = 0;  ///< what goes into the peer's word; the chain refers to it
  std::uint64_t completed_ = 0;

  bool completions_told_ = false;
  bool credit_wanted_ = false;
  bool credit_due_ = false;
  bool down_due_ = false;
  Error down_error_{};
  EventTask event_task_{*this};
  FlushTask flush_task_{*this};
};

template <class Message>
bool RoceLink::send_own(wire::FrameType type, const Message& message) {
  std::array<std::byte, 512> buffer;  // the longest of these bodies is an offer with all addresses and its name
  ByteWriter writer(buffer);
  encode(message, writer);
  HIXL_ASSERT(writer.ok());
  return sequencer_.send_control(type, writer.written());
}

}  // namespace hixl::links::roce
