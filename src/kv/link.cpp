// SPDX-License-Identifier: Apache-2.0
//
// How two ranks link. Each publishes its directory to the other, finds the other's among the regions that it was told
// of, opens its gates, publishes its caches, and says "linked" in the other's directory. Both have linked when both
// have said so.
#include <algorithm>
#include <optional>
#include <utility>

#include "fetch.hpp"
#include "state.hpp"

namespace hixl::kv {

namespace {

/// The answers of one publish, shared with the loop, which may give them when nobody waits any more.
struct Told {
  std::shared_ptr<DataDist::State> home;
  std::mutex mutex;
  std::optional<Result<void>> result;

  [[nodiscard]] std::optional<Result<void>> look() {
    const std::lock_guard lock(mutex);
    return result;
  }
};

std::shared_ptr<Told> begin_publish(const std::shared_ptr<DataDist::State>& home, Rank rank,
                                    const std::vector<Region>& what, Instant deadline) {
  auto told = std::make_shared<Told>();
  told->home = home;
  auto context = std::make_unique<std::shared_ptr<Told>>(told);
  const auto done = [](void* at, std::vector<PeerAddresses>&& answers) {
    const std::unique_ptr<std::shared_ptr<Told>> own(static_cast<std::shared_ptr<Told>*>(at));
    Told& here = **own;
    {
      const std::lock_guard lock(here.mutex);
      here.result = answers.front().result;
    }
    here.home->end_errand();
  };
  home->begin_errand();
  const Result<void> begun =
      home->runtime.publish_async(what, {&rank, 1}, DataDist::State::left(deadline), done, context.get());
  if (begun) {
    static_cast<void>(context.release());
  } else {
    told->result = begun;
    home->end_errand();
  }
  return told;
}

/// One rank that is being linked.
class Joining {
 public:
  Joining(DataDist::State& home, Rank rank, Instant deadline)
      : home_(home.shared_from_this()), rank_(rank), deadline_(deadline) {}
  ~Joining() {
    if (header_) header_->give_up();
  }
  Joining(Joining&&) = default;
  Joining& operator=(Joining&&) = delete;
  void begin();
  /// Goes on as far as it can.
  void look();
  [[nodiscard]] Rank rank() const noexcept { return rank_; }

  std::optional<Result<void>> result;  // for whoever began it

 private:
  enum class Step : std::uint8_t { meeting, telling, listening, reading };
  void meet();
  void listen();
  void read();

  std::shared_ptr<DataDist::State> home_;
  Rank rank_;
  Instant deadline_;
  Step step_ = Step::meeting;
  std::shared_ptr<Told> told_;  // waited for before the next step
  Link link_{};                 // from telling on
  std::shared_ptr<Fetch> header_;
};

void Joining::begin() {
  step_ = Step::meeting;
  if (rank_ != home_->own_rank) told_ = begin_publish(home_, rank_, {home_->region}, deadline_);
}

void Joining::look() {
  if (told_) {
    const auto heard = told_->look();
    if (!heard) return;
    told_ = nullptr;
    if (!*heard) {
      result = *heard;
      return;
    }
  }
  if (step_ == Step::meeting) {
    meet();
    if (step_ == Step::meeting || told_) return;
  }
  if (step_ == Step::telling) {
    home_->tell(link_, LinkSays::linked);
    step_ = Step::listening;
  }
  if (step_ == Step::listening) listen();
  if (step_ == Step::reading && !result) read();
}

void Joining::meet() {
  const auto at = home_->find_directory(rank_);
  if (!at) return;
  const auto prepared = home_->prepare_link(*at);
  if (!prepared) {
    result = fail(prepared.error());
    return;
  }
  link_ = *prepared;
  step_ = Step::telling;
  // Who registers from now on tells this link of it; what is there already is told here.
  const std::vector<Region> what = home_->regions_of_caches();
  if (!what.empty() && rank_ != home_->own_rank) told_ = begin_publish(home_, rank_, what, deadline_);
}

void Joining::listen() {
  const LinkWord heard = home_->said_by(rank_);
  const bool of_that_life = heard.life == life_of(link_.directory);
  if (of_that_life && heard.says == LinkSays::linked) {
    link_.index_there = heard.link;
    auto begun = Fetch::begin(home_, link_.directory, k_header_bytes, deadline_);
    if (begun) {
      header_ = std::move(*begun);
      step_ = Step::reading;
    } else {
      result = fail(begun.error());
    }
  } else if (!of_that_life && !home_->alive(link_.directory)) {
    begin();  // it may come again in another life
  }
}

void Joining::read() {
  const auto bytes = header_->look();
  if (!bytes) return;
  const auto counts = *bytes ? decode_counts(**bytes) : std::nullopt;
  if (counts) {
    result = home_->complete_link(link_.directory, link_.index_there, *counts);
  } else {
    result = fail(*bytes ? home_->error_of(ErrorCode::version_mismatch, rank_) : bytes->error());
  }
}

}  // namespace

void DataDist::State::publish(const Link& to, const std::vector<Region>& what, Instant deadline) {
  if (to.rank != own_rank && alive(to.directory)) begin_publish(shared_from_this(), to.rank, what, deadline);
}

LinkWord DataDist::State::said_by(Rank rank) const noexcept {
  return unpack_link_word(word(directory.link_word(rank)).load());
}

Result<Link> DataDist::State::prepare_link(const RemoteAddress& at) {
  const Rank rank = at.rank;
  const std::lock_guard lock(mutex);
  if (closing.load()) return fail(error_of(ErrorCode::stopped, rank));
  auto found = links.find(rank);
  if (found == links.end()) {
    if (links.size() >= options.links_max) {
      return fail(ErrorCode::limit_reached,
                  {.rank = rank, .stage = Stage::kv, .length = links.size(), .limit = options.links_max});
    }
    found = links.emplace(rank, Link{}).first;
    found->second.rank = rank;
    found->second.index = static_cast<std::uint32_t>(links.size() - 1);
  }
  Link& link = found->second;
  if (!same_life(link.directory, at)) {
    end_leases_of(link.index, LeaseEnd::peer_lost);
    if (link.directory.incarnation != at.incarnation) begin_gates_anew(link);
    marks.forget_rank(rank);
    gates_there.forget(link.directory);
    returns.forget(link.directory);
    link.linked = false;
    link.open = false;
    link.directory = at;
  }
  if (!link.open || link.leaving) {
    link.open = true;
    link.leaving = false;
    for (const auto& [slot, cache] : caches) {
      if (!cache->closing) open_gate(link, *cache);
    }
  }
  return link;
}

/// The process of the life before is gone: nobody of it is inside any more, whatever the words say. Of a process that
/// lives on somebody may be, and leaves.
void DataDist::State::begin_gates_anew(const Link& link) {
  for (std::uint32_t gate = 0; gate < directory.gates_a_link(); ++gate) {
    word(directory.gate(link.index, gate)).store(0);
  }
  for (std::uint32_t lease = 0; lease < options.leases_max; ++lease) {
    word(directory.release(link.index, lease)).store(0);
  }
}

std::shared_ptr<const std::atomic<bool>> DataDist::State::tell(const Link& link, LinkSays says) {
  RemoteAddress at = link.directory;
  at.address += directory.link_word(own_rank);  // it lies at the same place in all of them
  RemoteAddress bell = link.directory;
  bell.address += directory.bell();
  const std::uint64_t value = pack(LinkWord{.says = says, .link = link.index, .life = life_of(own(0))});
  struct Said {
    std::shared_ptr<State> home;
    RemoteAddress bell;
    std::shared_ptr<std::atomic<bool>> over;
  };
  auto over = std::make_shared<std::atomic<bool>>(false);
  begin_errand();
  post_or_retry({.post = [this, at, bell, value, over]() -> Result<void> {
                   auto said = std::make_unique<Said>(Said{shared_from_this(), bell, over});
                   const auto told = [](void* context, const Completion&) {
                     const std::unique_ptr<Said> own(static_cast<Said*>(context));
                     own->home->ring_there(own->bell);
                     own->over->store(true);
                     own->home->end_errand();
                   };
                   const auto posted = runtime.swap(at, value, {.callback = {told, said.get()}});
                   if (!posted) return fail(posted.error());
                   static_cast<void>(said.release());
                   return {};
                 },
                 .lost =
                     [this, over](const Error&) {
                       over->store(true);
                       end_errand();
                     }});
  return over;
}

std::vector<Region> DataDist::State::regions_of_caches() const {
  std::vector<Region> all;
  const std::lock_guard lock(mutex);
  for (const auto& [slot, cache] : caches) {
    for (const Region& at : cache->regions) {
      const auto same = [&](const Region& known) { return known.key == at.key; };
      if (std::none_of(all.begin(), all.end(), same)) all.push_back(at);
    }
  }
  return all;
}

std::optional<RemoteAddress> DataDist::State::find_directory(Rank rank) const {
  if (rank == own_rank) return own(0);
  const auto dump = runtime.dump_regions();
  if (!dump) return std::nullopt;
  for (const PeerRegion& seen : dump->peers) {
    if (seen.rank != rank || seen.tag != k_directory_tag || seen.retired || seen.size < k_header_bytes) continue;
    return RemoteAddress{.rank = rank, .address = seen.base, .region = seen.key, .incarnation = seen.incarnation};
  }
  return std::nullopt;
}

std::vector<Result<void>> DataDist::State::link(std::span<const Rank> ranks, Timeout timeout) {
  const auto refuse_all = [&](const Error& error) { return std::vector<Result<void>>(ranks.size(), fail(error)); };
  const auto deadline = deadline_of(timeout);
  if (!deadline) return refuse_all(deadline.error());
  if (const auto waited = may_block(); !waited) return refuse_all(waited.error());
  std::vector<Joining> all;
  all.reserve(ranks.size());
  for (const Rank rank : ranks) {
    Joining& joining = all.emplace_back(*this, rank, *deadline);
    if (rank >= runtime.world_size()) {
      joining.result =
          fail(ErrorCode::rank_out_of_range, {.rank = rank, .stage = Stage::kv, .limit = runtime.world_size()});
    } else if (link_state(rank) == LinkState::linked) {
      joining.result = Result<void>();
    } else {
      joining.begin();
    }
  }
  const auto over = [&] {
    bool all_over = true;
    for (Joining& joining : all) {
      if (!joining.result) joining.look();
      all_over = all_over && joining.result.has_value();
    }
    return all_over;
  };
  const auto waited = await(*deadline, over);
  std::vector<Result<void>> results;
  for (const Joining& joining : all) {
    if (joining.result) {
      results.push_back(*joining.result);
    } else {
      results.push_back(fail(error_of(waited ? ErrorCode::deadline_exceeded : waited.error().code, joining.rank())));
    }
  }
  return results;
}

Result<void> DataDist::State::complete_link(const RemoteAddress& at, std::uint32_t index_there,
                                            const DirectoryCounts& counts) {
  const std::lock_guard lock(mutex);
  Link& link = links.at(at.rank);
  if (!same_life(link.directory, at) || index_there >= counts.links) return fail(error_of(ErrorCode::stale, at.rank));
  link.there = Directory(counts);
  link.index_there = index_there;
  link.linked = true;
  return {};
}

LinkState DataDist::State::link_state(Rank rank) const {
  Link link;
  {
    const std::lock_guard lock(mutex);
    const auto found = links.find(rank);
    if (found == links.end() || !found->second.linked) return LinkState::none;
    link = found->second;
  }
  if (!alive(link.directory)) return LinkState::peer_lost;
  const LinkWord heard = said_by(rank);
  const bool of_that_life = heard.life == life_of(link.directory);
  return of_that_life && heard.says == LinkSays::unlinked ? LinkState::peer_unlinked : LinkState::linked;
}

}  // namespace hixl::kv
