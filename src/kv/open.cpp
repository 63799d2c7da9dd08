// SPDX-License-Identifier: Apache-2.0
//
// How a DataDist begins and ends.
#include <algorithm>
#include <system_error>
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
      return fail(error_of(ErrorCode::busy, own_rank));
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
  Result<void> begun = runtime.copy_in(region, 0, header.data(), header.size());
  if (begun) begun = start_keeper();
  // Nobody has been told of it.
  if (!begun) static_cast<void>(runtime.deregister(region, options.default_timeout));
  return begun;
}

Result<void> DataDist::State::start_keeper() {
  try {
    keeper = std::thread([home = shared_from_this()] { home->keep(); });
    return {};
  } catch (const std::system_error& error) {
    return fail(ErrorCode::limit_reached, {.stage = Stage::kv, .os_error = error.code().value()});
  }
}

bool DataDist::State::at_rest() const {
  const bool moving = std::any_of(links.begin(), links.end(), [](const auto& at) { return at.second.moving > 0; });
  return moves.empty() && !moving;
}

Result<void> DataDist::State::close(Timeout timeout) {
  if (closed.load()) return close_result;  // there may be no runtime any more
  if (const auto alive_here = runtime.check_access(region.data, sizeof(std::uint64_t), Rights::read);
      !alive_here && alive_here.error().code == ErrorCode::forked) {
    return alive_here;
  }
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  if (const auto waited = may_block(); !waited && waited.error().code == ErrorCode::would_deadlock) return waited;
  const std::lock_guard turn(closing_up);
  if (closed.load()) return close_result;
  passes.shut();
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
  cancel_moves(k_no_rank, error_of(ErrorCode::stopped, own_rank));
  for (const Link& link : all) {
    if (link.open && alive(link.directory)) tell(link, LinkSays::unlinked);
  }
  const auto empty = [&] {
    look_at_leases();
    {
      const std::lock_guard lock(mutex);
      if (!at_rest() || errands > 0 || leases.size() > 0 || !retries.empty()) return false;
      if (returns.any([&](const Return& at) { return alive(at.gate.at); })) return false;
      if (gates_there.any_doubtful([&](const GateThere& gate) { return alive(gate.at); })) return false;
    }
    return std::none_of(all.begin(), all.end(),
                        [&](const Link& link) { return gates_in_use(link) && alive(link.directory); });
  };
  Result<void> result = watch(*deadline, stopping, empty);
  // A runtime that has stopped has ended everything already.
  if (!result && result.error().code == ErrorCode::stopped) result = {};
  stopping.store(true);
  ring_there(own(directory.bell()));
  if (keeper.joinable()) keeper.join();
  if (const auto left_open = take_down(*deadline); !left_open && result) result = left_open;
  close_result = result;
  closed.store(true);
  return result;
}

/// Memory that another thread, or an end that comes later, may still look at stays with the runtime.
Result<void> DataDist::State::take_down(Instant deadline) {
  // Who waits for anything looks up several times in this.
  constexpr std::chrono::milliseconds k_way_out{200};
  const bool alone = passes.wait_until(std::max(deadline, now() + k_way_out));
  bool at_rest_now = false;
  {
    const std::lock_guard lock(mutex);
    at_rest_now = at_rest();
  }
  if (!alone || !at_rest_now) return fail(error_of(ErrorCode::deadline_exceeded, own_rank));
  Result<void> result;
  buffers.push_back(region);
  for (const Region& at : buffers) {
    const auto gone = runtime.deregister(at, std::max<Timeout>(left(deadline), std::chrono::milliseconds(100)));
    if (!gone && gone.error().code != ErrorCode::stopped && result) result = gone;
  }
  return result;
}

/// The program lets go of it without close(), or that could not be waited for.
void DataDist::State::let_go() {
  passes.shut();
  {
    const std::lock_guard lock(mutex);
    closing.store(true);
  }
  cancel_moves(k_no_rank, error_of(ErrorCode::stopped, own_rank));
  stopping.store(true);
  ring_there(own(directory.bell()));
  if (keeper.joinable()) keeper.detach();  // it holds this, and ends by itself
}

}  // namespace hixl::kv
