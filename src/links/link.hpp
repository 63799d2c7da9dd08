// SPDX-License-Identifier: Apache-2.0
//
// Link: one connection of one kind to one peer, for one link generation. It moves bytes and reports what it executed;
// it does not retry, reconnect or choose. Everything above is written against this, never against a kind.
//
// What a put on a link promises, which is the weakest that any kind gives: until its completion the bytes may appear
// at the target in any order, partly, and more than once; at completion all are visible to the target's CPU. Posts are
// not ordered among each other.
//
// Loop-bound. Links and their owner exchange posts, completions and `busy` only. No event is delivered from inside a
// call to the link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <hixl/options.hpp>
#include <hixl/result.hpp>
#include <hixl/types.hpp>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "links/atomic_window.hpp"
#include "links/frame_stream.hpp"
#include "memory/device.hpp"
#include "memory/lane.hpp"
#include "memory/region_table.hpp"
#include "memory/remote_table.hpp"
#include "memory/signal_page.hpp"
#include "runtime/loop.hpp"
#include "wire/messages.hpp"

namespace hixl::links {

enum class Answer : std::uint8_t {
  done,    ///< executed now; no completion follows. Never for atomics, whose value comes with it.
  posted,  ///< a completion follows, exactly one
  busy,    ///< no credit; nothing happened. on_credit() follows.
};

/// Limits and properties of a kind: data, read once.
struct LinkCaps {
  LinkKind kind = LinkKind::tcp;
  std::uint32_t rank_of_choice = 100;     ///< lower is better: the order in which `auto` chooses
  std::uint32_t chunk_bytes = 1U << 20U;  ///< the size that suits it; at most RuntimeOptions::chunk_bytes is posted
  bool needs_window = false;              ///< reaches only regions that RemoteTable shows as mapped
  bool target_passive = false;            ///< a put completes while the target's loop stands still
  bool same_host_only = false;
  bool executed_by_initiator = false;  ///< a completion is the initiator's own copy: nothing to learn from a fence
  bool words = true;                   ///< executes signals and atomics
  bool host_memory_only = false;       ///< reaches no device memory of the peer
  bool attaches = false;               ///< attach() asks the peer: on_attached() follows
};

enum class Verb : std::uint8_t { write, read, signal_set, signal_add, atomic_add, atomic_swap, atomic_compare_swap };
[[nodiscard]] constexpr bool is_signal(Verb verb) noexcept {
  return verb == Verb::signal_set || verb == Verb::signal_add;
}
[[nodiscard]] constexpr bool is_atomic(Verb verb) noexcept {
  return verb == Verb::atomic_add || verb == Verb::atomic_swap || verb == Verb::atomic_compare_swap;
}

[[nodiscard]] wire::AtomicOp atomic_op(Verb verb) noexcept;

/// What an atomic has beyond a signal. The number is given where the target executes (atomic_window.hpp); links that
/// execute at the initiator ignore it.
struct AtomicTerms {
  AtomicSeq number = 0;
  AtomicSeq acked_upto = 0;    ///< all up to here are answered or given up
  std::uint64_t expected = 0;  ///< compare_swap
  bool ask = false;            ///< not to be executed any more: what became of it? Refused with CANCELLED: nothing
};

struct Segment {
  std::byte* local = nullptr;
  std::uint64_t offset = 0;  ///< inside the remote region
  std::uint32_t bytes = 0;
};

/// One attempt of one chunk (or signal).
struct Post {
  Verb verb = Verb::write;
  std::uint64_t cookie = 0;  ///< given back in the completion
  OpId op_id = 0;
  std::uint32_t chunk = 0;
  std::uint8_t attempt = 0;
  RegionKey region{};
  Token token{};
  memory::Device* local_device = nullptr;  ///< null: the host's
  /// 1 … wire::k_segments_max; owned by the poster until the completion. Words: one of 8 bytes, without local.
  std::span<const Segment> segments;
  std::uint64_t value = 0;  ///< signals and atomics: addend or new value
  AtomicTerms atomic{};
  [[nodiscard]] memory::Device& device() const noexcept {
    return local_device != nullptr ? *local_device : memory::host_device();
  }
};

/// The frame that asks a target to execute an atomic.
[[nodiscard]] wire::AtomicBody atomic_body(const Post& post, std::uint64_t offset) noexcept;

/// End of one attempt. With `error.code == ok` it was executed; otherwise it was refused or is known not executed.
/// BUSY: an atomic for which the target's window has no room now. PAYLOAD_CORRUPT: the bytes changed on their way, so
/// it was not executed and may be tried again; where (address, length) and the offset in the peer's region (limit).
struct Completion {
  std::uint64_t cookie = 0;
  Error error{};
  std::uint64_t value = 0;  ///< atomics that were executed: the word before
};

class LinkEvents {
 public:
  /// The link's own set-up with the peer is finished; posts are accepted from now on.
  virtual void on_up() = 0;
  /// poll() has something. Comes once until poll() has emptied it.
  virtual void on_completions() = 0;
  /// After `busy` (from post or send): try again.
  virtual void on_credit() = 0;
  /// A sequenced or plain control frame that the link does not handle itself. A ping it answers itself.
  virtual void on_control(const wire::FrameHeader& header, ConstBytes body) = 0;
  /// attach() of this region has finished; or later, with STALE: the peer has retired it.
  virtual void on_attached(RegionKey key, const Result<void>& result) = 0;
  /// Once: this generation is broken. What was posted and not completed is unknown until fenced: see close().
  virtual void on_down(const Error& error) = 0;

 protected:
  ~LinkEvents() = default;
};

class Link {
 public:
  /// Destroys at once; the owner has called close() and seen drained() before.
  virtual ~Link() = default;
  [[nodiscard]] virtual const LinkCaps& caps() const noexcept = 0;

  [[nodiscard]] virtual Answer post(const Post& post) = 0;
  /// Takes completions; the count.
  virtual std::size_t poll(std::span<Completion> out) = 0;
  /// Sends a control frame of the peer's protocol. Sequenced ones (all but ping, pong, ack) take the receiver's credit
  /// (rx_depth). False: busy; on_credit() follows.
  [[nodiscard]] virtual bool send(wire::FrameType type, ConstBytes body) = 0;

  /// Makes a region of the peer usable on this link (maps its window). done / posted (on_attached follows).
  [[nodiscard]] virtual Answer attach(const wire::RegionDescriptor& region) = 0;
  /// False: the peer's region turned out not to be reached by this link, as attach() has told or a post would. Others
  /// of its kind, and other kinds, may reach it.
  [[nodiscard]] virtual bool reaches(RegionKey key) const noexcept {
    static_cast<void>(key);
    return true;
  }
  /// Our region was closed in the table: from now on no access of the peer through this link touches it. True: none is
  /// under way. False: ask again (a copy of the peer is under way, it may be stopped). A socket in the middle of a
  /// frame of this region is closed (on_down follows).
  [[nodiscard]] virtual bool revoke(RegionKey key) = 0;

  /// Fence, this side's half: nothing of the peer is applied any more, nothing more is sent. Idempotent. No event but
  /// completions follows. What the peer's frames did is then final: executed().
  virtual void close() = 0;
  /// After close(): true when neither side's copies through this link are under way here (own copy engine back, the
  /// peer's direct stores into our windows ended). Poll completions while waiting.
  [[nodiscard]] virtual bool drained() = 0;
  /// Before destruction, once drained() and when no caller is in the lane any more: gives back a bounded part of what
  /// it has of the peer's memory, which may be gigabytes. True: nothing is left that takes long.
  [[nodiscard]] virtual bool give_back() { return true; }
  /// Which of the peer's sequenced frames were executed here.
  [[nodiscard]] virtual const wire::ExecutedSet& executed() const noexcept = 0;
  /// The sequence number that a posted, not completed attempt was sent with; 0: it never left (not executed).
  [[nodiscard]] virtual LinkSeq sequence_of(std::uint64_t cookie) const noexcept = 0;

  /// A posted read whose operation ends now. True: its local memory is not touched any more and no completion follows.
  /// False: it cannot be taken back (a copy engine has it); the completion follows.
  [[nodiscard]] virtual bool abandon(std::uint64_t cookie) = 0;
  /// Our window is gone (its last region was retired): the peer may unmap it.
  virtual void drop_window(std::uint32_t window_id) { static_cast<void>(window_id); }

  /// For the express lane: this link's lane and bell when callers' threads may use it; null otherwise.
  [[nodiscard]] virtual memory::Lane* lane() noexcept { return nullptr; }
  [[nodiscard]] virtual memory::SignalBell* bell() noexcept { return nullptr; }
  /// A descriptor that becomes readable when the peer's process dies; -1: none.
  [[nodiscard]] virtual int pidfd() const noexcept { return -1; }
  /// Moves while bytes get through, however slowly, and stands still when the path is dead: bytes of ours that have
  /// reached the other host, and bytes of its answers. 0 where that is not known.
  [[nodiscard]] virtual std::uint64_t progress() noexcept { return 0; }
  /// When the peer was last heard on this link.
  [[nodiscard]] virtual Instant last_heard() const noexcept = 0;
  struct Traffic {
    std::uint64_t bytes_out = 0;      ///< payload of our puts that was executed, lane excluded
    std::uint64_t bytes_in = 0;       ///< payload of our gets
    std::uint64_t copies = 0;         ///< pieces of payload that passed through a buffer on this side
    std::uint64_t staging_bytes = 0;  ///< memory that it keeps for such buffers now
    std::uint64_t corrupt = 0;        ///< payloads that arrived changed: the peer's here, ours there
  };
  [[nodiscard]] virtual Traffic traffic() const noexcept = 0;
};

/// What a link is told about the runtime it serves. Everything outlives the link.
struct LinkServices {
  runtime::Loop& loop;
  memory::RegionTable& regions;     ///< ours
  memory::RemoteTable& remotes;     ///< the peer's
  memory::SignalPage& signals;      ///< ours
  std::uint32_t tx_depth = 32;      ///< our attempts in flight
  std::uint32_t rx_depth = 32;      ///< the peer's room for control frames
  AtomicWindow* atomics = nullptr;  ///< the peer's; null: its atomics are refused
  bool check_payload = false;       ///< our payload carries a checksum, and so shall what we read
};

struct LinkIdentity {
  Rank rank = k_no_rank;  ///< the peer
  SessionId session = 0;
  LinkId link_id = 0;
  LinkGen link_gen = 0;
  bool dialled = false;  ///< this side dialled
};

/// Makes links of one kind for one runtime. Owner: core.
class LinkFactory {
 public:
  virtual ~LinkFactory() = default;
  [[nodiscard]] virtual const LinkCaps& caps() const noexcept = 0;
  /// Why this kind cannot be used on this machine, or nothing.
  [[nodiscard]] virtual Result<void> available() const = 0;
  /// How many links of this kind this machine can have to one peer: one for each card and port, where it has such.
  [[nodiscard]] virtual std::uint32_t rails() const noexcept { return 1; }
  /// Whether the link of this index can be had now. False: not worth dialling, ask again.
  [[nodiscard]] virtual bool ready(std::uint32_t index) {
    static_cast<void>(index);
    return true;
  }
  /// Our region was closed, and every link's revoke() is true: what is kept of it beyond links ends as well. True:
  /// done. False: ask again.
  [[nodiscard]] virtual bool revoke(RegionKey key) {
    static_cast<void>(key);
    return true;
  }
  /// Takes the stream after the handshake (both sides); set-up goes on by frames; on_up() or on_down() follows.
  [[nodiscard]] virtual std::unique_ptr<Link> make(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream,
                                                   const LinkServices& services, LinkEvents& events) = 0;
};

}  // namespace hixl::links
