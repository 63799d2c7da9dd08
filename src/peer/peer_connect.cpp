// SPDX-License-Identifier: Apache-2.0
//
// PeerActor's connections made ahead of need, and who waits for them.
#include <algorithm>
#include <utility>

#include "peer/peer_actor.hpp"

namespace hixl::peer {

/// From then on the links are kept, need or no need.
void PeerActor::prewarm(const ConnectWait& wait) {
  prewarm_ = true;
  connects_.push_back(wait);
  if (!connect_tick_.active() || connect_tick_.due() > wait.deadline)
    services_.loop.start(connect_tick_, wait.deadline);
  want();
  pump_later();
}

/// One link stands, and of each other it is known whether it does.
bool PeerActor::connected() const noexcept {
  bool any = false;
  for (const auto& link : links_) {
    any = any || link->up();
    const bool coming = link->state() == LinkActor::State::setup || link->dial ||
                        (link->state() == LinkActor::State::idle && link->failures_ever() == 0 && reachable_by(*link));
    if (coming) return false;
  }
  return any;
}

void PeerActor::serve_connects() {
  if (connects_.empty() || !connected()) return;
  for (const ConnectWait& wait : std::exchange(connects_, {})) wait.done(wait.context, {});
}

void PeerActor::on_connect_tick() {
  const Instant now = services_.loop.now();
  std::vector<ConnectWait> over;
  Instant next = k_never;
  std::erase_if(connects_, [&](const ConnectWait& wait) {
    if (wait.deadline > now) {
      next = std::min(next, wait.deadline);
      return false;
    }
    over.push_back(wait);
    return true;
  });
  if (next != k_never) services_.loop.start(connect_tick_, next);
  // Last, since the program may call us from there.
  const Result<void> result = best_up() != nullptr ? Result<void>() : fail(too_late(Stage::connect));
  for (const ConnectWait& wait : over) wait.done(wait.context, result);
}

/// Why something that needs a link has not come in its time: what keeps the links away, or nothing but the time.
Error PeerActor::too_late(Stage stage) noexcept {
  Error error = connect_error_;
  if (best_up() != nullptr || error.code == ErrorCode::ok) error = Error(ErrorCode::deadline_exceeded);
  error.detail.rank = rank_;
  if (error.detail.stage == Stage::none) error.detail.stage = address_known_ ? stage : Stage::rendezvous;
  return error;
}

void PeerActor::fail_connects(const Error& error) {
  for (const ConnectWait& wait : std::exchange(connects_, {})) wait.done(wait.context, fail(error));
}

}  // namespace hixl::peer
