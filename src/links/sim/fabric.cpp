// SPDX-License-Identifier: Apache-2.0
#include "links/sim/fabric.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "memory/device.hpp"

namespace hixl::links {

namespace {

/// A token of the world names a transfer and one of its pieces. The largest chunk in pieces of one byte has 2^22.
constexpr std::uint64_t k_piece_bits = 23;
constexpr std::uint64_t k_piece_mask = (1U << k_piece_bits) - 1;
constexpr std::uint64_t k_completion = k_piece_mask;
/// ExecutedSet looks back 1024 numbers; an attempt that stalls must not fall out of it.
constexpr LinkSeq k_seq_window = 1000;

/// Eight bytes at once, without memory at the initiator.
bool is_word(Verb verb) noexcept { return is_signal(verb) || is_atomic(verb); }

Rights needed(Verb verb) noexcept {
  switch (verb) {
    case Verb::read:
      return Rights::read;
    case Verb::write:
    case Verb::signal_set:
    case Verb::signal_add:
      return Rights::write;
    case Verb::atomic_add:
    case Verb::atomic_swap:
    case Verb::atomic_compare_swap:
      return Rights::atomic;
  }
  return Rights::all;
}

/// Posts are executed in any order, so a number may come after higher ones.
void record_unordered(wire::ExecutedSet& set, LinkSeq seq) noexcept {
  if (seq > set.highest) return set.record(seq, true);
  const std::uint64_t bit = set.highest - seq;
  HIXL_ASSERT(bit < set.bits.size() * 64);
  set.bits[bit / 64] |= std::uint64_t{1} << (bit % 64);
}

}  // namespace

SimPlan SimPlan::draw(Choices& choices) {
  const auto rate = [&](std::uint64_t most) {
    return choices.chance(500) ? static_cast<std::uint32_t>(choices.between(1, most)) : 0U;
  };
  SimPlan plan;
  plan.delay_max = plan.delay_min + Duration(choices.between(0, choices.chance(300) ? 20'000'000 : 200'000));
  plan.piece_bytes_max = static_cast<std::uint32_t>(choices.between(64, 4096));
  plan.twice_per_mille = rate(300);
  plan.late_per_mille = rate(20);
  plan.stall_per_mille = rate(10);
  plan.busy_per_mille = rate(300);
  plan.break_per_mille = rate(30);
  plan.one_sided_per_mille = rate(500);
  plan.hesitate_per_mille = rate(500);
  plan.drain_max = Duration(choices.between(1, 10'000'000));
  return plan;
}

Duration SimFabric::delay(std::uint32_t late_per_mille) {
  Choices& choices = world_.choices();
  if (choices.chance(late_per_mille))
    return Duration(choices.between(1, static_cast<std::uint64_t>(plan_.late_max.count())));
  return Duration(choices.between(static_cast<std::uint64_t>(plan_.delay_min.count()),
                                  static_cast<std::uint64_t>(plan_.delay_max.count())));
}

void SimFabric::join(SimSeat& seat, const std::string& connection) {
  const auto [place, first] = waiting_.try_emplace(connection, &seat);
  if (first) return;
  SimSeat* other = place->second;
  waiting_.erase(place);
  seat.other = other;
  other->other = &seat;
  seat.joined = other->joined = true;
  other->services->loop.mailbox().wakeup().notify();
}

// ---- initiator ----

bool SimFabric::has_credit(const SimSeat& seat) noexcept {
  LinkSeq oldest = seat.last_seq + 1;
  for (const auto& [cookie, flight] : seat.flights) oldest = std::min(oldest, flight.seq);
  return seat.flights.size() < seat.services->tx_depth && seat.last_seq + 1 - oldest < k_seq_window;
}

bool SimFabric::post(SimSeat& seat, const Post& post) {
  if (!seat.joined || seat.closed || !has_credit(seat) || world_.choices().chance(plan_.busy_per_mille)) return false;
  if (world_.choices().chance(plan_.stall_per_mille)) seat.stalled_until = world_.now() + delay(1000);
  const Duration held = std::max(Duration{}, seat.stalled_until - world_.now());
  const std::uint64_t id = next_id_++;
  Transfer& transfer = transfers_[id];
  transfer.post = post;
  transfer.post.segments = {};
  transfer.initiator = &seat;
  transfer.target = seat.other;
  transfer.seq = ++seat.last_seq;
  cut(transfer, post.segments);
  SimSeat::Flight flight{transfer.seq, id, 0, post.verb, false};
  for (std::size_t i = 0; i < transfer.pieces.size(); ++i) {
    Piece& piece = transfer.pieces[i];
    if (!is_word(post.verb)) flight.bytes += piece.bytes;
    if (is_word(post.verb)) {
      piece.carried = true;  // the value travels in the post
    } else if (post.verb == Verb::write && world_.choices().chance(plan_.early_per_mille)) {
      carry(transfer, piece);
    }
    // A signal could not bear it; an atomic is what the target's window is for.
    const bool twice = !is_signal(post.verb) && world_.choices().chance(plan_.twice_per_mille);
    for (int landing = 0; landing < (twice ? 2 : 1); ++landing) {
      ++transfer.landings_left;
      world_.schedule(held + delay(plan_.late_per_mille), *this, id << k_piece_bits | i);
    }
  }
  const bool fresh = seat.flights.emplace(post.cookie, flight).second;
  HIXL_ASSERT(fresh);
  if (world_.choices().chance(plan_.break_per_mille)) schedule_break(seat);
  return true;
}

void SimFabric::cut(Transfer& transfer, std::span<const Segment> segments) {
  for (const Segment& segment : segments) {
    for (std::uint32_t done = 0; done < segment.bytes;) {
      const std::uint32_t left = segment.bytes - done;
      const auto bytes =
          is_word(transfer.post.verb)
              ? left
              : std::min(left, static_cast<std::uint32_t>(world_.choices().between(1, plan_.piece_bytes_max)));
      std::byte* local = segment.local == nullptr ? nullptr : segment.local + done;
      transfer.pieces.push_back({.local = local, .offset = segment.offset + done, .bytes = bytes, .data = {}});
      done += bytes;
    }
  }
  HIXL_ASSERT(transfer.pieces.size() < k_completion);
}

void SimFabric::carry(Transfer& transfer, Piece& piece) {
  piece.data.resize(piece.bytes);
  transfer.post.local_device->read(piece.data.data(), piece.local, piece.bytes);
  piece.carried = true;
}

void SimFabric::schedule_break(SimSeat& seat) {
  const bool one_sided = world_.choices().chance(plan_.one_sided_per_mille);
  const bool late_here = world_.choices().chance(500);
  for (SimSeat* end : {&seat, seat.other}) {
    if (end == nullptr) continue;
    const bool late = one_sided && (end == &seat) == late_here;
    const std::uint64_t id = next_id_++;
    breaks_.emplace(id, end);
    world_.schedule(delay(late ? 1000 : 0), *this, id << k_piece_bits);
  }
}

bool SimFabric::abandon(SimSeat& seat, std::uint64_t cookie) {
  const auto flight = seat.flights.find(cookie);
  if (flight == seat.flights.end() || flight->second.verb != Verb::read || flight->second.completed) return false;
  if (world_.choices().chance(plan_.hesitate_per_mille)) return false;
  if (const auto transfer = transfers_.find(flight->second.transfer); transfer != transfers_.end()) {
    transfer->second.dead = true;
  }
  seat.flights.erase(flight);
  return true;
}

/// The card stops reading and writing here. What it has sent already goes on: half of what was under way, by the seed.
void SimFabric::close(SimSeat& seat) {
  if (seat.closed) return;
  seat.closed = true;
  seat.drained_at =
      world_.now() + Duration(world_.choices().below(static_cast<std::uint64_t>(plan_.drain_max.count()) + 1));
  std::erase_if(waiting_, [&](const auto& entry) { return entry.second == &seat; });
  std::erase_if(breaks_, [&](const auto& entry) { return entry.second == &seat; });
  for (auto& [id, transfer] : transfers_) {
    if (transfer.initiator != &seat || transfer.landings_left == 0) continue;
    if (transfer.post.verb == Verb::read) transfer.dead = true;
    for (Piece& piece : transfer.pieces) {
      if (piece.carried || piece.dropped || transfer.post.verb == Verb::read) continue;
      if (world_.choices().chance(500)) {
        carry(transfer, piece);
      } else {
        piece.dropped = transfer.dead = true;
      }
    }
  }
}

void SimFabric::leave(SimSeat& seat) {
  close(seat);
  // The other end may have drawn a break of both after this one had closed.
  std::erase_if(breaks_, [&](const auto& entry) { return entry.second == &seat; });
  if (seat.other != nullptr) seat.other->other = nullptr;
  for (auto& [id, transfer] : transfers_) {
    if (transfer.initiator == &seat) transfer.initiator = nullptr;
    if (transfer.target == &seat) transfer.target = nullptr;
  }
}

void SimFabric::halt() {
  halted_ = true;
  transfers_.clear();
  breaks_.clear();
}

// ---- target ----

/// Like a card that has been told addresses: what was allowed once goes on landing until it has been stopped here.
bool SimFabric::revoke(const SimSeat& seat, RegionKey key) {
  if (seat.closed) return true;
  std::vector<Transfer*> touching;
  for (auto& [id, transfer] : transfers_) {
    const bool touches = transfer.target == &seat && transfer.post.region == key && transfer.landings_left > 0;
    if (touches && transfer.device != nullptr) touching.push_back(&transfer);
  }
  if (!touching.empty() && world_.choices().chance(plan_.hesitate_per_mille)) return false;
  for (Transfer* transfer : touching) {
    if (transfer->refused.code == ErrorCode::ok) transfer->refused = Error(ErrorCode::stale);
  }
  return true;
}

void SimFabric::on_world_event(std::uint64_t token) {
  const std::uint64_t id = token >> k_piece_bits;
  const std::uint64_t index = token & k_piece_mask;
  if (const auto broken = breaks_.find(id); broken != breaks_.end()) {
    broken->second->broken = true;
    breaks_.erase(broken);
    return;
  }
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  Transfer& transfer = found->second;
  if (index == k_completion) {
    complete(transfer);
    transfers_.erase(found);
    return;
  }
  land(transfer, transfer.pieces[index]);
  if (--transfer.landings_left == 0) landed_all(id, transfer);
}

Error SimFabric::admit(Transfer& transfer) {
  const Post& post = transfer.post;
  for (Piece& piece : transfer.pieces) {
    const auto place =
        transfer.target->services->regions.check(post.region, post.token, piece.offset, piece.bytes, needed(post.verb));
    if (!place) return place.error();
    piece.place = place->data;
    transfer.device = place->device;
  }
  return Error();
}

void SimFabric::land(Transfer& transfer, Piece& piece) {
  const Post& post = transfer.post;
  const bool orphan = transfer.initiator == nullptr || transfer.initiator->closed;
  if (piece.dropped || transfer.refused.code != ErrorCode::ok) return;
  if (post.verb == Verb::read && (transfer.dead || orphan)) return;
  if (transfer.target == nullptr || transfer.target->closed) {
    transfer.dead = true;
    if (orphan) ++ghosts_refused_;
    return;
  }
  if (is_atomic(post.verb)) {
    if (orphan) ++ghosts_landed_;
    return execute(transfer, piece);
  }
  // A target sees the whole access before its first byte.
  if (transfer.device == nullptr) {
    transfer.refused = admit(transfer);
    if (transfer.refused.code != ErrorCode::ok) return;
  }
  if (orphan) ++ghosts_landed_;
  if (is_signal(post.verb)) {
    if (reinterpret_cast<std::uintptr_t>(piece.place) % sizeof(std::uint64_t) != 0) {
      transfer.refused = Error(ErrorCode::unaligned);
    } else if (!transfer.device->caps().atomic_capable) {
      transfer.refused = Error(ErrorCode::unsupported);
    } else {
      const auto apply = post.verb == Verb::signal_set ? memory::store_word : memory::add_word;
      apply(*transfer.device, piece.place, post.value);
      transfer.target->services->signals.ring();
    }
  } else if (post.verb == Verb::read) {
    memory::copy(*post.local_device, piece.local, *transfer.device, piece.place, piece.bytes);
  } else if (piece.carried) {
    transfer.device->write(piece.place, piece.data.data(), piece.bytes);
  } else {
    memory::copy(*transfer.device, piece.place, *post.local_device, piece.local, piece.bytes);
  }
}

/// The target's own window decides; what it refuses has no place here.
void SimFabric::execute(Transfer& transfer, const Piece& piece) {
  const LinkServices& services = *transfer.target->services;
  const wire::AtomicBody body = atomic_body(transfer.post, piece.offset);
  if (services.atomics == nullptr) {
    transfer.refused = Error(ErrorCode::unsupported);
  } else if (const auto before = services.atomics->execute(body, services.regions, services.signals)) {
    transfer.value = *before;
    // At once: what comes of its second landing, if it has one, changes nothing about that.
    if (!std::exchange(transfer.executed, true)) record_unordered(transfer.target->executed, transfer.seq);
  } else if (!transfer.executed) {
    transfer.refused = before.error();
  }
}

void SimFabric::landed_all(std::uint64_t id, Transfer& transfer) {
  if (transfer.dead || transfer.target == nullptr || transfer.target->closed) {
    transfers_.erase(id);
    return;
  }
  if (transfer.refused.code == ErrorCode::ok) record_unordered(transfer.target->executed, transfer.seq);
  world_.schedule(delay(0), *this, id << k_piece_bits | k_completion);
}

void SimFabric::complete(Transfer& transfer) {
  SimSeat* seat = transfer.initiator;
  if (seat == nullptr || seat->closed || seat->broken || transfer.dead) return;
  const auto flight = seat->flights.find(transfer.post.cookie);
  HIXL_ASSERT(flight != seat->flights.end());
  flight->second.completed = true;
  seat->completions.push_back({transfer.post.cookie, transfer.refused, transfer.value});
  seat->services->loop.mailbox().wakeup().notify();
}

}  // namespace hixl::links
