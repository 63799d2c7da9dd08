// SPDX-License-Identifier: Apache-2.0
//
// How a push or pull begins, and how it leaves the gate at the other rank.
#include <algorithm>
#include <utility>

#include "movement.hpp"
#include "state.hpp"

namespace hixl::kv {

namespace {

/// Of the messages by which a gate is left.
constexpr std::chrono::seconds k_leave_time{5};

bool may(Role role, Role needed) { return (static_cast<std::uint8_t>(role) & static_cast<std::uint8_t>(needed)) != 0; }

/// Not to be tried again: there is no runtime, or it may have been executed. In the latter case the word may count a
/// user who is not there, until it can be read: once too often would be worse.
bool final(const Error& error) {
  return error.kind() == ErrorKind::outcome_unknown || error.code == ErrorCode::stopped ||
         error.code == ErrorCode::forked;
}

}  // namespace

Result<GateThere> DataDist::State::gate_for(const Call& call, const Link& link) const {
  const RemoteCache::State& remote = *call.remote.state();
  const auto at = [&](std::uint64_t offset) {
    RemoteAddress address = link.directory;
    address.address += offset;
    return address;
  };
  GateThere gate{.at = {},
                 .bell = at(link.there.bell()),
                 .release = {},
                 .generation = static_cast<std::uint32_t>(remote.version) & gate::k_generation_mask,
                 .access = call.verb == TransferVerb::put ? Access::push : Access::pull,
                 .lease = false};
  const LeaseTicket* ticket = call.options.ticket;
  if (ticket == nullptr) {
    gate.at = at(link.there.gate(link.index_there, remote.slot));
    return gate;
  }
  const bool ours = ticket->owner == remote.rank && ticket->holder == own_rank && ticket->access == gate.access &&
                    ticket->gate < link.there.counts().leases && ticket->arrival <= link.there.counts().arrivals;
  if (!ours) return fail(error_of(ErrorCode::invalid_argument, remote.rank));
  const bool now = is_from(*ticket, remote.directory) && ticket->version == remote.version;
  if (!now) return fail(error_of(ErrorCode::lease_ended, remote.rank));
  gate.at = at(link.there.gate(link.index_there, link.there.counts().caches + ticket->gate));
  gate.release = at(link.there.release(link.index_there, ticket->gate));
  gate.generation = ticket->gate_generation;
  gate.lease = true;
  return gate;
}

Result<Transfer> DataDist::State::move(const Call& call) {
  if (call.remote.empty()) return fail(error_of(ErrorCode::invalid_argument, k_no_rank));
  if (call.options.release && call.options.ticket == nullptr) {
    return fail(error_of(ErrorCode::invalid_argument, call.remote.rank()));
  }
  const auto deadline = deadline_of(call.options.timeout);
  if (!deadline) return fail(deadline.error());
  const bool put = call.verb == TransferVerb::put;
  const auto& remote = call.remote.state();
  std::shared_ptr<LocalCache> local;
  {
    const std::lock_guard lock(mutex);
    local = cache(call.local);
  }
  if (!local) return fail(error_of(ErrorCode::cache_stale, own_rank));
  auto plan = put ? BytePlan::make(local->desc, remote->desc, call.slice, true)
                  : BytePlan::make(remote->desc, local->desc, call.slice, false);
  if (!plan) {
    Error error = plan.error();
    error.detail.rank = remote->rank;
    return fail(error);
  }
  if (call.options.sequence != k_no_sequence && plan->tokens().first != 0) {
    // A mark says "all before": a gap would be taken for moved.
    return fail(ErrorCode::invalid_argument,
                {.rank = remote->rank, .stage = Stage::kv, .length = plan->tokens().first});
  }
  Transfer::State::Parts parts{.home = shared_from_this(),
                               .verb = call.verb,
                               .plan = std::move(*plan),
                               .local = local,
                               .remote = remote,
                               .gate = {},
                               .arrivals = {},
                               .arrivals_first = layers_of(remote->desc).first,
                               .mark = {},
                               .mark_tokens = 0,
                               .options = call.options,
                               .deadline = *deadline};
  parts.options.ticket = nullptr;
  std::shared_ptr<Transfer::State> transfer;
  {
    const std::lock_guard lock(mutex);
    if (closing.load()) return fail(error_of(ErrorCode::stopped, own_rank));
    if (!cache(call.local)) return fail(error_of(ErrorCode::cache_stale, own_rank));
    if (!may(role_now, put ? Role::prefill : Role::decode)) return fail(error_of(ErrorCode::wrong_role, own_rank));
    const auto found = links.find(remote->rank);
    if (found == links.end() || !found->second.linked) return fail(error_of(ErrorCode::not_linked, remote->rank));
    Link& link = found->second;
    if (!same_life(link.directory, remote->directory)) return fail(error_of(ErrorCode::stale, remote->rank));
    auto gate = gate_for(call, link);
    if (!gate) return fail(gate.error());
    parts.gate = *gate;
    if (const LeaseTicket* ticket = call.options.ticket; ticket != nullptr && ticket->arrival != 0 && put) {
      RemoteAddress arrivals = link.directory;
      arrivals.address += link.there.arrival(ticket->arrival - 1, 0);
      parts.arrivals = arrivals;
    }
    if (call.options.sequence != k_no_sequence) {
      parts.mark = MarkKey{.sequence = call.options.sequence,
                           .rank = remote->rank,
                           .incarnation = remote->directory.incarnation,
                           .remote_version = remote->version,
                           .local_version = call.local.version,
                           .verb = call.verb,
                           .layers = parts.plan.layers(),
                           .heads = parts.plan.heads(),
                           .target_layer = parts.plan.target_layer()};
      const LeaseTicket* const ticket = put ? call.options.ticket : nullptr;  // else they are our own
      const auto first = marks.begin(*parts.mark, {.blocks = parts.plan.target_blocks(),
                                                   .block_tokens = parts.plan.target_block_tokens(),
                                                   .lease = ticket != nullptr ? ticket->lease.generation : 0});
      if (!first) return fail(error_of(ErrorCode::busy, remote->rank));
      parts.mark_tokens = parts.plan.tokens().last;
      parts.plan.begin_at(*first);
    }
    transfer = std::make_shared<Transfer::State>(std::move(parts));
    local->uses += 1;
    link.moving += 1;
    moves.insert(transfer);
  }
  wake_keeper();
  const auto begun = transfer->begin();
  if (begun) return Transfer(std::move(transfer));
  transfer->never_began();
  return fail(begun.error());
}

std::shared_ptr<Transfer::State> DataDist::State::take_out(Transfer::State* transfer) {
  std::shared_ptr<Transfer::State> self = transfer->shared_from_this();
  const std::lock_guard lock(mutex);
  moves.erase(self);
  return self;
}

Error DataDist::State::refused(const GateThere& gate, std::uint64_t word) const {
  const Rank rank = gate.at.rank;
  switch (gate::ask(word, gate.generation, gate.access)) {
    case gate::Answer::not_allowed:
      return error_of(ErrorCode::wrong_role, rank);
    case gate::Answer::full:
      return error_of(ErrorCode::busy, rank);
    case gate::Answer::admitted:
    case gate::Answer::over:
      break;
  }
  if (rank != own_rank && said_by(rank).says == LinkSays::unlinked) return error_of(ErrorCode::not_linked, rank);
  return error_of(gate.lease ? ErrorCode::lease_ended : ErrorCode::cache_stale, rank);
}

namespace {

struct Leaving {
  std::shared_ptr<DataDist::State> home;
  GateThere gate;
  bool release = false;
};

void on_left(void* context, const Completion& completion) {
  std::unique_ptr<Leaving> leaving(static_cast<Leaving*>(context));
  DataDist::State& home = *leaving->home;
  const GateThere& gate = leaving->gate;
  if (completion.result) {
    home.end_step(gate, {.inside = GateBook::k_left});
  } else if (final(completion.result.error())) {
    home.end_step(gate, {.inside = GateBook::k_left, .doubtful = true});
  } else {
    home.end_step(gate, {});
    home.leave_later(gate, leaving->release);  // not executed, and never will be: again, when that rank can be reached
  }
  if (completion.result) {
    if (leaving->release) {
      home.give_back(gate);
    } else if ((completion.value & gate::k_closing) != 0) {
      home.ring_there(gate.bell);  // its owner waits for this
    }
  }
  home.left_gate(gate.at.rank);
}

}  // namespace

void DataDist::State::leave(const GateThere& gate, bool release) {
  post_or_retry({.post = [this, gate, release]() -> Result<void> {
                   auto leaving =
                       std::make_unique<Leaving>(Leaving{.home = shared_from_this(), .gate = gate, .release = release});
                   const std::uint64_t away = std::uint64_t{0} - gate::one(gate.access);
                   begin_step(gate);
                   const auto posted = runtime.atomic_add(
                       gate.at, away, {.timeout = k_leave_time, .callback = {on_left, leaving.get()}});
                   if (!posted) {
                     end_step(gate, {});
                     return fail(posted.error());
                   }
                   static_cast<void>(leaving.release());
                   return {};
                 },
                 .lost =
                     [this, gate, release](const Error& why) {
                       if (!final(why)) leave_later(gate, release);
                       left_gate(gate.at.rank);
                     }});
}

void DataDist::State::leave_later(const GateThere& gate, bool release) {
  const std::lock_guard lock(mutex);
  returns.add(gate, release);
}

void DataDist::State::return_to_gates() {
  {
    const std::lock_guard lock(mutex);
    if (returns.empty() && !gates_there.doubtful()) return;
  }
  const std::vector<LinkInfo> rows = runtime.links();
  const auto dump = runtime.dump_regions();
  if (!dump) return;
  const auto look = [&](const GateThere& gate) {
    const auto ended = [&](const PeerRegion& seen) {
      return seen.rank == gate.at.rank && seen.key == gate.at.region && seen.incarnation == gate.at.incarnation &&
             seen.retired;
    };
    if (std::any_of(dump->peers.begin(), dump->peers.end(), ended)) return RankLook::over;
    if (alive(gate.at)) return RankLook::reached;
    const auto of_that_life = [&](const LinkInfo& row) {
      return row.rank == gate.at.rank && row.incarnation == gate.at.incarnation;
    };
    return std::any_of(rows.begin(), rows.end(), of_that_life) ? RankLook::away : RankLook::over;
  };
  std::vector<Return> ready;
  std::vector<GateBook::Question> questions;
  {
    const std::lock_guard lock(mutex);
    questions = gates_there.ask(look);
    ready = returns.step(look);
    for (const Return& back : ready) links.at(back.gate.at.rank).moving += 1;
  }
  for (const Return& back : ready) leave(back.gate, back.release);
  for (const GateBook::Question& question : questions) ask_gate(question);
}

void DataDist::State::left_gate(Rank rank) {
  ring();  // first, as in end_errand()
  const std::lock_guard lock(mutex);
  if (const auto link = links.find(rank); link != links.end()) link->second.moving -= 1;
}

/// The word of the lease says so for ever; its owner is rung, and looks now and then besides.
void DataDist::State::give_back(const GateThere& gate) {
  struct Given {
    std::shared_ptr<State> home;
    RemoteAddress bell;
  };
  begin_errand();
  post_or_retry({.post = [this, gate]() -> Result<void> {
                   auto given = std::make_unique<Given>(Given{shared_from_this(), gate.bell});
                   const auto told = [](void* context, const Completion&) {
                     const std::unique_ptr<Given> at(static_cast<Given*>(context));
                     at->home->ring_there(at->bell);
                     at->home->end_errand();
                   };
                   const auto posted = runtime.put_with_signal(
                       region.data, gate.release, 0, {.word = gate.release, .value = gate.generation},
                       {.timeout = k_leave_time, .callback = {told, given.get()}});
                   if (!posted) return fail(posted.error());
                   static_cast<void>(given.release());
                   return {};
                 },
                 .lost = [this](const Error&) { end_errand(); }});
}

}  // namespace hixl::kv
