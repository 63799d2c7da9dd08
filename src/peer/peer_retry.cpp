// SPDX-License-Identifier: Apache-2.0
//
// PeerActor's retries: what becomes of a piece whose link broke before the target had executed it, or that arrived
// corrupt.
#include <algorithm>
#include <limits>

#include "peer/peer_actor.hpp"

namespace hixl::peer {

/// The hook's answer, or what is done without one: tcp, where that is another way, then the end.
Degrade PeerActor::ask_degrade(const LinkActor& link, const Operation& operation, const Chunk& chunk,
                               const Error& error) const {
  const bool tcp_is_another_way =
      !operation.by_tcp && operation.links.allows(LinkKind::tcp) &&
      std::any_of(links_.begin(), links_.end(), [](const auto& one) { return one->caps().kind == LinkKind::tcp; }) &&
      std::any_of(links_.begin(), links_.end(), [](const auto& one) { return one->caps().kind != LinkKind::tcp; });
  if (services_.retry.degrade.function == nullptr) return tcp_is_another_way ? Degrade::tcp : Degrade::fail;
  return services_.listener.on_degrade({.rank = rank_,
                                        .kind = link.caps().kind,
                                        .link = link.id(),
                                        .attempts = chunk.attempt,
                                        .bytes = chunk.word ? sizeof(std::uint64_t) : chunk.bytes,
                                        .user_data = 0,
                                        .error = error},
                                       operation);
}

/// Goes back to be taken by another link, or ends its operation. The first retry goes at once: another link may stand,
/// and every moment of it is a gap that the program sees.
void PeerActor::try_again(const LinkActor& link, Operation& operation, Chunk chunk, const Error& error) {
  const RetryPolicy& policy = services_.retry;
  services_.counters.retries += 1;
  chunk.attempt = static_cast<std::uint8_t>(std::min<int>(chunk.attempt + 1, std::numeric_limits<std::uint8_t>::max()));
  if (error.code == ErrorCode::payload_corrupt) {
    // The link stands, and no other path is known to be better: counted for itself, and nobody is asked.
    chunk.corrupt = static_cast<std::uint8_t>(chunk.corrupt + 1);
    if (chunk.corrupt > policy.count) return end_refused(operation, link, error);
    return_chunk(operation, chunk);
    return pump_later();
  }
  chunk.tries = static_cast<std::uint8_t>(chunk.tries + 1);
  Instant due{};
  if (chunk.tries > policy.count) {
    Error told = link.last_error;
    if (told.code == ErrorCode::ok) told = error;
    told.detail.rank = rank_;
    told.detail.link = link.id();
    switch (ask_degrade(link, operation, chunk, told)) {
      case Degrade::next_link:
        break;
      case Degrade::tcp:
        if (!operation.links.allows(LinkKind::tcp)) return end_retried(operation, told);
        operation.links = {LinkKind::tcp};
        operation.by_tcp = true;
        break;
      case Degrade::fail:
        return end_retried(operation, told);
    }
    chunk.tries = 0;
  } else if (chunk.tries > 1) {
    constexpr std::uint32_t k_doublings_max = 20;  // 1 ms doubled so often is above every pause_max
    const Duration longest = std::min<Duration>(
        policy.pause * (std::int64_t{1} << std::min<std::uint32_t>(chunk.tries - 2U, k_doublings_max)),
        policy.pause_max);
    due = services_.loop.now() + Duration(static_cast<std::int64_t>(
                                     services_.loop.random().below(static_cast<std::uint64_t>(longest.count()) + 1)));
  }
  return_chunk(operation, chunk, due);
  pump_later();
}

/// Pauses are short and few, so that looking at all that came back is cheap.
void PeerActor::on_retry_tick() {
  const Instant now = services_.loop.now();
  Instant next = k_never;
  for (const Returned& item : returned_) {
    if (item.due > now) next = std::min(next, item.due);
  }
  if (next != k_never) services_.loop.start(retry_tick_, next);
  pump_later();
}

void PeerActor::end_retried(Operation& operation, Error error) {
  error.code = ErrorCode::retries_exhausted;
  end(operation, error);
}

}  // namespace hixl::peer
