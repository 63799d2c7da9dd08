// SPDX-License-Identifier: Apache-2.0
//
// Core's express lane: what a caller of a sync form does itself, in its own thread, on a healthy window link. Same
// checks, codes and promises as the ordinary way.
#include <algorithm>

#include "core/checks.hpp"
#include "core/core.hpp"

namespace hixl::core {

namespace {

/// One stay in a lane: it reads no clock, and a revoke waits for it, so its copy is short (about 3 µs).
constexpr std::uint64_t k_lane_bytes_max = 64U << 10U;
/// From here on a copy engine takes its share: 3 of 8 parts, since it begins two wake-ups later than the caller. Below,
/// memory that lies in the caller's cache is copied faster by the caller alone (16 MiB: 20 GB/s against 15 GB/s).
constexpr std::uint64_t k_shared_bytes_min = 64U << 20U;
[[nodiscard]] constexpr std::uint64_t callers_share(std::uint64_t size) noexcept { return size - size / 8 * 3; }

/// A batch of more goes the ordinary way, in which a copy engine takes part and deadlines are looked at.
constexpr std::uint64_t k_lane_batch_bytes_max = 1U << 20U;

RemoteAddress advanced(RemoteAddress address, std::uint64_t bytes) noexcept {
  address.address += bytes;
  return address;
}

}  // namespace

Result<void> Core::transfer_sync(TransferVerb verb, const void* local, const RemoteAddress& remote, std::uint64_t size,
                                 Timeout timeout, LinkSet links) {
  if (const auto admitted = admit(); !admitted) return admitted;
  if (timeout < Timeout{} && timeout != k_default_timeout) {
    return fail(ErrorCode::invalid_argument, {.rank = remote.rank, .stage = Stage::options});
  }
  if (timeout == Timeout{}) {
    // Over before it began, whichever way it would have taken.
  } else if (!links.allows(LinkKind::hccs)) {
    // The lanes are those of window links.
  } else if (size <= k_lane_bytes_max) {
    if (auto done = try_lane(verb, local, remote, size)) return *done;
  } else if (!on_loop_thread() && lane_open(remote.rank)) {
    return copy_along(verb, local, remote, size, timeout, links);
  }
  return post_and_wait(timeout, [&](Timeout left) {
    return post(verb, local, remote, size, nullptr, OpOptions{.timeout = left, .links = links});
  });
}

bool Core::lane_open(Rank rank) const noexcept {
  const memory::PeerMemory* peer = rank == options_.rank ? nullptr : directory_->memory(rank);
  return peer != nullptr && peer->gate.is_open();
}

/// A batch that the caller would only wait for: entry by entry, in their order, when every one of them may go so.
Result<void> Core::batch_sync(std::span<const BatchEntry> entries, Timeout timeout) {
  if (const auto admitted = admit(); !admitted) return admitted;
  std::size_t done = 0;
  if (timeout != Timeout{} && (timeout > Timeout{} || timeout == k_default_timeout) && lane_takes(entries)) {
    for (; done < entries.size(); ++done) {
      const BatchEntry& entry = entries[done];
      if (entry.size == 0) continue;
      const auto step = try_lane(entry.verb, entry.local, entry.remote, entry.size);
      if (!step) break;
      if (*step) continue;
      Error why = step->error();
      why.detail.entry = static_cast<std::uint32_t>(done);
      return fail(why);
    }
    if (done == entries.size()) return {};
  }
  auto result = post_and_wait(
      timeout, [&](Timeout left) { return post_batch(entries.subspan(done), nullptr, {.timeout = left}); });
  if (!result && result.error().detail.entry != k_no_entry) {
    result.error().detail.entry += static_cast<std::uint32_t>(done);
  }
  return result;
}

/// Whether all of it is right and can be made by the caller; else the ordinary way does it, or says what is wrong.
bool Core::lane_takes(std::span<const BatchEntry> entries) {
  if (entries.empty() || entries.size() > k_batch_entries_max || on_loop_thread()) return false;
  const Rank rank = entries.front().remote.rank;
  const memory::PeerMemory* peer = rank == options_.rank ? nullptr : directory_->memory(rank);
  if (peer == nullptr || !peer->gate.is_open()) return false;
  std::uint64_t left = k_lane_batch_bytes_max;
  for (const BatchEntry& entry : entries) {
    if (entry.remote.rank != rank || entry.size > std::min(left, k_lane_bytes_max)) return false;
    left -= entry.size;
    const auto view = peer->remotes.resolve(entry.remote, entry.size, remote_need(entry.verb));
    if (!view || view->mapped == nullptr) return false;
    if (!pin_local(entry.local, entry.size, local_need(entry.verb))) return false;
  }
  return true;
}

/// A long sync transfer: the caller would only wait, so it copies one part in short stays while a copy engine copies
/// the other. What the lane does not take goes the ordinary way.
Result<void> Core::copy_along(TransferVerb verb, const void* local, const RemoteAddress& remote, std::uint64_t size,
                              Timeout timeout, LinkSet links) {
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  // The whole range is checked before the first byte moves.
  const auto view = resolve(remote, size, remote_need(verb));
  if (!view) return fail(view.error());
  const auto pin = pin_local(local, size, local_need(verb));
  if (!pin) return fail(pin.error());

  const auto* bytes = static_cast<const std::byte*>(local);
  const auto time_left = [&] { return left(*deadline); };
  const auto post_from = [&](std::uint64_t offset, std::uint64_t count, Timeout left) {
    return post(verb, bytes + offset, advanced(remote, offset), count, nullptr,
                OpOptions{.timeout = left, .links = links});
  };
  std::uint64_t mine = size;
  Request theirs;
  if (size >= k_shared_bytes_min) {
    const std::uint64_t share = callers_share(size);
    if (auto posted = post_from(share, size - share, time_left())) {
      mine = share;
      theirs = std::move(*posted);
    }
  }
  Result<void> result;
  std::uint64_t done = 0;
  while (result && done < mine) {
    const std::uint64_t count = std::min(k_lane_bytes_max, mine - done);
    auto step = time_left() > Duration{} ? try_lane(verb, bytes + done, advanced(remote, done), count) : std::nullopt;
    if (!step) {
      result = post_and_wait(time_left(), [&](Timeout left) { return post_from(done, mine - done, left); });
      break;
    }
    result = *step;
    done += count;
  }
  // Ended means ended: the other half too, whatever became of this one.
  if (!theirs.empty()) {
    const auto other = theirs.wait();
    if (result && !other) result = other;
  }
  return result;
}

/// The express lane: a small access to a peer's window, made by the caller itself. Nothing: take the ordinary way.
std::optional<Result<void>> Core::try_lane(TransferVerb verb, const void* local, const RemoteAddress& remote,
                                           std::uint64_t size) {
  if (size > k_lane_bytes_max || size == 0 || remote.rank == options_.rank) return std::nullopt;
  memory::PeerMemory* memory = directory_->memory(remote.rank);
  if (memory == nullptr || !memory->gate.enter()) return std::nullopt;
  struct Leave {
    memory::LaneGate& gate;
    ~Leave() { gate.leave(); }
  } leave{memory->gate};

  const bool put = verb == TransferVerb::put;
  const Rights need = remote_need(verb);
  const auto view = memory->remotes.resolve(remote, size, need);
  if (!view) {
    const auto named = resolve(remote, size, need);
    return named ? std::nullopt : std::optional(Result<void>(fail(named.error())));
  }
  if (view->mapped == nullptr) return std::nullopt;
  memory::Device* device = &memory::host_device();
  memory::Pin pin;
  if (!inlines(verb, local, size)) {
    auto pinned = pin_local(local, size, local_need(verb));
    if (!pinned) return Result<void>(fail(pinned.error()));
    pin = std::move(*pinned);
    device = &pin.device();
  } else if (!has_source(local, size)) {
    return Result<void>(no_source(size));
  }
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(local));
  const auto outcome = memory->gate.lane().run(view->key, put ? size : 0, put ? 0 : size, [&] {
    if (put) {
      memory::copy(memory::host_device(), view->mapped, *device, bytes, size);
    } else {
      memory::copy(*device, bytes, memory::host_device(), view->mapped, size);
    }
  });
  switch (outcome) {
    case memory::Lane::Outcome::done:
      return Result<void>();
    case memory::Lane::Outcome::stale:
      return Result<void>(
          fail(ErrorCode::stale,
               {.rank = remote.rank, .stage = Stage::remote_check, .address = remote.address, .length = size}));
    case memory::Lane::Outcome::closed:
    case memory::Lane::Outcome::crowded:
      break;
  }
  return std::nullopt;
}

}  // namespace hixl::core
