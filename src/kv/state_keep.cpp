// SPDX-License-Identifier: Apache-2.0
//
// The keeper: a thread that sleeps until a lease or deadline is due, somebody rings, or what found no room may be tried
// again.
#include <algorithm>
#include <utility>

#include "movement.hpp"
#include "state.hpp"

namespace hixl::kv {

namespace {

/// While leases are open their holders' lives are looked at this often: far below the time that a death takes to be
/// known.
constexpr std::chrono::milliseconds k_look{50};
/// What found no room in the runtime finds it when operations end: about this often, under load.
constexpr std::chrono::milliseconds k_retry{2};
/// With nothing to look after: a wake-up that found no room costs no more than this.
constexpr std::chrono::milliseconds k_idle{500};

}  // namespace

void DataDist::State::wake_keeper() {
  if (idle.exchange(false)) ring_there(own(directory.bell()));
}

void DataDist::State::keep() {
  while (!stopping.load()) {
    const std::uint64_t seen = bell();
    idle.store(true);  // before all looks: what comes later rings
    look_at_leases();
    return_to_gates();
    std::vector<Errand> again;
    std::vector<std::shared_ptr<Transfer::State>> open;
    {
      const std::lock_guard lock(mutex);
      again.swap(retries);
      open.assign(moves.begin(), moves.end());
    }
    for (Errand& errand : again) post_or_retry(std::move(errand));
    const Instant at = now();
    bool starved = false;
    for (const auto& transfer : open) starved = transfer->look(at) || starved;
    Timeout nap = k_idle;
    {
      const std::lock_guard lock(mutex);
      const bool moving =
          std::any_of(links.begin(), links.end(), [](const auto& row) { return row.second.moving > 0; });
      // Gates that cannot be reached are in no hurry: their rank may be away for ever.
      if (!moves.empty() || leases.size() > 0 || errands > 0 || moving) nap = k_look;
      if (const auto due = leases.due()) nap = std::clamp<Timeout>(*due - at, Timeout{}, nap);
      if (!retries.empty() || starved) nap = k_retry;
    }
    // Not shorter, so that no turn is a spin.
    nap = std::max<Timeout>(nap, std::chrono::milliseconds(1));
    const auto woken = runtime.wait_signal(region.data + directory.bell(), Compare::not_equal, seen, nap);
    if (woken || woken.error().code == ErrorCode::deadline_exceeded) continue;
    break;  // the runtime has stopped
  }
  if (!stopping.load()) cancel_moves(k_no_rank, error_of(ErrorCode::stopped, own_rank));
  std::vector<Errand> last;
  {
    const std::lock_guard lock(mutex);
    kept = false;  // from now on what finds no room is lost at once
    last.swap(retries);
  }
  for (Errand& errand : last) post_or_retry(std::move(errand));
}

void DataDist::State::look_at_leases() {
  std::map<std::uint32_t, RemoteAddress> holders;  // by link
  LeaseLook look;
  {
    const std::lock_guard lock(mutex);
    if (leases.size() == 0) return;
    look = leases.begin_look(now());
    leases.each([&](const LeaseEntry& entry) { holders.try_emplace(entry.link); });
    for (const auto& [rank, link] : links) {
      if (const auto holder = holders.find(link.index); holder != holders.end()) {
        holder->second = link.directory;
      }
    }
  }
  std::map<std::uint32_t, bool> lives;
  for (const auto& [link, holder] : holders) lives[link] = alive(holder);
  std::vector<LeaseEntry> ended;
  {
    const std::lock_guard lock(mutex);
    ended = leases.step(
        look,
        [&](const LeaseEntry& entry) {
          const auto life = lives.find(entry.link);  // a new lease: the next look tells
          return HolderLook{.gate = word(lease_gate(entry)).load(),
                            .released = word(directory.release(entry.link, entry.gate)).load() == entry.gate_generation,
                            .alive = life == lives.end() || life->second};
        },
        [&](const LeaseEntry& entry) { shut(entry); });
  }
  for (LeaseEntry& entry : ended) tell_ended(std::move(entry));
}

}  // namespace hixl::kv
