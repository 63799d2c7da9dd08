// SPDX-License-Identifier: Apache-2.0
//
// WordTarget: carries out the peer's signals and atomics that come as frames, and tells it of refusals. Links whose
// words are executed by the target have one. An error given back here means that the link must end.
//
// Loop-bound. No call delivers an event.
#pragma once

#include <hixl/result.hpp>

#include "links/link.hpp"
#include "links/sequencer.hpp"

namespace hixl::links {

/// Above the longest answer of a target, a nack of 50 bytes.
inline constexpr std::size_t k_answer_body_bytes_max = 64;

class WordTarget {
 public:
  /// Stream and sequencer are used only while the link is open.
  WordTarget(const LinkIdentity& identity, const LinkServices& services, FrameStream& stream, Sequencer& sequencer);

  [[nodiscard]] Result<void> on_signal(const wire::FrameHeader& header, ConstBytes body);
  [[nodiscard]] Result<void> on_atomic(const wire::FrameHeader& header, ConstBytes body);
  /// The frame of that number was not executed, for this reason.
  [[nodiscard]] Result<void> refuse(LinkSeq seq, const Error& error);
  /// The same without a word about the number, which has been dealt with.
  [[nodiscard]] Result<void> send_nack(LinkSeq seq, const Error& error);
  [[nodiscard]] tl::unexpected<Error> broken(ErrorCode code) const;

 private:
  const LinkIdentity identity_;
  memory::RegionTable& regions_;
  memory::SignalPage& signals_;
  AtomicWindow* const atomics_;
  FrameStream& stream_;
  Sequencer& sequencer_;
};

}  // namespace hixl::links
