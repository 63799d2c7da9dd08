// SPDX-License-Identifier: Apache-2.0
//
// SimLink: one end of a simulated link. Its seat in the fabric has the posts and completions; this class gives them the
// shape of link.hpp and runs the control path over the stream.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "links/link.hpp"
#include "links/sequencer.hpp"
#include "links/sim/fabric.hpp"

namespace hixl::links::sim {

class SimLink final : public Link, private FrameSink, private runtime::Poller {
 public:
  SimLink(const LinkCaps& caps, SimFabric& fabric, const LinkIdentity& identity, std::unique_ptr<FrameStream> stream,
          const LinkServices& services, LinkEvents& events);
  SimLink(const SimLink&) = delete;
  SimLink& operator=(const SimLink&) = delete;
  ~SimLink() override;

  [[nodiscard]] const LinkCaps& caps() const noexcept override { return caps_; }
  [[nodiscard]] Answer post(const Post& post) override;
  std::size_t poll(std::span<Completion> out) override;
  [[nodiscard]] bool send(wire::FrameType type, ConstBytes body) override;
  /// The fabric reaches every region.
  [[nodiscard]] Answer attach(const wire::RegionDescriptor&) override { return Answer::done; }
  [[nodiscard]] bool revoke(RegionKey key) override { return fabric_.revoke(seat_, key); }
  void close() override;
  [[nodiscard]] bool drained() override { return fabric_.drained(seat_); }
  [[nodiscard]] const wire::ExecutedSet& executed() const noexcept override { return seat_.executed; }
  [[nodiscard]] LinkSeq sequence_of(std::uint64_t cookie) const noexcept override;
  [[nodiscard]] bool abandon(std::uint64_t cookie) override;
  [[nodiscard]] Instant last_heard() const noexcept override { return last_heard_; }
  [[nodiscard]] Traffic traffic() const noexcept override { return traffic_; }

 private:
  bool poll() override;
  [[nodiscard]] bool can_sleep() override { return due() == Due::nothing; }
  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) override;
  void on_payload_start(const wire::FrameHeader& header, ConstBytes body) override;
  std::size_t payload_target(std::uint64_t, std::span<iovec>) override { return 0; }
  void on_payload_bytes(std::size_t) override {}
  void on_payload_end() override {}
  void on_sendable() override { credit_due_ = credit_wanted_; }
  void on_sent(std::uint64_t) override {}
  void on_down(const Error& error) override { break_down(error); }

  enum class Due : std::uint8_t { nothing, completions, down, up, credit };
  [[nodiscard]] Due due() const noexcept;
  void break_down(const Error& error);

  const LinkCaps caps_;
  const LinkIdentity identity_;
  SimFabric& fabric_;
  const LinkServices services_;
  LinkEvents& events_;
  std::unique_ptr<FrameStream> stream_;   ///< null once this generation has ended
  std::unique_ptr<Sequencer> sequencer_;  ///< refers to the stream
  SimSeat seat_;
  Traffic traffic_{};
  Instant last_heard_;
  Error down_error_{};
  bool up_ = false;  ///< and told
  bool completions_told_ = false;
  bool credit_wanted_ = false;  ///< somebody was told busy
  bool credit_due_ = false;
  bool down_due_ = false;
  bool down_told_ = false;
};

}  // namespace hixl::links::sim
