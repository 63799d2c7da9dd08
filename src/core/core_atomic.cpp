// SPDX-License-Identifier: Apache-2.0
//
// Core's atomics: checked here, executed by the caller itself on a healthy window link, else posted.
#include "core/core.hpp"

namespace hixl::core {

namespace {

constexpr std::uint64_t k_word_bytes = sizeof(std::uint64_t);

}  // namespace

Result<void> Core::check_word(const RemoteAddress& word) const {
  if (const auto valid = check_rank(word.rank); !valid) return valid;
  if (word.address % k_word_bytes == 0) return {};
  return fail(ErrorCode::unaligned, {.rank = word.rank,
                                     .stage = Stage::remote_check,
                                     .address = word.address,
                                     .length = k_word_bytes,
                                     .limit = k_word_bytes});
}

Result<Request> Core::post_atomic(const RemoteAddress& word, const AtomicCall& atomic, const OpOptions& options) {
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  const auto deadline = deadline_of(options.timeout);
  if (!deadline) return fail(deadline.error());
  if (const auto valid = check_word(word); !valid) return fail(valid.error());
  if (const auto usable = check_links(options.links, word.rank); !usable) return fail(usable.error());
  const auto view = resolve(word, k_word_bytes, Rights::atomic);
  if (!view) return fail(view.error());
  if (word.rank == options_.rank) {
    const auto own = regions_->info(view->key);
    if (own && !own->device->caps().atomic_capable) {
      return fail(ErrorCode::unsupported,
                  {.rank = word.rank, .stage = Stage::remote_check, .address = word.address, .length = k_word_bytes});
    }
  }
  const auto acquired = requests_->acquire();
  if (!acquired) return fail(acquired.error());
  peer::Operation& operation = operations_[acquired->slot];
  operation.kind = peer::Operation::Kind::atomic;
  operation.rank = word.rank;
  operation.deadline = *deadline;
  operation.links = options.links;
  operation.atomic.verb = atomic.verb;
  operation.atomic.region = view->key;
  operation.atomic.token = view->token;
  operation.atomic.offset = view->offset;
  operation.atomic.value = atomic.value;
  operation.atomic.terms.expected = atomic.expected;
  return submit(operation, *acquired, options, {OperationVerb::atomic, false, k_word_bytes});
}

Result<std::uint64_t> Core::atomic_sync(const RemoteAddress& word, const AtomicCall& atomic, Timeout timeout) {
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  if (timeout < Timeout{} && timeout != k_default_timeout) {
    return fail(ErrorCode::invalid_argument, {.rank = word.rank, .stage = Stage::options});
  }
  if (const auto valid = check_word(word); !valid) return fail(valid.error());
  // Without any time it is over before it began, whichever way it would have taken.
  if (timeout != Timeout{}) {
    if (auto done = try_atomic_lane(word, atomic)) return *done;
  }
  Result<std::uint64_t> before = 0;
  const auto ended = post_and_wait(
      timeout, [&](Timeout left) { return post_atomic(word, atomic, OpOptions{.timeout = left}); },
      [&before](Request& request) { before = request.value(); });
  if (!ended) return fail(ended.error());
  return before;
}

/// The express lane for one word: executed by this thread on the mapped word, so it is done or not done when this
/// returns. Nothing: take the ordinary way.
std::optional<Result<std::uint64_t>> Core::try_atomic_lane(const RemoteAddress& word, const AtomicCall& atomic) {
  if (word.rank == options_.rank) return std::nullopt;
  memory::PeerMemory* memory = directory_->memory(word.rank);
  if (memory == nullptr || !memory->gate.enter()) return std::nullopt;
  struct Leave {
    memory::LaneGate& gate;
    ~Leave() { gate.leave(); }
  } leave{memory->gate};

  const auto view = memory->remotes.resolve(word, k_word_bytes, Rights::atomic);
  if (!view) {
    const auto named = resolve(word, k_word_bytes, Rights::atomic);
    return named ? std::nullopt : std::optional(Result<std::uint64_t>(fail(named.error())));
  }
  if (view->mapped == nullptr) return std::nullopt;
  std::uint64_t before = 0;
  const auto outcome = memory->gate.lane().run(view->key, 0, 0, [&] {
    before = links::apply_atomic(links::atomic_op(atomic.verb), memory::host_device(), view->mapped, atomic.value,
                                 atomic.expected);
  });
  if (outcome == memory::Lane::Outcome::done) {
    memory->gate.bell().ring();
    return Result<std::uint64_t>(before);
  }
  if (outcome != memory::Lane::Outcome::stale) return std::nullopt;
  return Result<std::uint64_t>(
      fail(ErrorCode::stale,
           {.rank = word.rank, .stage = Stage::remote_check, .address = word.address, .length = k_word_bytes}));
}

}  // namespace hixl::core
