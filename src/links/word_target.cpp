// SPDX-License-Identifier: Apache-2.0
#include "links/word_target.hpp"

#include <array>

#include "base/assert.hpp"
#include "memory/mapping.hpp"

namespace hixl::links {
namespace {

constexpr std::size_t k_target_word_bytes = 8;

}  // namespace

WordTarget::WordTarget(const LinkIdentity& identity, const LinkServices& services, FrameStream& stream,
                       Sequencer& sequencer)
    : identity_(identity),
      regions_(services.regions),
      signals_(services.signals),
      atomics_(services.atomics),
      stream_(stream),
      sequencer_(sequencer) {}

Result<void> WordTarget::on_signal(const wire::FrameHeader& header, ConstBytes body) {
  wire::SignalBody signal;
  if (!decode_body(body, signal)) return broken(ErrorCode::malformed_frame);
  const auto place = regions_.check(signal.region, signal.token, signal.offset, k_target_word_bytes, Rights::write);
  if (!place) return refuse(header.link_seq, place.error());
  if (!place->device->caps().atomic_capable) return refuse(header.link_seq, Error(ErrorCode::unsupported));
  if (const auto address = reinterpret_cast<std::uint64_t>(place->data); address % k_target_word_bytes != 0) {
    return refuse(
        header.link_seq,
        Error(ErrorCode::unaligned, {.address = address, .length = k_target_word_bytes, .limit = k_target_word_bytes}));
  } else if (!place->owned && !memory::is_mapped(place->data, k_target_word_bytes)) {
    return refuse(header.link_seq,
                  Error(ErrorCode::memory_unmapped, {.address = address, .length = k_target_word_bytes}));
  }
  if (signal.add != 0) {
    memory::add_word(*place->device, place->data, signal.value);
  } else {
    memory::store_word(*place->device, place->data, signal.value);
  }
  signals_.ring();
  sequencer_.executed(header.link_seq, true);
  return {};
}

Result<void> WordTarget::on_atomic(const wire::FrameHeader& header, ConstBytes body) {
  wire::AtomicBody atomic;
  if (!decode_body(body, atomic)) return broken(ErrorCode::malformed_frame);
  if (atomics_ == nullptr) return refuse(header.link_seq, Error(ErrorCode::unsupported));
  const Result<std::uint64_t> before = atomics_->execute(atomic, regions_, signals_);
  if (!before) {
    if (before.error().code == ErrorCode::malformed_frame) return broken(ErrorCode::malformed_frame);
    return refuse(header.link_seq, before.error());
  }
  sequencer_.executed(header.link_seq, true);  // also when the answer cannot leave: the peer will ask again
  std::array<std::byte, k_answer_body_bytes_max> answer;
  ByteWriter writer(answer);
  encode(wire::AtomicResult{header.link_seq, *before}, writer);
  HIXL_ASSERT(writer.ok());
  if (!stream_.send_answer(sequencer_.header(wire::FrameType::atomic_result), writer.written())) {
    return broken(ErrorCode::limit_reached);
  }
  return {};
}

Result<void> WordTarget::refuse(LinkSeq seq, const Error& error) {
  if (const Result<void> sent = send_nack(seq, error); !sent) return sent;
  sequencer_.executed(seq, false);
  return {};
}

Result<void> WordTarget::send_nack(LinkSeq seq, const Error& error) {
  std::array<std::byte, k_answer_body_bytes_max> body;
  ByteWriter writer(body);
  encode(wire::Nack{.seq = seq,
                    .code = static_cast<std::uint16_t>(error.code),
                    .address = error.detail.address,
                    .length = error.detail.length,
                    .nearest_base = error.detail.nearest_base,
                    .nearest_length = error.detail.nearest_length,
                    .limit = error.detail.limit},
         writer);
  HIXL_ASSERT(writer.ok());
  if (!stream_.send_answer(sequencer_.header(wire::FrameType::nack), writer.written())) {
    return broken(ErrorCode::limit_reached);
  }
  return {};
}

tl::unexpected<Error> WordTarget::broken(ErrorCode code) const {
  return fail(code, {.rank = identity_.rank, .link = identity_.link_id, .stage = Stage::transfer});
}

}  // namespace hixl::links
