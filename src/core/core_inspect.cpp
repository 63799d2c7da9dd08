// SPDX-License-Identifier: Apache-2.0
//
// Core's answers to those who look inside: regions, operations, and whether an access would be accepted. The loop is
// asked only for what it alone knows, and in pieces; tables that any thread may read are read by the caller.
#include <algorithm>

#include "core/checks.hpp"
#include "core/core.hpp"
#include "core/core_look.hpp"
#include "core/function_call.hpp"

namespace hixl::core {

namespace {

/// Regions in one stay at the table's lock: some 50 µs, during which nobody registers.
constexpr std::uint32_t k_regions_a_piece = 1024;

Rights known_rights(Rights need) noexcept {
  return static_cast<Rights>(static_cast<std::uint8_t>(need) & static_cast<std::uint8_t>(Rights::all));
}

}  // namespace

template <class Look>
auto Core::ask(Look&& look) -> Result<decltype(look())> {
  using Value = decltype(look());
  if (forked()) return fail(admit().error());
  const Error stopped(ErrorCode::stopped, {.rank = options_.rank, .stage = Stage::shutdown});
  if (on_loop_thread()) return stop_stage_ == StopStage::ended ? Result<Value>(fail(stopped)) : look();
  Waiting<Result<Value>> waiting;
  const bool asked = call_to_the_end(make_call([&] { waiting.give(look()); }, [&] { waiting.give(fail(stopped)); }));
  if (!asked) return fail(stopped);
  return waiting.wait(*loop_->thread());
}

// ---- regions ----

/// Which links serve a peer's memory.
struct Core::Ways {
  struct Way {
    bool there = false;
    LinkKind kind = LinkKind::tcp;
    LinkId id = 0;
  };
  Rank rank = k_no_rank;
  Way windows;
  Way other_memory;
  Way device_memory;
};

Result<RegionDump> Core::dump_regions() {
  const auto way = [](const peer::LinkActor* link) {
    return link == nullptr ? Ways::Way{} : Ways::Way{true, link->caps().kind, link->id()};
  };
  auto peers = ask([&] {
    std::vector<Ways> all;
    for (const auto& actor : directory_->peers()) {
      const peer::Reach reach = actor->reach();
      all.push_back({.rank = actor->rank(),
                     .windows = way(reach.windows),
                     .other_memory = way(reach.other_memory),
                     .device_memory = way(reach.device_memory)});
    }
    return all;
  });
  if (!peers) return fail(peers.error());
  std::sort(peers->begin(), peers->end(), [](const Ways& a, const Ways& b) { return a.rank < b.rank; });
  RegionDump dump;
  look_at_own(dump.own);
  for (const Ways& ways : *peers) look_at_peer(ways, dump.peers);
  return dump;
}

void Core::look_at_own(std::vector<OwnRegion>& out) const {
  std::vector<memory::RegionLook> seen;
  bool more = true;
  for (std::uint32_t next = 0; more;) {
    auto piece = regions_->look(next, k_regions_a_piece);
    seen.insert(seen.end(), piece.regions.begin(), piece.regions.end());
    next = piece.next;
    more = piece.more;
  }
  std::sort(seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.number > b.number; });
  const Instant now = loop_->port().now();
  out.reserve(seen.size());
  for (const memory::RegionLook& look : seen) {
    const RegionState closed = look.held ? RegionState::held : RegionState::retiring;
    out.push_back({.region = region_of(look.info),
                   .rights = look.info.rights,
                   .tag = look.info.tag,
                   .state = look.closed ? closed : RegionState::open,
                   .references = look.references,
                   .pins = look.pins,
                   .age = std::max<Duration>(now - look.opened, Duration{})});
  }
}

void Core::look_at_peer(const Ways& ways, std::vector<PeerRegion>& out) const {
  const memory::PeerMemory* peer = directory_->memory(ways.rank);
  if (peer == nullptr) return;
  const auto first = static_cast<std::ptrdiff_t>(out.size());
  const std::uint32_t end = peer->remotes.ids_end();
  for (std::uint32_t id = 0; id < end; ++id) {
    const auto look = peer->remotes.look(id);
    if (!look) continue;
    const Ways::Way& way = look->mapped                    ? ways.windows
                           : look->kind == MemoryKind::hbm ? ways.device_memory
                                                           : ways.other_memory;
    out.push_back({.rank = ways.rank,
                   .incarnation = look->incarnation,
                   .key = look->key,
                   .base = look->base,
                   .size = look->length,
                   .rights = look->rights,
                   .tag = look->tag,
                   .kind = look->kind,
                   .mapped = look->mapped,
                   .retired = look->retired,
                   .reached = way.there && !look->retired,
                   .link = way.kind,
                   .link_id = way.id});
  }
  std::sort(out.begin() + first, out.end(), [](const PeerRegion& a, const PeerRegion& b) {
    return a.base != b.base ? a.base < b.base : a.key.id < b.key.id;
  });
}

// ---- would it be accepted? ----

Result<void> Core::check_access(const RemoteAddress& remote, std::uint64_t size, Rights need) const {
  if (const auto admitted = admit(); !admitted) return admitted;
  if (known_rights(need) != need) {
    return fail(ErrorCode::invalid_argument, {.rank = remote.rank, .stage = Stage::options});
  }
  const auto view = resolve(remote, size, need);
  return view ? Result<void>() : fail(view.error());
}

Result<void> Core::check_access(const void* local, std::uint64_t size, Rights need) {
  if (const auto admitted = admit(); !admitted) return admitted;
  if (known_rights(need) != need) return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
  const bool source_only = !includes(need, Rights::write) && !includes(need, Rights::atomic);
  if (source_only && inlines(TransferVerb::put, local, size)) {
    return has_source(local, size) ? Result<void>() : no_source(size);
  }
  const auto pin = pin_local(local, size, source_only ? Rights::read : Rights::write);
  return pin ? Result<void>() : fail(pin.error());
}

// ---- operations ----

void Core::note_post(const peer::Operation& operation, std::uint32_t generation, const OpOptions& options,
                     const Said& said) noexcept {
  notes_[operation.slot].write(generation, {.verb = said.verb,
                                            .signal = said.signal,
                                            .rank = operation.rank,
                                            .bytes = said.bytes,
                                            .user_data = options.user_data,
                                            .posted = operation.deadline - allowed(options.timeout),
                                            .deadline = operation.deadline});
}

void Core::note_join(runtime::RequestTable::Acquired acquired) {
  const Instant now = loop_->port().now();
  notes_[acquired.slot].write(
      acquired.generation,
      {.verb = OperationVerb::join, .rank = options_.rank, .posted = now, .deadline = now + options_.connect_timeout});
}

/// Nothing: free, or its post has not come so far.
std::optional<OperationInfo> Core::look_at_slot(std::uint32_t slot, Instant now) {
  using Stand = runtime::RequestTable::Stand;
  const auto glance = requests_->glance(slot);
  if (glance.stand == Stand::free) return std::nullopt;
  const auto note = notes_[slot].read(glance.generation);
  if (!note) return std::nullopt;
  OperationInfo info{.id = std::uint64_t{glance.generation} << 32U | slot,
                     .verb = note->verb,
                     .rank = note->rank,
                     .signal = note->signal,
                     .bytes = note->bytes,
                     .age = now - note->posted,
                     .user_data = note->user_data};
  const peer::Operation& operation = operations_[slot];
  if (glance.stand == Stand::ended) {
    info.state = OperationState::ended;
    info.told = glance.seen;
    info.error = glance.error;
    info.done_bytes = glance.error.code == ErrorCode::ok ? note->bytes : 0;
    return info;
  }
  info.deadline_left = note->deadline - now;
  if (note->verb == OperationVerb::join) {
    info.state = OperationState::waiting;
  } else if (begun_[slot] != 0) {  // from then on it is the loop's until its end
    info.state = peer::PeerActor::state_of(operation);
    info.done_bytes = operation.executed_bytes;
    info.error = operation.error;
  }
  return info;
}

std::vector<OperationInfo> Core::look_at_slots(std::uint32_t from, std::uint32_t count, Instant now) {
  constexpr std::uint32_t k_none = 0xffffffffU;
  std::vector<OperationInfo> rows;
  std::vector<std::uint32_t> row_of(count, k_none);
  for (std::uint32_t i = 0; i < count; ++i) {
    auto row = look_at_slot(from + i, now);
    if (!row) continue;
    row_of[i] = static_cast<std::uint32_t>(rows.size());
    rows.push_back(std::move(*row));
  }
  for (const auto& actor : directory_->peers()) {
    actor->each_live([&](const peer::Operation& operation, LinkKind kind) {
      const std::uint32_t place = operation.slot - from;  // of one without a slot: beyond all
      if (operation.slot < from || place >= count || row_of[place] == k_none) return;
      rows[row_of[place]].live[static_cast<std::size_t>(kind)] += 1;
    });
  }
  return rows;
}

void Core::look_at_lanes(std::vector<OperationInfo>& out) {
  for (const auto& actor : directory_->peers()) {
    const memory::PeerMemory* peer = directory_->memory(actor->rank());
    const std::uint32_t callers = peer == nullptr ? 0 : peer->gate.users();
    const peer::LinkActor* link = actor->reach().windows;
    if (callers == 0 || link == nullptr) continue;
    OperationInfo& row = out.emplace_back();
    row.verb = OperationVerb::lane;
    row.rank = actor->rank();
    row.state = OperationState::posted;
    row.live[static_cast<std::size_t>(link->caps().kind)] = callers;
  }
}

Result<std::vector<OperationInfo>> Core::outstanding() {
  std::vector<OperationInfo> all;
  const Instant now = loop_->port().now();  // one for all, or else their ages would not tell their order
  for (std::uint32_t from = 0; from < options_.requests_max; from += k_slots_a_look) {
    const std::uint32_t count = std::min(k_slots_a_look, options_.requests_max - from);
    auto piece = ask([&] { return look_at_slots(from, count, now); });
    if (!piece) return fail(piece.error());
    all.insert(all.end(), std::make_move_iterator(piece->begin()), std::make_move_iterator(piece->end()));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.age > b.age; });
  for (OperationInfo& row : all) row.age = std::max(row.age, Duration{});  // posted since
  auto lanes = ask([this] {
    std::vector<OperationInfo> rows;
    look_at_lanes(rows);
    return rows;
  });
  if (!lanes) return fail(lanes.error());
  all.insert(all.end(), lanes->begin(), lanes->end());
  return all;
}

}  // namespace hixl::core
