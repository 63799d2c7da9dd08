// SPDX-License-Identifier: Apache-2.0
//
// Initiator: the posts of this side on a tcp link, from their frame to their completion. Everything that the peer says
// about them is checked; an error given back here means that the peer is broken and the link must end.
//
// Loop-bound. No call delivers an event.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <hixl/result.hpp>

#include "base/list.hpp"
#include "links/link.hpp"
#include "links/sequencer.hpp"
#include "links/tcp/segment_cursor.hpp"
#include "links/tcp/staging.hpp"
#include "wire/messages.hpp"

namespace hixl::links::tcp {

class Initiator {
 public:
  Initiator(const LinkIdentity& identity, const LinkServices& services, Staging& staging);

  /// The stream and the sequencer are used during the call only.
  [[nodiscard]] Answer post(const Post& post, FrameStream& stream, Sequencer& sequencer);
  [[nodiscard]] std::size_t poll(std::span<Completion> out) noexcept;
  [[nodiscard]] bool any_done() noexcept { return !done_.empty(); }
  [[nodiscard]] bool abandon(std::uint64_t cookie) noexcept;
  [[nodiscard]] LinkSeq sequence_of(std::uint64_t cookie) const noexcept;

  // ---- what the peer says ----
  /// Ends writes and signals up to there; a read ends with its data, an atomic with its result.
  [[nodiscard]] Result<void> on_ack(LinkSeq upto, const FrameStream& stream);
  [[nodiscard]] Result<void> on_nack(const wire::Nack& nack, const FrameStream& stream);
  [[nodiscard]] Result<void> on_atomic_result(const wire::AtomicResult& message);
  [[nodiscard]] Result<void> on_read_start(const wire::ReadData& message, std::uint32_t payload_bytes);
  [[nodiscard]] Result<std::size_t> read_target(std::span<iovec> out);
  void on_read_bytes(std::size_t bytes) noexcept;
  void on_read_end() noexcept;
  /// Instead of on_read_end(): the data is not what the peer sent. The attempt ends as not executed; with what error.
  Error on_read_corrupt(const wire::PayloadPiece& piece) noexcept;

  [[nodiscard]] std::uint64_t bytes_out() const noexcept { return bytes_out_; }
  [[nodiscard]] std::uint64_t bytes_in() const noexcept { return bytes_in_; }

 private:
  struct AttemptTag;
  struct Attempt : ListNode<AttemptTag> {
    Verb verb = Verb::write;
    bool abandoned = false;  ///< a read whose local memory is not ours any more
    std::uint64_t cookie = 0;
    LinkSeq seq = 0;
    std::uint64_t bytes = 0;
    std::span<const Segment> segments;
    memory::Device* device = nullptr;  ///< of the segments; null: memory that a socket can use
    std::uint64_t value = 0;           ///< an atomic's
    Error error{};
  };
  struct Payload {
    std::array<iovec, wire::k_segments_max> pieces;
    std::size_t count = 0;
    Staging::Outgoing* staged = nullptr;
  };
  /// What a write sends. busy: no room to stage it; done: `payload` is filled.
  [[nodiscard]] Answer gather(const Post& post, const Attempt& attempt, Payload& payload);
  [[nodiscard]] Attempt* find_by_seq(LinkSeq seq) noexcept;
  void end(Attempt& attempt, const Error& error) noexcept;
  [[nodiscard]] tl::unexpected<Error> malformed(LinkSeq seq) const;

  const LinkIdentity identity_;
  const std::uint32_t depth_;
  const bool check_payload_;
  Staging& staging_;
  std::unique_ptr<Attempt[]> attempts_;
  // Lists last, so that they let go of the attempts first.
  mutable List<Attempt, AttemptTag> in_flight_;  ///< in the order of their numbers
  List<Attempt, AttemptTag> done_;
  List<Attempt, AttemptTag> free_;
  Attempt* reading_ = nullptr;  ///< its data is coming in
  SegmentCursor cursor_;
  std::uint64_t bytes_out_ = 0;
  std::uint64_t bytes_in_ = 0;
};

}  // namespace hixl::links::tcp
