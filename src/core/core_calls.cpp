// SPDX-License-Identifier: Apache-2.0
//
// Core's calls that run on the loop: exchange, deregister, barrier, looking inside.
#include <algorithm>
#include <functional>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "core/core.hpp"
#include "core/function_call.hpp"
#include "core/release.hpp"
#include "peer/remote_region.hpp"

namespace hixl::core {

// ---- memory ----

Result<void> Core::deregister(const Region& region, Timeout timeout, void (*done)(void*, const Result<void>&),
                              void* context) {
  if (forked()) return admit();
  if (const auto valid = check_done(done); !valid) return valid;
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  const auto end = [this, done, context](const Result<void>& result) { tell([&] { done(context, result); }); };
  return call(make_call(
      [this, region, deadline = *deadline, done, context, end] {
        const auto own = find_own(region);
        const auto closed = own ? regions_->close(region.key) : Result<bool>(fail(own.error()));
        if (!closed || !*closed) {
          end(closed ? Result<void>() : Result<void>(fail(closed.error())));
          return;
        }
        auto release = std::make_unique<Release>();
        release->key = region.key;
        release->deadline = deadline;
        release->done = done;
        release->context = context;
        releases_.push_back(std::move(release));
        self_->end_operations_on(region.key.id);
        for (const auto& actor : directory_->peers()) actor->end_operations_on(region.key.id);
        loop_->start_after(*this, Duration{});
      },
      [end] { end(fail(ErrorCode::stopped, {.stage = Stage::shutdown})); }));
}

Result<std::uint64_t> Core::wait_signal(const void* word, Compare compare, std::uint64_t value, Timeout timeout) {
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  const auto address = reinterpret_cast<std::uint64_t>(word);
  if (address % sizeof(std::uint64_t) != 0) {
    return fail(ErrorCode::unaligned,
                {.stage = Stage::local_check, .address = address, .length = sizeof(std::uint64_t)});
  }
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  auto pin = pin_local(word, sizeof(std::uint64_t), Rights::read);
  if (!pin) return fail(pin.error());
  if (!pin->device().caps().atomic_capable) {
    return fail(ErrorCode::unsupported,
                {.stage = Stage::local_check, .address = address, .length = sizeof(std::uint64_t)});
  }
  const auto* bytes = static_cast<const std::byte*>(word);
  if (on_loop_thread()) {
    const std::uint64_t seen = memory::load_word(pin->device(), bytes);
    if (memory::holds(seen, compare, value)) return seen;
    return fail(ErrorCode::would_deadlock);
  }
  if (hand() != nullptr && hand()->drives()) return turn_for_signal(*pin, bytes, compare, value, left(*deadline));
  const Duration spin = options_.poll == PollMode::event ? Duration{} : Duration(std::chrono::microseconds(2));
  return signals_->wait(pin->device(), bytes, compare, value, left(*deadline), spin);
}

void Core::give_way() noexcept {
  if (hand() != nullptr && hand()->drives()) {
    static_cast<void>(hand()->poll());
  } else {
    std::this_thread::yield();
  }
}

/// The word may be changed by a loop turn (tcp), or by a peer straight in the window, of which no descriptor tells.
Result<std::uint64_t> Core::turn_for_signal(const memory::Pin& pin, const std::byte* word, Compare compare,
                                            std::uint64_t value, Timeout timeout) {
  std::uint64_t seen = 0;
  const auto over = [&] {
    seen = memory::load_word(pin.device(), word);
    return memory::holds(seen, compare, value) || signals_->closed();
  };
  // A turn costs a few microseconds: looking once a millisecond takes well under 1 % of a core.
  constexpr Timeout k_look = std::chrono::milliseconds(1);
  // What is left to do when it was over, when the time was, and when another thread drives now: look once more, and
  // sleep there.
  const Instant end = loop_->port().now() + timeout;
  static_cast<void>(hand()->wait(over, runtime::WaitLimit(timeout), k_look));
  return signals_->wait(pin.device(), word, compare, value, left(end), Duration{});
}

// ---- exchange ----

namespace {

/// Collects the answers of one exchange; the last one ends it.
struct ExchangeCall {
  std::vector<PeerAddresses> answers;
  std::size_t missing = 0;
  std::function<void(std::vector<PeerAddresses>&&)> end;
  struct Place {
    ExchangeCall* call;
    std::size_t index;
  };
  std::vector<Place> places;

  void one(std::size_t index, PeerAddresses&& answer) {
    answers[index] = std::move(answer);
    finish_one();
  }
  void finish_one() {
    if (--missing > 0) return;
    end(std::move(answers));
    delete this;
  }
};

}  // namespace

wire::RegionDescriptor Core::descriptor_of(const memory::RegionInfo& info) {
  return {.key = info.key,
          .token = info.token,
          .base = reinterpret_cast<std::uint64_t>(info.data),
          .length = info.size,
          .rights = info.rights,
          .tag = info.tag,
          .window_id = info.window_id,
          .window_offset = info.window_id != 0 ? info.window_offset : 0,
          .kind = info.device->caps().kind};
}

Result<void> Core::exchange(std::span<const Region> mine, std::span<const Rank> with, Timeout timeout,
                            void (*done)(void*, std::vector<PeerAddresses>&&), void* context,
                            const peer::ExchangeStream& stream) {
  if (const auto valid = check_done(done); !valid) return valid;
  if (const auto admitted = admit(); !admitted) return admitted;
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  auto collect = std::make_unique<ExchangeCall>();
  collect->end = [this, done, context](std::vector<PeerAddresses>&& answers) {
    tell([&] { done(context, std::move(answers)); });
  };
  collect->answers.resize(with.size());
  collect->places.resize(with.size());
  collect->missing = with.size() + 1;  // one more, so that the end comes after the start
  for (std::size_t i = 0; i < with.size(); ++i) {
    collect->answers[i].rank = with[i];
    collect->places[i] = {collect.get(), i};
  }
  const auto refuse_all = [collect = collect.get()](const Error& error) {
    for (PeerAddresses& answer : collect->answers) answer.result = fail(error);
    collect->missing = 1;
    collect->finish_one();
  };
  const auto begun = call(make_call(
      [this, collect = collect.get(), regions = std::vector<Region>(mine.begin(), mine.end()), deadline = *deadline,
       stream, refuse_all] {
        if (stop_stage_ >= StopStage::closing) {
          refuse_all(Error(ErrorCode::stopped, {.stage = Stage::shutdown}));
          return;
        }
        std::vector<wire::RegionDescriptor> descriptors;
        std::vector<RemoteRegion> own;
        for (const Region& region : regions) {
          const auto info = find_own(region);
          if (!info) {
            refuse_all(info.error());
            return;
          }
          descriptors.push_back(descriptor_of(*info));
          own.push_back(peer::remote_region(descriptors.back(), options_.rank, services_->incarnation));
        }
        if (stream.note == wire::ExchangeNote::question) {  // what this rank would answer itself
          for (const auto& [id, region] : services_->offered_now()) {
            own.push_back(peer::remote_region(region, options_.rank, services_->incarnation));
          }
        }
        for (ExchangeCall::Place& place : collect->places) {
          PeerAddresses& answer = collect->answers[place.index];
          if (const auto valid = check_rank(answer.rank); !valid) {
            answer.result = fail(valid.error());
            collect->finish_one();
          } else if (answer.rank == options_.rank) {
            answer.regions = own;
            collect->finish_one();
          } else if (peer::PeerActor* actor = directory_->peer(answer.rank); actor != nullptr) {
            actor->exchange(descriptors, {.deadline = deadline,
                                          .done =
                                              [](void* at, PeerAddresses&& got) {
                                                auto& here = *static_cast<ExchangeCall::Place*>(at);
                                                here.call->one(here.index, std::move(got));
                                              },
                                          .context = &place,
                                          .stream = stream});
          } else {
            answer.result = fail(ErrorCode::limit_reached, {.rank = answer.rank, .limit = options_.peers_max});
            collect->finish_one();
          }
        }
        collect->finish_one();
      },
      [refuse_all] { refuse_all(Error(ErrorCode::stopped, {.stage = Stage::shutdown})); }));
  if (begun) static_cast<void>(collect.release());  // by its last answer
  return begun;
}

// ---- barrier ----

Result<void> Core::barrier(std::span<const Rank> ranks, Timeout timeout, void (*done)(void*, const Result<void>&),
                           void* context) {
  if (const auto valid = check_done(done); !valid) return valid;
  if (const auto admitted = admit(); !admitted) return admitted;
  std::vector<Rank> members(ranks.begin(), ranks.end());
  if (members.empty()) {
    members.resize(options_.world_size);
    for (Rank rank = 0; rank < options_.world_size; ++rank) members[rank] = rank;
  }
  for (const Rank rank : members) {
    if (const auto valid = check_rank(rank); !valid) return valid;
  }
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  using Entered = Teller<Result<void>>;
  auto entered = std::make_unique<Entered>(Entered{*this, done, context});
  const Error stopped(ErrorCode::stopped, {.stage = Stage::barrier});
  const auto begun = call(make_call(
      [this, members = std::move(members), deadline = *deadline, entered = entered.get(), stopped] {
        if (stop_stage_ >= StopStage::closing) return Entered::end(entered, fail(stopped));
        barrier_->enter({.ranks = members, .deadline = deadline, .done = Entered::end, .context = entered});
      },
      [entered = entered.get(), stopped] { Entered::end(entered, fail(stopped)); }));
  if (begun) static_cast<void>(entered.release());  // by its end
  return begun;
}

// ---- looking inside ----

void Core::count_links(Counters& counters) {
  for (const auto& actor : directory_->peers()) actor->count(counters);
}

/// On the loop, or after its end.
Counters Core::look() {
  Counters now = last_counters_;
  if (stop_stage_ != StopStage::ended) {
    now = counters_;
    count_links(now);
    now.failed_unseen = requests_->failed_unseen();
    count_memory(now);
  }
  now.callback_errors = callback_errors_.load(std::memory_order_relaxed);
  return now;
}

Counters Core::counters() {
  if (forked()) return {};
  if (on_loop_thread()) return look();
  Waiting<Counters> waiting;
  const auto answer = [this, &waiting] { waiting.give(look()); };
  if (!call_to_the_end(make_call(answer, answer))) return look();
  return waiting.wait(*loop_->thread());
}

std::vector<LinkInfo> Core::links() {
  if (forked()) return {};
  const auto look = [this] {
    std::vector<LinkInfo> links;
    if (stop_stage_ != StopStage::ended) {
      for (const auto& actor : directory_->peers()) actor->describe(links);
    }
    return links;
  };
  if (on_loop_thread()) return look();
  Waiting<std::vector<LinkInfo>> waiting;
  const auto answer = [&look, &waiting] { waiting.give(look()); };
  if (!call_to_the_end(make_call(answer, answer))) return {};
  return waiting.wait(*loop_->thread());
}

}  // namespace hixl::core
