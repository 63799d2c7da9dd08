// SPDX-License-Identifier: Apache-2.0
//
// Core's regions: made, copied to and from, and released in steps on the loop.
#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "base/planted.hpp"
#include "core/core.hpp"
#include "core/core_look.hpp"
#include "core/release.hpp"

namespace hixl::core {

namespace {

/// How often a region that is still touched is looked at again; an engine's piece takes less.
constexpr std::chrono::milliseconds k_release_step{1};
/// Bytes that go back to the system in one turn of the loop: some 5 ms, well below the lag at which the loop warns.
constexpr std::size_t k_return_bytes = 64U << 20U;

/// What the codes of the list cannot say: which limit, and where it is set.
const char* remedy_for(const Error& error, const AllocateOptions& options) noexcept {
  switch (error.code) {
    case ErrorCode::no_memory:
      // The system refused although memory is free.
      if (error.detail.os_error == ENOMEM && error.detail.limit != 0) {
        return "raise the limit of address space (ulimit -v), or ask for less";
      }
      if (error.detail.os_error == ENOMEM) return "see ulimit -v, ulimit -d and vm.max_map_count, or ask for less";
      if (options.kind == MemoryKind::hbm) return "ask for less, raise hbm_bytes, or set allow_paging_to_ddr";
      if (options.numa_node >= 0) return "ask for less, or for another NUMA node";
      return "ask for less, or raise the memory limit of the control group";
    case ErrorCode::unsupported:
      if (options.kind == MemoryKind::hbm) return "give this rank device memory: RuntimeOptions::hbm_bytes";
      return "this system lets nobody choose a NUMA node (set_mempolicy(2)): leave numa_node out";
    case ErrorCode::limit_reached:
      if (error.detail.os_error == EFBIG) return "raise the limit of file size (ulimit -f)";
      return "raise regions_max or held_bytes_max in the options";
    case ErrorCode::huge_pages_missing:
      return "sysctl vm.nr_hugepages, or HugePages::prefer";
    case ErrorCode::fd_limit:
      if (error.detail.os_error == ENFILE) return "fs.file-max: the whole system has no more descriptors";
      return "ulimit -n: each allocation takes a descriptor";
    case ErrorCode::invalid_argument:
      return "a size above 0, known rights, a NUMA node of this machine";
    default:
      return "";
  }
}

}  // namespace

Region region_of(const memory::RegionInfo& info) {
  return {.key = info.key,
          .data = info.data,
          .size = info.size,
          .window = info.window_id != 0,
          .kind = info.device->caps().kind,
          .spilled_bytes = info.spilled_bytes,
          .page_bytes = info.page_bytes,
          .numa_node = info.numa_node};
}

Result<Region> Core::register_memory(void* data, std::size_t size, const RegisterOptions& options) {
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  const auto info = regions_->add(data, size, options, memory::host_device(), loop_->port().now());
  if (!info) return fail(info.error());
  return region_of(*info);
}

/// Any thread, so not the loop's log; what was left out of an earlier period is told with the next line.
void Core::warn_of_allocation(const Error& error, std::size_t size, const AllocateOptions& options) {
  const Instant now = loop_->port().now();
  const std::scoped_lock lock(allocation_log_mutex_);
  allocation_log_.flush(now, [](log::Level level, const log::Topic& topic, std::uint64_t count) {
    log::emit(level, "{}: {} more suppressed", topic.kind, count);
  });
  if (!allocation_log_.admit(log::Level::warn, {"allocations that failed"}, now)) return;
  log::warn("rank {}: no {} bytes of {} memory: {} (needed {}, limit {}); {}", options_.rank, size, name(options.kind),
            name(error.code), error.detail.length, error.detail.limit, remedy_for(error, options));
}

Result<Region> Core::allocate(std::size_t size, const AllocateOptions& options) {
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  const auto info = regions_->allocate(size, options, loop_->port().now());
  if (info) return region_of(*info);
  const Error& error = info.error();
  warn_of_allocation(error, size, options);
  return fail(error);
}

/// A Region of another runtime may bear a key that is one of ours as well.
Result<memory::RegionInfo> Core::find_own(const Region& region) const {
  const auto info = regions_->info(region.key);
  if (!info || (info->data == region.data && info->size == region.size)) return info;
  return fail(ErrorCode::stale,
              {.rank = options_.rank, .stage = Stage::local_check, .address = region.address(), .length = region.size});
}

Result<void> Core::copy(const Region& region, std::uint64_t offset, void* in_or_out, std::uint64_t size,
                        TransferVerb verb) {
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  const auto info = find_own(region);
  if (!info) return fail(info.error());
  const ErrorDetail detail{.rank = options_.rank,
                           .stage = Stage::local_check,
                           .address = region.address() + offset,
                           .length = size,
                           .nearest_base = region.address(),
                           .nearest_length = info->size,
                           .limit = offset > info->size ? 0 : info->size - offset};
  if (offset > info->size || size > info->size - offset) return fail(ErrorCode::out_of_range, detail);
  if (size == 0) return {};
  // The other side is the program's own memory, as memcpy would take it.
  if (in_or_out == nullptr || regions_->on_device(in_or_out, size)) return fail(ErrorCode::invalid_argument, detail);
  std::byte* const inside = info->data + offset;
  const bool in = verb == TransferVerb::put;
  const auto pin = pin_local(inside, size, in ? Rights::write : Rights::read);
  if (!pin) return fail(pin.error());
  auto* const outside = static_cast<std::byte*>(in_or_out);
  if (in) {
    memory::copy(pin->device(), inside, memory::host_device(), outside, size);
  } else {
    memory::copy(memory::host_device(), outside, pin->device(), inside, size);
  }
  return {};
}

void Core::count_memory(Counters& counters) const {
  const auto hbm = regions_->hbm_usage();
  counters.hbm_bytes = hbm.used;
  counters.spilled_bytes = hbm.spilled;
  counters.held_bytes = regions_->held_bytes();
}

void Core::release_step() {
  bool waits = false;
  std::size_t budget = k_return_bytes;
  for (std::size_t i = 0; i < releases_.size();) {
    Release& release = *releases_[i];
    if (!release.retired) {
      bool clear = regions_->unpinned(release.key) || HIXL_PLANTED(region_released_pinned);
      bool untouched = true;
      for (const auto& actor : directory_->peers()) untouched = actor->revoke(release.key) && untouched;
      for (const auto& factory : factories_) untouched = untouched && factory->revoke(release.key);
      clear = (untouched || HIXL_PLANTED(region_released_early)) && clear;
      if (!clear) {
        if (loop_->now() >= release.deadline && release.done != nullptr) {
          regions_->hold(release.key);
          tell([&] { release.tell(fail(ErrorCode::held, {.rank = options_.rank, .stage = Stage::memory})); });
        }
        waits = true;
        ++i;
        continue;
      }
      release.leaving = regions_->retire(release.key, false);
      release.retired = true;
      if (const std::uint32_t window = release.leaving.id(); window != 0) {
        for (const auto& actor : directory_->peers()) actor->drop_window(window);
      }
    }
    budget -= release.leaving.give_back(budget);
    if (!release.leaving.empty()) {
      ++i;
      continue;
    }
    const std::unique_ptr<Release> done = std::move(releases_[i]);
    releases_.erase(releases_.begin() + static_cast<std::ptrdiff_t>(i));
    tell([&] { done->tell({}); });
  }
  if (!releases_.empty()) loop_->start_after(*this, waits ? Duration(k_release_step) : Duration{});
}

}  // namespace hixl::core
