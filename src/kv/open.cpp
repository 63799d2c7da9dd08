// SPDX-License-Identifier: Apache-2.0
//
// How a DataDist begins and ends.
#include <algorithm>
#include <utility>

#include "movement.hpp"
#include "state.hpp"

namespace hixl::kv {

namespace {

struct Bound {
  std::uint32_t value;
  std::uint32_t least;
  std::uint32_t most;
};

Result<void> check_options(const DataDistOptions& options) {
  const bool role = options.role >= Role::prefill && options.role <= Role::both;
  const bool time =
      options.default_timeout >= std::chrono::milliseconds(1) && options.default_timeout <= std::chrono::hours(1);
  // In the order of the struct.
  const Bound bounds[] = {{role ? 1U : 0U, 1, 1},           {time ? 1U : 0U, 1, 1},
                          {options.caches_max, 1, 4'096},   {options.tensors_max, 1, 65'536},
                          {options.links_max, 1, 4'096},    {options.leases_max, 1, 65'536},
                          {options.arrivals_max, 0, 4'096}, {options.sequences_max, 1, 16'777'216}};
  for (std::size_t i = 0; i < std::size(bounds); ++i) {
    if (bounds[i].value >= bounds[i].least && bounds[i].value <= bounds[i].most) continue;
    return fail(ErrorCode::invalid_argument, {.stage = Stage::options, .length = i, .limit = bounds[i].most});
  }
  return {};
}

}  // namespace

Result<void> DataDist::State::open() {
  if (const auto valid = check_options(options); !valid) return valid;
  const auto dump = runtime.dump_regions();
  if (!dump) return fail(dump.error());
  for (const OwnRegion& own : dump->own) {
    if (own.tag == k_directory_tag && own.state == RegionState::open) {
      return fail(error_of(ErrorCode::busy, runtime.rank()));
    }
  }
  const DirectoryCounts counts{.ranks = runtime.world_size(),
                               .caches = options.caches_max,
                               .tensors = options.tensors_max,
                               .links = options.links_max,
                               .leases = options.leases_max,
                               .arrivals = options.arrivals_max};
  directory = Directory(counts);
  const auto allocated = runtime.allocate(directory.bytes(), {.tag = k_directory_tag});
  if (!allocated) return fail(allocated.error());
  region = *allocated;
  const Bytes header = encode(counts);
  if (const auto written = runtime.copy_in(region, 0, header.data(), header.size()); !written) return written;
  keeper = std::thread([self = shared_from_this()] { self->keep(); });
  return {};
}

Result<void> DataDist::State::close(Timeout timeout) {
  if (const auto alive_here = runtime.check_access(region.data, sizeof(std::uint64_t), Rights::read);
      !alive_here && alive_here.error().code == ErrorCode::forked) {
    return alive_here;
  }
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  if (const auto waited = may_block(); !waited && waited.error().code == ErrorCode::would_deadlock) return waited;
  const std::lock_guard turn(closing_up);
  if (closed.load()) return close_result;
  std::vector<Link> all;
  {
    const std::lock_guard lock(mutex);
    closing.store(true);
    for (auto& [rank, link] : links) {
      close_gates(link);
      end_leases_of(link.index, LeaseEnd::unregistered);
      all.push_back(link);
    }
  }
  cancel_moves(k_no_rank, error_of(ErrorCode::stopped, runtime.rank()));
  for (const Link& link : all) {
    if (link.open && alive(link.rank, link.incarnation, link.directory)) tell(link, LinkSays::unlinked);
  }
  const auto empty = [&] {
    look_at_leases();
    {
      const std::lock_guard lock(mutex);
      const bool moving = std::any_of(links.begin(), links.end(), [](const auto& at) { return at.second.moving > 0; });
      if (!moves.empty() || moving || leases.size() > 0 || errands > 0 || !retries.empty()) return false;
    }
    return std::none_of(all.begin(), all.end(), [&](const Link& link) {
      return gates_in_use(link) && alive(link.rank, link.incarnation, link.directory);
    });
  };
  Result<void> result = await(*deadline, empty);
  // A runtime that has stopped has ended everything already.
  if (!result && result.error().code == ErrorCode::stopped) result = {};
  stopping.store(true);
  ring_there(own(directory.bell()));
  if (keeper.joinable()) keeper.join();
  for (const Region& at : {region, fetched}) {
    if (at.data == nullptr) continue;
    const auto gone = runtime.deregister(at, std::max<Timeout>(left(*deadline), std::chrono::milliseconds(100)));
    if (!gone && gone.error().code != ErrorCode::stopped && result) result = gone;
  }
  close_result = result;
  closed.store(true);
  return result;
}

/// The program lets go of it without close(), or that could not be waited for.
void DataDist::State::let_go() {
  closing.store(true);
  stopping.store(true);
  cancel_moves(k_no_rank, error_of(ErrorCode::stopped, runtime.rank()));
  if (keeper.joinable()) keeper.detach();  // it holds this, and ends by itself
}

}  // namespace hixl::kv
