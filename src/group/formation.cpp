// SPDX-License-Identifier: Apache-2.0
#include "group/formation.hpp"

#include <algorithm>
#include <array>

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "group/ask_pause.hpp"
#include "group/rank_set.hpp"

namespace hixl::group {

namespace {

using wire::JoinNote;

constexpr std::size_t k_probes_a_round = 64;
/// Joins that are remembered: one of every member of the largest group. Settled ones give way.
constexpr std::size_t k_seen_max = wire::k_group_size_max;

template <class Message>
void send(peer::ControlPlane& control, Rank rank, wire::FrameType type, const Message& message) {
  std::vector<std::byte> buffer(wire::k_body_bytes_max);
  ByteWriter writer(buffer);
  encode(message, writer);
  HIXL_ASSERT(writer.ok());
  // A full queue is as good as a lost message: it is asked again.
  static_cast<void>(control.send_control(rank, type, writer.written()));
}

wire::GroupAnswer answer_to(const wire::GroupJoin& join, ErrorCode code) {
  wire::GroupAnswer answer;
  answer.tag = join.tag;
  answer.code = static_cast<std::uint16_t>(code);
  return answer;
}

}  // namespace

FormationActor::FormationActor(runtime::Loop& loop, peer::ControlPlane& control, BarrierActor& barrier,
                               peer::PeerLife self)
    : loop_(loop), control_(control), barrier_(barrier), self_(self) {}

FormationActor::Open* FormationActor::find(std::uint32_t tag) noexcept {
  for (Open& open : open_) {
    if (open.request.tag == tag) return &open;
  }
  return nullptr;
}

void FormationActor::ask(Rank rank, const Open& open, JoinNote note) {
  send(control_, rank, wire::FrameType::group_join,
       wire::GroupJoin{.note = note,
                       .tag = open.request.tag,
                       .call = open.call,
                       .list = open.list,
                       .options = open.request.options});
}

void FormationActor::answer(Rank rank, std::uint64_t call, wire::GroupAnswer answer) {
  answer.call = call;
  send(control_, rank, wire::FrameType::group_answer, answer);
}

// ---- our calls ----

void FormationActor::form(Request request) {
  Open open(*this, std::move(request));
  const Error refused = stopped_ ? Error(ErrorCode::stopped, {.rank = self_.rank, .stage = Stage::group})
                        : find(open.request.tag) != nullptr
                            ? Error(ErrorCode::busy, {.rank = self_.rank, .stage = Stage::group, .limit = 1})
                            : Error();
  if (refused.code != ErrorCode::ok) {
    ended_.push_back({std::move(open.request), fail(refused)});
    loop_.defer(*this);
    return;
  }
  Open& here = open_.emplace_back(*this, std::move(open.request));
  const std::vector<Rank>& ranks = here.request.ranks;
  here.call = ++calls_;
  here.list = hash_of(ranks.size());
  for (const Rank rank : ranks) here.list = hash_of(rank, here.list);
  here.collector = *std::min_element(ranks.begin(), ranks.end());
  here.joined.resize(ranks.size());
  here.joined[place_of(here)] = {self_.incarnation, here.call};
  start_timer(here);
  if (here.collector != self_.rank) return ask(here.collector, here, JoinNote::join);
  // Who came early may have given up meanwhile: it is to say so once more.
  for (const Rank rank : ranks) {
    const auto seen = seen_.find({here.request.tag, rank});
    if (seen != seen_.end() && !seen->second.settled) ask(rank, here, JoinNote::probe);
  }
  make_if_complete(here);
}

std::size_t FormationActor::place_of(const Open& open) const noexcept {
  const std::vector<Rank>& ranks = open.request.ranks;
  return static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), self_.rank) - ranks.begin());
}

void FormationActor::start_timer(Open& open) {
  const Duration left = open.request.deadline - loop_.now();
  loop_.start_after(open, std::min(left, ask_pause(left)));
}

void FormationActor::on_timer(Open& open) {
  if (loop_.now() >= open.request.deadline) return on_deadline(open);
  ask_again(open);
  start_timer(open);
}

void FormationActor::ask_again(Open& open) {
  if (open.collector != self_.rank) {
    ask(open.collector, open, JoinNote::join);
    if (std::exchange(open.answered, false)) return;
  }
  // The collector asks those missing, and so do the others while it is silent: whether they mean something else.
  std::size_t probes = 0;
  for (std::size_t looked = 0; looked < open.joined.size() && probes < k_probes_a_round; ++looked) {
    const std::size_t i = open.probe_from++ % open.joined.size();
    if (open.joined[i].life != 0 || open.request.ranks[i] == open.collector) continue;
    ask(open.request.ranks[i], open, JoinNote::probe);
    ++probes;
  }
}

ErrorDetail FormationActor::missing(const Open& open) const {
  ErrorDetail detail{.stage = Stage::group};
  std::vector<Rank> ranks;
  for (std::size_t i = 0; i < open.joined.size(); ++i) {
    if (open.joined[i].life == 0) ranks.push_back(open.request.ranks[i]);
  }
  std::sort(ranks.begin(), ranks.end());
  for (const Rank rank : ranks) add_missing(detail, rank);
  return detail;
}

void FormationActor::on_deadline(Open& open) {
  Error error(ErrorCode::deadline_exceeded, missing(open));
  if (open.disagrees != k_no_rank) {
    error = Error(ErrorCode::invalid_argument, {.rank = open.disagrees, .stage = Stage::group});
  }
  if (open.collector == self_.rank) return fail_all(open, error);
  ask(open.collector, open, JoinNote::withdraw);
  end(open, fail(error));
}

void FormationActor::end(Open& open, const Result<Formed>& result) {
  open.cancel();
  ended_.push_back({std::move(open.request), result});
  open_.remove_if([&open](const Open& item) { return &item == &open; });
  loop_.defer(*this);
}

void FormationActor::run() {
  while (!ended_.empty()) {
    const Ended one = std::move(ended_.front());
    ended_.pop_front();
    one.request.done(one.request.context, one.result);
  }
}

// ---- collecting ----

void FormationActor::on_join(peer::PeerLife from, const wire::GroupJoin& join) {
  if (stopped_) return;
  switch (join.note) {
    case JoinNote::join:
      return on_request_to_join(from, join);
    case JoinNote::withdraw:
      note(from, join, true, nullptr);
      if (Open* const open = find(join.tag); open != nullptr && open->collector == self_.rank) {
        for (Joined& joined : open->joined) {
          if (joined.life == from.incarnation && joined.call == join.call) joined = {};
        }
      }
      return;
    case JoinNote::probe:
      return on_probe(from, join);
  }
}

/// Older calls of the same life are over.
void FormationActor::note(peer::PeerLife from, const wire::GroupJoin& join, bool settled,
                          std::shared_ptr<const wire::GroupAnswer> answer) {
  const std::pair key{join.tag, from.rank};
  const auto place = seen_.find(key);
  if (place != seen_.end()) {
    const Seen& before = place->second;
    if (before.from.incarnation == from.incarnation && before.join.call > join.call) return;
  } else if (seen_.size() >= k_seen_max) {
    const auto settled_one =
        std::find_if(seen_.begin(), seen_.end(), [](const auto& item) { return item.second.settled; });
    if (settled_one == seen_.end()) return;
    seen_.erase(settled_one);
  }
  seen_[key] = {from, join, settled, std::move(answer)};
}

void FormationActor::on_request_to_join(peer::PeerLife from, const wire::GroupJoin& join) {
  if (const auto place = seen_.find({join.tag, from.rank});
      place != seen_.end() && place->second.from.incarnation == from.incarnation) {
    const Seen& before = place->second;
    if (join.call < before.join.call) return;
    if (join.call == before.join.call && before.settled) {
      if (before.answer) answer(from.rank, join.call, *before.answer);
      return;
    }
  }
  if (Open* const open = find(join.tag); open != nullptr && open->collector == self_.rank) {
    const std::vector<Rank>& ranks = open->request.ranks;
    const auto place = std::find(ranks.begin(), ranks.end(), from.rank);
    if (place != ranks.end()) return count_in(*open, static_cast<std::size_t>(place - ranks.begin()), from, join);
  }
  note(from, join, false, nullptr);
  wire::GroupAnswer progress = answer_to(join, ErrorCode::busy);
  for (const auto& [at, seen] : seen_) {
    if (at.first == join.tag && !seen.settled && seen.join.list == join.list) add_rank(progress.ranks, at.second);
  }
  answer(from.rank, join.call, progress);
}

void FormationActor::count_in(Open& open, std::size_t index, peer::PeerLife from, const wire::GroupJoin& join) {
  if (join.list != open.list || join.options != open.request.options) {
    wire::GroupAnswer refusal = answer_to(join, ErrorCode::invalid_argument);
    refusal.rank = self_.rank;
    answer(from.rank, join.call, refusal);
    note(from, join, true, std::make_shared<const wire::GroupAnswer>(refusal));
    open.joined[index] = {};
    return fail_all(open, Error(ErrorCode::invalid_argument, {.rank = from.rank, .stage = Stage::group}));
  }
  open.joined[index] = {from.incarnation, join.call};
  wire::GroupAnswer progress = answer_to(join, ErrorCode::busy);
  bool complete = true;
  for (std::size_t i = 0; i < open.joined.size(); ++i) {
    complete = complete && open.joined[i].life != 0;
    if (open.joined[i].life != 0) add_rank(progress.ranks, open.request.ranks[i]);
  }
  if (complete) return make_if_complete(open);
  answer(from.rank, join.call, progress);
}

void FormationActor::make_if_complete(Open& open) {
  wire::GroupAnswer made;
  for (const Joined& joined : open.joined) {
    if (joined.life == 0) return;
    made.incarnations.push_back(joined.life);
  }
  made.tag = open.request.tag;
  made.group = loop_.random().identity() | k_made_bit;
  Formed formed{.name = made.group, .page = nullptr};
  if (open.request.pages == Pages::if_shared && open.joined.size() > 1) {
    if (auto page = memory::BarrierPage::create(open.request.ranks, place_of(open), loop_.random().identity())) {
      formed.page = std::move(*page);
      const auto location = formed.page->location();
      made.page_process = location.process;
      made.page_descriptor = location.descriptor;
      made.page_challenge = location.challenge;
    }
  }
  barrier_.open(made.group, open.request.ranks, made.incarnations, formed.page);
  settle(open, std::make_shared<const wire::GroupAnswer>(std::move(made)));
  end(open, std::move(formed));
}

/// The collector's call fails, and with it that of everybody who has joined.
void FormationActor::fail_all(Open& open, const Error& error) {
  wire::GroupAnswer failure;
  failure.tag = open.request.tag;
  failure.code = static_cast<std::uint16_t>(error.code);
  failure.rank = error.detail.rank;
  for (std::size_t i = 0; i < open.joined.size(); ++i) {
    if (open.joined[i].life != 0) add_rank(failure.ranks, open.request.ranks[i]);
  }
  settle(open, std::make_shared<const wire::GroupAnswer>(std::move(failure)));
  end(open, fail(error));
}

/// Answers all who have joined, for good.
void FormationActor::settle(const Open& open, std::shared_ptr<const wire::GroupAnswer> told) {
  for (std::size_t i = 0; i < open.joined.size(); ++i) {
    const Rank rank = open.request.ranks[i];
    if (open.joined[i].life == 0 || rank == self_.rank) continue;
    answer(rank, open.joined[i].call, *told);
    note({rank, open.joined[i].life},
         {.note = JoinNote::join,
          .tag = open.request.tag,
          .call = open.joined[i].call,
          .list = open.list,
          .options = open.request.options},
         true, told);
  }
}

void FormationActor::on_probe(peer::PeerLife from, const wire::GroupJoin& join) {
  wire::GroupAnswer answered = answer_to(join, ErrorCode::busy);
  if (const Open* const open = find(join.tag); open != nullptr) {
    if (open->collector == from.rank) return ask(from.rank, *open, JoinNote::join);
    if (open->list == join.list && open->request.options == join.options) {
      add_rank(answered.ranks, self_.rank);
    } else {
      answered.code = static_cast<std::uint16_t>(ErrorCode::invalid_argument);
      answered.rank = self_.rank;
    }
  }
  answer(from.rank, join.call, answered);
}

// ---- answers ----

void FormationActor::on_answer(peer::PeerLife from, const wire::GroupAnswer& answered) {
  if (stopped_) return;
  Open* const open = find(answered.tag);
  if (open == nullptr || open->call != answered.call) {
    // Too late: the others must not wait for this member.
    if (answered.group != 0 && !barrier_.has(answered.group)) barrier_.refuse(from.rank, answered.group);
    return;
  }
  const auto code = static_cast<ErrorCode>(answered.code);
  if (open->collector == self_.rank || from.rank != open->collector) {
    if (code == ErrorCode::invalid_argument) open->disagrees = from.rank;
    if (open->collector == self_.rank) return;  // only a join counts
  } else {
    open->answered = true;
    open->collector_life = from.incarnation;
  }
  const std::vector<Rank>& ranks = open->request.ranks;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (has_rank(answered.ranks, ranks[i]) && open->joined[i].life == 0) open->joined[i].life = 1;  // it is there
  }
  if (from.rank != open->collector) return;
  if (from.rank == open->collector && code == ErrorCode::ok) {
    if (answered.incarnations.size() != ranks.size()) return;
    Formed formed{.name = answered.group, .page = nullptr};
    if (open->request.pages == Pages::if_shared) {
      auto page = memory::BarrierPage::open({.process = answered.page_process,
                                             .descriptor = answered.page_descriptor,
                                             .challenge = answered.page_challenge},
                                            ranks, place_of(*open));
      if (page) formed.page = std::move(*page);
    }
    barrier_.open(answered.group, ranks, answered.incarnations, formed.page);
    return end(*open, std::move(formed));
  }
  if (code == ErrorCode::busy) {
    // What was there may have gone again.
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (!has_rank(answered.ranks, ranks[i]) && ranks[i] != self_.rank) open->joined[i] = {};
    }
    return;
  }
  Error error(code, {.rank = answered.rank, .stage = Stage::group});
  if (code == ErrorCode::deadline_exceeded) error.detail = missing(*open);
  end(*open, fail(error));
}

void FormationActor::on_peer_down(peer::PeerLife who, peer::PeerEnd end_of) {
  std::erase_if(seen_, [&who](const auto& item) {
    const peer::PeerLife& from = item.second.from;
    return from.rank == who.rank && from.incarnation == who.incarnation;
  });
  const Error lost(ErrorCode::peer_lost, {.rank = who.rank, .stage = Stage::group});
  for (auto place = open_.begin(); place != open_.end();) {
    Open& open = *place++;
    if (open.collector == who.rank) {
      if (open.collector_life == who.incarnation && end_of == peer::PeerEnd::life) end(open, fail(lost));
      continue;
    }
    if (open.collector != self_.rank) continue;
    for (std::size_t i = 0; i < open.joined.size(); ++i) {
      if (open.request.ranks[i] != who.rank || open.joined[i].life != who.incarnation) continue;
      open.joined[i] = {};
      if (end_of == peer::PeerEnd::life) fail_all(open, lost);
      break;
    }
  }
}

void FormationActor::stop() {
  stopped_ = true;
  const Error why(ErrorCode::stopped, {.rank = self_.rank, .stage = Stage::group});
  while (!open_.empty()) end(open_.front(), fail(why));
  run();
}

}  // namespace hixl::group
