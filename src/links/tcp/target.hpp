// SPDX-License-Identifier: Apache-2.0
//
// Target: carries out the peer's writes and reads on a tcp link; its signals and atomics are with the WordTarget. Each
// is checked whole before its first byte. Before each further piece of a write, in the turn that touches it, it is
// asked whether the region still stands, which is all that can have changed. A refusal is a nack; an error given back
// here means that the link must end.
//
// Loop-bound. No call delivers an event.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include <hixl/result.hpp>

#include "links/fifo.hpp"
#include "links/link.hpp"
#include "links/sequencer.hpp"
#include "links/tcp/segment_cursor.hpp"
#include "links/tcp/staging.hpp"
#include "links/word_target.hpp"
#include "wire/messages.hpp"

namespace hixl::links::tcp {

class Target {
 public:
  /// Stream and sequencer are used only while the link is open.
  Target(const LinkIdentity& identity, const LinkServices& services, FrameStream& stream, Sequencer& sequencer,
         Staging& staging);

  [[nodiscard]] Result<void> on_write_start(const wire::FrameHeader& header, ConstBytes body);
  [[nodiscard]] Result<std::size_t> write_target(std::span<iovec> out);
  void on_write_bytes(std::size_t bytes);
  [[nodiscard]] Result<void> on_write_end();
  /// Instead of on_write_end(): the bytes are not what the peer sent. Refused; `told` is what the peer is told.
  [[nodiscard]] Result<void> on_write_corrupt(const wire::PayloadPiece& piece, Error& told);
  [[nodiscard]] Result<void> on_read(const wire::FrameHeader& header, ConstBytes body);
  [[nodiscard]] WordTarget& words() noexcept { return words_; }

  /// The answer with this ticket has left. Reads that waited for its staging go on.
  [[nodiscard]] Result<void> on_sent(std::uint64_t ticket);
  /// True while a frame of the peer that is under way writes into the region, or an answer to it still reads there.
  [[nodiscard]] bool touches(RegionKey key) const noexcept;

 private:
  /// Where the segments of an access are.
  struct Places {
    std::byte* base = nullptr;         ///< of their region
    memory::Device* device = nullptr;  ///< the region's when no socket can use its memory, else null
    [[nodiscard]] std::byte* of(const wire::WireSegment& segment) const noexcept { return base + segment.offset; }
  };
  /// All segments, whole.
  [[nodiscard]] Result<Places> check(const wire::Access& access, Rights need) const;
  struct Read {
    LinkSeq seq = 0;
    OpId op_id = 0;
    std::uint32_t chunk = 0;
    std::uint8_t attempt = 0;
    bool checked = false;  ///< its data shall carry a checksum
    wire::Access access;
  };
  [[nodiscard]] Result<void> answer(const Read& read, std::span<const iovec> pieces, Staging::Outgoing* staged);
  [[nodiscard]] Result<void> wait(const Read& read);
  [[nodiscard]] Result<void> answer_staged(const Read& read, const Places& places);
  [[nodiscard]] bool deliver(std::size_t bytes);
  [[nodiscard]] Result<void> refuse(LinkSeq seq, const Error& error) { return words_.refuse(seq, error); }
  [[nodiscard]] tl::unexpected<Error> broken(ErrorCode code) const { return words_.broken(code); }

  const LinkIdentity identity_;
  memory::RegionTable& regions_;
  const bool check_payload_;
  FrameStream& stream_;
  Sequencer& sequencer_;
  Staging& staging_;
  WordTarget words_;

  struct Writing {
    bool open = false;  ///< between start and end
    LinkSeq seq = 0;
    wire::Access access;
    SegmentCursor cursor;
    Places places;      ///< to be touched only while the region stands
    bool torn = false;  ///< the region ended between two pieces
    Result<void> verdict{};
  } writing_;
  struct ReadAnswer {
    std::uint64_t ticket;
    RegionKey region;  ///< empty: its data is staged, the region is not touched any more
  };
  Fifo<ReadAnswer> answers_;  ///< queued or half sent, in order
  std::deque<Read> waiting_;  ///< for a staging buffer
};

}  // namespace hixl::links::tcp
