// SPDX-License-Identifier: Apache-2.0
//
// The cluster's workload. An operation owns the slots that it writes; when it has ended, nobody may change them any
// more, and they are filled anew or written by the next operation at once, so that late writes show.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "cluster_parts.hpp"

namespace hixl::sim {

namespace {

constexpr std::size_t k_parts_max = 5, k_small_bytes = 100;
constexpr std::uint32_t k_no_time_per_mille = 50;  // of hurried operations
/// Longer than a run: such an operation ends because everything works again.
constexpr Duration k_patience = std::chrono::minutes(50);
/// A repeat of an exchange takes 200 ms; nothing in a healthy network takes longer.
constexpr Duration k_exchange_patience = std::chrono::seconds(1);

}  // namespace

bool Cluster::posts(Life& life) const {
  return !life.dead && !life.leaving && !life.turning && world_.now() >= life.awake_at && life.joined;
}

void Cluster::turn_workload(Load load) {
  if (!open_.empty() && random_.chance(shape_.cancel_per_mille)) cancel(*open_[random_.below(open_.size())]);
  for (Life* life : ranks_) {
    if (life == nullptr || !posts(*life)) continue;
    for (Rank to = 0; to < shape_.size; ++to) {
      if (to == life->rank) continue;
      const Knowledge& known = life->pairs[to];
      if (!known.region || waits_for(to, life->rank)) want_addresses(*life, to);
      if (!known.region) continue;
      if (random_.chance(shape_.misuse_per_mille)) misuse(*life, to);
      if (load == Load::missing_pairs) {
        if (known.successes_since_heal == 0) post(*life, to, k_probe_source);
      } else if (open_.size() < shape_.open_max && random_.chance(shape_.post_per_mille)) {
        post(*life, to, std::nullopt);
        if (random_.chance(shape_.flush_per_mille)) post_order(*life, to);
        if (random_.chance(shape_.atomic_per_mille)) post_atomic(*life, to);
      }
    }
  }
}

// ---- addresses ----

/// One side's exchange may end well and the other's not; programs then have to agree on another one.
bool Cluster::waits_for(Rank waiting, Rank other) const {
  if (ranks_[waiting] == nullptr) return false;
  const Knowledge& known = ranks_[waiting]->pairs[other];
  return known.exchanging && world_.now() > known.exchanging_since + k_exchange_patience;
}

void Cluster::want_addresses(Life& life, Rank with) {
  if (std::exchange(life.pairs[with].exchanging, true)) return;
  life.pairs[with].exchanging_since = world_.now();
  const Rank ranks[] = {with};
  const auto asked = life.core->exchange(
      std::span(&life.region, 1), ranks, std::chrono::seconds(5),
      [](void* context, std::vector<PeerAddresses>&& answers) {
        const std::unique_ptr<ExchangeNote> note(static_cast<ExchangeNote*>(context));
        note->cluster->on_addresses(*note, std::move(answers.front()));
      },
      new ExchangeNote{this, &life, with});
  if (!asked) violate("S14", fmt::format("an exchange was refused: {}", asked.error().message()));
}

void Cluster::on_addresses(const ExchangeNote& note, PeerAddresses&& answer) {
  Life& life = *note.life;
  if (life.dead || life.closing) return;
  Knowledge& known = life.pairs[note.with];
  known.exchanging = false;
  if (!answer.result) {
    known.last_error = answer.result.error();
    return;
  }
  if (answer.regions.size() != 1 || answer.regions.front().length != life.memory->size()) {
    violate("S3", fmt::format("rank {} learned something else than rank {} published", life.rank, note.with));
    return;
  }
  known.region = answer.regions.front();
  known.memory = memories_[known.region->incarnation];
}

/// Both programs agree to exchange anew.
void Cluster::forget_addresses(Rank a, Rank b) {
  if (ranks_[a] != nullptr) ranks_[a]->pairs[b].region.reset();
  if (ranks_[b] != nullptr) ranks_[b]->pairs[a].region.reset();
}

// ---- posting ----

/// One more range for an operation; false when the slots drawn are taken.
bool Cluster::add_part(Operation& operation, std::optional<std::size_t> remote_slot) {
  Part part;
  // A probe is a get, since its own memory is never quarantined.
  const bool probe = remote_slot == k_probe_source;
  part.get = probe || random_.chance(shape_.get_per_mille);
  part.local_slot = probe ? k_probe_target : random_.below(k_load_slots);
  part.remote_slot = remote_slot ? *remote_slot : random_.below(k_load_slots);
  part.size = random_.chance(30)
                  ? 0
                  : random_.between(1, random_.chance(shape_.small_per_mille) ? k_small_bytes : k_slot_bytes);
  part.local_offset = random_.below(k_slot_bytes - part.size + 1);
  part.remote_offset = random_.below(k_slot_bytes - part.size + 1);
  Memory& here = *operation.life->memory;
  Memory& there = *operation.remote;
  Memory& changed = operation.changed(part);
  const std::size_t changed_slot = operation.changed_slot(part);
  Memory& source = part.get ? there : here;
  const std::size_t source_slot = part.get ? part.remote_slot : part.local_slot;
  part.copied = !operation.batch && !part.get && part.size <= operation.life->inline_max;
  if (changed.use(changed_slot) != Memory::Use::quiet || !source.readable(source_slot)) return false;
  // A late write that came since the last round would be lost in what follows.
  complain("S4", changed, changed_slot, part.get ? operation.life->rank : operation.to);
  const std::byte* from =
      part.get ? there.slot(part.remote_slot) + part.remote_offset : here.slot(part.local_slot) + part.local_offset;
  part.bytes = std::make_shared<const std::vector<std::byte>>(from, from + part.size);
  operation.signal_after = changed.settled_signal(changed_slot);
  if (!operation.batch && !part.get) draw_signal(operation);
  changed.begin_write(changed_slot, operation.changed_offset(part), part.bytes, operation.signal_after);
  if (!part.copied) source.begin_read(source_slot);
  operation.parts.push_back(std::move(part));
  return true;
}

void Cluster::draw_signal(Operation& operation) {
  operation.signalled = random_.chance(shape_.signal_per_mille);
  if (!operation.signalled) return;
  operation.signal_op = random_.chance(500) ? SignalOp::add : SignalOp::set;
  operation.signal_value = unique();  // no value comes twice
  operation.signal_after = operation.signal_value + (operation.signal_op == SignalOp::add ? operation.signal_after : 0);
}

void Cluster::post(Life& life, Rank to, std::optional<std::size_t> remote_slot) {
  const Knowledge& known = life.pairs[to];
  auto made = std::make_unique<Operation>();
  Operation& operation = *made;
  operation.cluster = this;
  operation.life = &life;
  operation.number = operations_.size() + 1;
  operation.to = to;
  operation.remote = known.memory;
  operation.region = *known.region;
  operation.behind = known.fence;
  operation.batch = random_.chance(shape_.batch_per_mille);
  const std::size_t parts = operation.batch ? random_.between(1, k_parts_max) : 1;
  for (std::size_t i = 0; i < parts; ++i) {
    static_cast<void>(add_part(operation, i == 0 ? remote_slot : std::nullopt));
  }
  if (operation.parts.empty()) return;
  if (const auto posted = submit(operation); !posted) return on_refused_post(operation, posted.error());
  open_.push_back(&operation);
  operations_.push_back(std::move(made));
  for (const Part& part : operation.parts) {
    say("{}: rank {} {} rank {}: slot {}+{}, there {}+{}, {} bytes{}{}", operation.number, life.rank,
        part.get ? "gets from" : "puts to", to, part.local_slot, part.local_offset, part.remote_slot,
        part.remote_offset, part.size, operation.batch ? ", in a batch" : "",
        operation.signalled ? fmt::format(", signal {}", operation.signal_after) : std::string());
  }
  // A source that was copied in the call is free.
  const Part& first = operation.parts.front();
  if (first.copied && life.memory->use(first.local_slot) == Memory::Use::quiet) {
    life.memory->refill(first.local_slot, first.local_offset, first.size, contents_);
  }
}

/// A flush, or a fence; then what comes next has to wait.
void Cluster::post_order(Life& life, Rank to) {
  auto made = std::make_unique<Operation>();
  Operation& operation = *made;
  operation.cluster = this;
  operation.life = &life;
  operation.number = operations_.size() + 1;
  operation.to = to;
  operation.flush = true;
  operation.fence = random_.chance(600);
  if (!submit(operation)) return;
  say("{}: rank {} {} rank {}", operation.number, life.rank, operation.fence ? "fences" : "flushes", to);
  if (operation.fence) life.pairs[to].fence = operation.number;
  open_.push_back(&operation);
  operations_.push_back(std::move(made));
}

Result<void> Cluster::submit(Operation& operation) {
  Life& life = *operation.life;
  OpOptions options;
  options.timeout = std::chrono::milliseconds(random_.between(50, 8000));
  if (random_.chance(shape_.hurry_per_mille)) {
    options.timeout = Duration(random_.between(0, static_cast<std::uint64_t>(shape_.hurry_max.count())));
    if (random_.chance(k_no_time_per_mille)) options.timeout = {};
    if (options.timeout == Duration{}) count(Rare::no_time_at_all);
  } else if (random_.chance(shape_.patient_per_mille)) {
    options.timeout = k_patience;
  }
  options.callback = {[](void* context, const Completion& completion) {
                        auto& op = *static_cast<Operation*>(context);
                        op.cluster->on_end(op, completion);
                      },
                      &operation};
  operation.posted = world_.now();
  operation.deadline = operation.posted + options.timeout;
  operation.paused_before = life.paused;
  Result<Request> request;
  if (operation.flush) {
    request =
        operation.fence ? life.core->post_fence(operation.to, options) : life.core->post_flush(operation.to, options);
  } else if (operation.atomic) {
    request = submit_atomic(operation, options);
  } else if (operation.batch) {
    std::vector<BatchEntry> entries;
    for (const Part& part : operation.parts) {
      entries.push_back({.verb = part.get ? TransferVerb::get : TransferVerb::put,
                         .local = life.memory->slot(part.local_slot) + part.local_offset,
                         .remote = operation.region.at(part.remote_slot * k_slot_bytes + part.remote_offset),
                         .size = part.size});
    }
    request = life.core->post_batch(entries, nullptr, options);
  } else {
    const Part& part = operation.parts.front();
    const Signal signal{.word = operation.region.at(Memory::signal_offset(part.remote_slot)),
                        .value = operation.signal_value,
                        .op = operation.signal_op};
    request = life.core->post(part.get ? TransferVerb::get : TransferVerb::put,
                              life.memory->slot(part.local_slot) + part.local_offset,
                              operation.region.at(part.remote_slot * k_slot_bytes + part.remote_offset), part.size,
                              operation.signalled ? &signal : nullptr, options);
  }
  if (!request) return fail(request.error());
  operation.request = std::move(*request);
  if (random_.chance(shape_.cancel_per_mille)) cancel(operation);
  return {};
}

void Cluster::on_refused_post(Operation& operation, const Error& error) {
  release(operation);
  for (const Part& part : operation.parts) operation.changed(part).settle(operation.changed_slot(part));
  Knowledge& known = operation.life->pairs[operation.to];
  known.last_error = error;
  if (error.code == ErrorCode::stale || error.code == ErrorCode::not_exchanged ||
      error.code == ErrorCode::not_registered) {
    forget_addresses(operation.life->rank, operation.to);
  } else if (error.code != ErrorCode::busy) {
    violate("S14", fmt::format("a valid post was refused: {}", error.message()));
  }
}

// ---- ends ----

/// Lets go of what the operation reads.
void Cluster::release(Operation& operation) {
  for (const Part& part : operation.parts) {
    if (part.copied) continue;
    if (part.get) {
      operation.remote->end_read(part.remote_slot);
    } else {
      operation.life->memory->end_read(part.local_slot);
    }
  }
}

void Cluster::on_end(Operation& operation, const Completion& completion) {
  if (std::exchange(operation.ended, true)) {
    violate("S2", fmt::format("operation {} ended twice", operation.number));
    return;
  }
  operation.request = Request();
  Life& life = *operation.life;
  if (life.closing || operation.orphaned) return;
  const ErrorCode code = completion.result ? ErrorCode::ok : completion.result.error().code;
  say("{}: ends: {}", operation.number, completion.result ? "ok" : completion.result.error().message());
  ends_hash_ = Random(ends_hash_ ^ (operation.number << 16U) ^ static_cast<std::uint64_t>(code)).next();
  if (operation.flush) judge_order(operation, completion);
  std::erase(open_, &operation);
  if (operation.flush) return;
  release(operation);
  if (operation.behind != 0 && completion.result) {
    if (const Operation* earlier = open_before(life, operation.to, operation.behind); earlier != nullptr) {
      violate("S7", fmt::format("operation {}, behind fence {}, ended before operation {}", operation.number,
                                operation.behind, earlier->number));
    }
  }
  if (faults_ && trouble_.chance(shape_.stop_in_callback_per_mille) && posts(life)) {
    count(Rare::stopped_in_callback);
    leave(life.rank);
  }
  if (operation.atomic) return judge_atomic(operation, completion);
  judge_end(operation, completion);
  reuse(operation, code);
  for (Part& part : operation.parts) part.bytes.reset();
  // The library promises that a callback may post.
  if (random_.chance(shape_.chain_per_mille) && posts(life) && life.pairs[operation.to].region &&
      open_.size() < shape_.open_max && operation.parts.front().remote_slot != k_probe_source) {
    post(life, operation.to, operation.parts.front().remote_slot);
  }
}

void Cluster::judge_failure(Operation& operation, ErrorCode code) {
  switch (code) {
    case ErrorCode::deadline_exceeded:
      count(Rare::deadline_over);
      break;
    case ErrorCode::cancelled:
      count(Rare::cancelled);
      if (!operation.cancelled) violate("S14", fmt::format("nobody cancelled operation {}", operation.number));
      break;
    case ErrorCode::peer_lost:
      count(Rare::peer_lost);
      break;
    case ErrorCode::fenced:
      count(Rare::fenced);
      break;
    case ErrorCode::peer_gone:
      count(Rare::peer_gone);
      break;
    case ErrorCode::stopped:
      count(Rare::stopped);
      break;
    case ErrorCode::stale:
      count(Rare::stale);
      if (const auto& known = operation.life->pairs[operation.to].region;
          known && known->key == operation.region.key && known->incarnation == operation.region.incarnation &&
          !operation.life->turning) {
        forget_addresses(operation.life->rank, operation.to);
      }
      break;
    case ErrorCode::retries_exhausted:
      count(Rare::retries_exhausted);
      judge_retries(operation);
      break;
    case ErrorCode::payload_corrupt:
      if (!shape_.payload_check || shape_.flip_per_mille == 0)
        violate("S14", "bytes are said to have changed that nobody changed");
      count(Rare::given_up_as_corrupt);
      break;
    case ErrorCode::access_denied:
    case ErrorCode::out_of_range:
      if (taps_.lies_refused > 0) {
        taps_.lies_refused -= 1;  // the target's word for what the tap has made of a valid request
        count(Rare::lies_told);
        break;
      }
      [[fallthrough]];
    default:
      violate("S14", fmt::format("operation {} ended with {}", operation.number,
                                 operation.life->pairs[operation.to].last_error.message()));
  }
  if (operation.signal_fired()) {
    count(Rare::signal_without_success);
    if (!operation.arrived(operation.parts.front())) {
      violate("S6", fmt::format("operation {} failed with its signal fired and its data missing", operation.number));
    }
  }
  for (const Part& part : operation.parts) {
    const auto* now = operation.changed(part).slot(operation.changed_slot(part)) + operation.changed_offset(part);
    const std::size_t same = static_cast<std::size_t>(
        std::inner_product(now, now + part.size, part.bytes->data(), std::size_t{0}, std::plus<>(), std::equal_to<>()));
    if (same > part.size / 8 && same < part.size - part.size / 8) count(Rare::cut_in_half);
  }
}

/// What an ended operation wrote is frozen, and in most cases somebody needs the place at once.
void Cluster::reuse(Operation& operation, ErrorCode code) {
  for (const Part& part : operation.parts) {
    Memory& changed = operation.changed(part);
    const std::size_t slot = operation.changed_slot(part);
    // R1 c: the target could not be asked. Its memory is promised nothing until its own fence.
    if (!part.get && code == ErrorCode::peer_lost) {
      changed.quarantine(slot, 0);
      count(Rare::quarantined);
      continue;
    }
    complain("S1", changed, slot, part.get ? operation.life->rank : operation.to);
    changed.settle(slot);
    if (random_.chance(700) && changed.use(slot) == Memory::Use::quiet) {
      changed.refill(slot, operation.changed_offset(part), part.size, contents_);
    }
  }
  Memory& here = *operation.life->memory;
  for (const Part& part : operation.parts) {
    if (part.get || part.copied || here.use(part.local_slot) != Memory::Use::quiet) continue;
    complain("S4", here, part.local_slot, operation.life->rank);
    here.refill(part.local_slot, part.local_offset, part.size, contents_);
  }
}

}  // namespace hixl::sim
