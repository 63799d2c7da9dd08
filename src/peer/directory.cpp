// SPDX-License-Identifier: Apache-2.0
#include "peer/directory.hpp"

#include <algorithm>
#include <limits>

#include "base/log.hpp"

namespace hixl::peer {

namespace {

// The last numbers are nobody's, so that the next one never wraps.
constexpr LinkGen k_no_generation = std::numeric_limits<LinkGen>::max();
constexpr SessionId k_no_session = std::numeric_limits<SessionId>::max();
/// Regions closed in one turn: about a microsecond each, so that a turn stays below a millisecond.
constexpr std::size_t k_closed_a_turn = 512;

}  // namespace

Directory::Directory(PeerServices& services, std::uint32_t peers_max)
    : services_(services),
      peers_max_(peers_max),
      memories_(services.world_size, services.regions_max),
      dial_slots_(services.loop),
      by_rank_(services.world_size) {
  services_.loop.watch_lateness(this, services_.timing.heartbeat / 2);
}

Directory::~Directory() { services_.loop.watch_lateness(nullptr, {}); }

void Directory::on_late(Duration lag) {
  for (std::size_t i = 0; i < peers_.size(); ++i) peers_[i]->on_late(lag);  // callbacks may make more of them
}

PeerActor* Directory::peer(Rank rank) {
  if (rank >= services_.world_size || rank == services_.rank || released_) return nullptr;
  if (by_rank_[rank] != nullptr) return by_rank_[rank];
  if (peers_.size() >= peers_max_) return nullptr;
  peers_.push_back(std::make_unique<PeerActor>(services_, rank, memories_.make(rank), dial_slots_));
  by_rank_[rank] = peers_.back().get();
  return by_rank_[rank];
}

bool Directory::send_control(Rank rank, wire::FrameType type, ConstBytes body) {
  PeerActor* actor = peer(rank);
  return actor != nullptr && actor->send_control(type, body);
}

void Directory::on_accept(std::unique_ptr<runtime::Stream> stream) {
  if (released_) return;
  // A hello follows its connection in one round trip. Whoever has kept silent for longest gives way, so that no crowd
  // of silent ones keeps a peer out.
  if (greetings_.size() >= k_greetings_max) {
    note_stranger(ErrorCode::limit_reached);
    greetings_.erase(greetings_.begin());  // at once: this is an event of the listener, not of a greeting
  }
  greetings_.push_back(
      std::make_unique<Greeting>(services_.loop, std::move(stream), static_cast<GreetingEvents&>(*this)));
}

void Directory::on_hello(Greeting& greeting, const wire::Hello& hello) {
  wire::Reject reject{.peer_id = services_.peer_id, .incarnation = services_.incarnation};
  if (hello.target_peer_id != services_.peer_id) {
    reject.reason = wire::RejectReason::wrong_peer;
  } else if (hello.target_incarnation != services_.incarnation) {
    reject.reason = wire::RejectReason::wrong_incarnation;
  } else if (hello.incarnation == 0 || hello.link_gen == 0 || hello.link_gen == k_no_generation ||
             hello.session == k_no_session) {
    reject.reason = wire::RejectReason::bad_rank;
  } else if (services_.birth == 0) {
    // The others may know of our claim before its answer has reached us. A life without a birth has no sessions, so
    // that none can outlive the birth under which it was made.
    reject.reason = wire::RejectReason::not_joined;
  } else if (stopping_ && (hello.rank >= by_rank_.size() || by_rank_[hello.rank] == nullptr)) {
    reject.reason = wire::RejectReason::shutting_down;
  } else if (PeerActor* actor = peer(hello.rank); actor != nullptr) {
    actor->on_hello(greeting, hello);
    return;
  } else {
    reject.reason = peers_.size() >= peers_max_ ? wire::RejectReason::too_many : wire::RejectReason::bad_rank;
  }
  log::debug("a hello of rank {} was refused, reason {}", hello.rank, static_cast<int>(reject.reason));
  greeting.reject(reject);
}

void Directory::on_greeting_over(Greeting& greeting) {
  const auto place = std::find_if(greetings_.begin(), greetings_.end(),
                                  [&greeting](const auto& item) { return item.get() == &greeting; });
  if (place == greetings_.end()) return;
  if (greeting.offence() != ErrorCode::ok) note_stranger(greeting.offence());
  over_.push_back(std::move(*place));
  greetings_.erase(place);
  services_.loop.defer(*this);
}

void Directory::note_stranger(ErrorCode offence) {
  strangers_ += 1;
  services_.loop.log().warn({"connections that are no peers"},
                            "rank {}: a connection that is no peer was closed, the latest for {}; {} so far",
                            services_.rank, name(offence), strangers_);
}

void Directory::stop(Instant farewell_until) {
  stopping_ = true;
  farewell_until_ = farewell_until;
  for (const memory::RegionInfo& region : services_.regions.list()) to_close_.push_back(region.key);
  close_regions();
}

/// The goodbye is a fence as well: who reads it ends its operations, so nothing of theirs may be applied any more, on
/// any connection, whether or not this side knows yet that it is broken. It is said when the last region is closed.
void Directory::close_regions() {
  for (std::size_t i = 0; i < k_closed_a_turn && !to_close_.empty(); ++i) {
    for (Result<bool> closed = false; closed && !*closed;) closed = services_.regions.close(to_close_.back());
    to_close_.pop_back();
  }
  if (!to_close_.empty()) return services_.loop.defer(*this);
  for (const auto& actor : peers_) actor->stop(farewell_until_);
}

void Directory::run() {
  over_.clear();
  if (!to_close_.empty()) close_regions();
}

bool Directory::stopped() {
  if (!to_close_.empty()) return false;
  bool all = true;
  for (const auto& actor : peers_) all = actor->stopped() && all;
  return all;
}

void Directory::abort() {
  stopping_ = true;
  to_close_.clear();  // the links end here and now
  greetings_.clear();
  for (const auto& actor : peers_) actor->abort();
}

void Directory::release() {
  released_ = true;
  services_.loop.watch_lateness(nullptr, {});
  std::fill(by_rank_.begin(), by_rank_.end(), nullptr);
  greetings_.clear();
  over_.clear();
  peers_.clear();
}

}  // namespace hixl::peer
