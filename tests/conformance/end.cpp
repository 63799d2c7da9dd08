// SPDX-License-Identifier: Apache-2.0
#include "end.hpp"

#include <array>

#include <doctest/doctest.h>

namespace conformance {

namespace {
constexpr std::uint32_t k_regions_max = 64;  // more than any test registers
constexpr std::size_t k_mail_capacity = 256;
constexpr std::uint64_t k_hbm_bytes = 64U << 20U;  // more than any test allocates
}  // namespace

End::End(runtime::EventPort& port, std::uint64_t seed, Rank self, const Depths& depths)
    : loop(port, seed, k_mail_capacity), remotes(k_regions_max), rank(self), depths_(depths) {
  auto table = memory::RegionTable::create(k_regions_max, seed);
  REQUIRE(table);
  regions = std::move(*table);
  regions->limit({.hbm_bytes = k_hbm_bytes, .held_bytes_max = 0});
  auto page = memory::SignalPage::create();
  REQUIRE(page);
  signals = std::move(*page);
}

End::~End() = default;

template <class Call>
auto End::call(Call&& function) {
  in_call_ = true;
  auto result = function();
  in_call_ = false;
  return result;
}

void End::make_link(std::unique_ptr<runtime::Stream> stream, const links::LinkIdentity& identity) {
  const links::LinkServices services{loop, *regions, remotes, *signals, depths_.tx, depths_.rx, &atomics};
  auto frames = std::make_unique<links::FrameStream>(std::move(stream), loop);
  link = call([&] { return factory->make(identity, std::move(frames), services, *this); });
}

Remote End::allocate(std::size_t size, Rights rights, MemoryKind kind) {
  // Memory that no peer can map, where a kind is made for that.
  const bool plain = factory->caps().same_host_only && !factory->caps().needs_window && kind == MemoryKind::host;
  if (plain) plain_.push_back(std::make_unique<std::byte[]>(size));
  const auto region = plain ? regions->add(plain_.back().get(), size, {.rights = rights})
                            : regions->allocate(size, {.rights = rights, .kind = kind});
  REQUIRE(region);
  return {region->key, region->token, region->data, region->size};
}

bool End::learn(const Remote& remote, const End& owner) {
  const auto info = owner.regions->info(remote.key);
  REQUIRE(info);
  const auto base = reinterpret_cast<std::uint64_t>(info->data);
  RemoteRegion region;
  region.rank = owner.rank;
  region.incarnation = 1;
  region.key = info->key;
  region.token = info->token;
  region.base = base;
  region.length = info->size;
  region.rights = info->rights;
  REQUIRE(remotes.add(region));
  const wire::RegionDescriptor descriptor{info->key,       info->token,         base,
                                          info->size,      info->rights,        0,
                                          info->window_id, info->window_offset, info->device->caps().kind};
  const Answer answer = call([&] { return link->attach(descriptor); });
  if (answer == Answer::done) attach_results[{remote.key.id, remote.key.generation}] = Result<void>{};
  return answer == Answer::done;
}

bool End::attached(const Remote& remote) const {
  const auto found = attach_results.find({remote.key.id, remote.key.generation});
  if (found == attach_results.end()) return false;
  REQUIRE(found->second);
  return true;
}

std::uint64_t End::post(Verb verb, const Remote& remote, std::vector<Segment> segments, std::uint64_t value) {
  links::Post what;
  what.verb = verb;
  what.region = remote.key;
  what.token = remote.token;
  what.local_device = local_device;
  what.value = value;
  return post(what, std::move(segments));
}

std::uint64_t End::post_atomic(Verb verb, const Remote& remote, std::uint64_t offset, std::uint64_t value,
                               const links::AtomicTerms& terms) {
  links::Post what;
  what.verb = verb;
  what.region = remote.key;
  what.token = remote.token;
  what.value = value;
  what.atomic = terms;
  return post(what, {{nullptr, offset, 8}});
}

std::uint64_t End::post(const links::Post& what, std::vector<Segment> segments) {
  const std::uint64_t number = next_attempt_;
  Attempt& attempt = attempts[number];
  attempt.verb = what.verb;
  attempt.segments = std::move(segments);
  links::Post post = what;
  post.cookie = number;
  post.op_id = number;
  post.segments = attempt.segments;
  const Answer answer = call([&] { return link->post(post); });
  if (answer == Answer::busy) {
    attempts.erase(number);
    return 0;
  }
  ++next_attempt_;
  if (answer == Answer::done) {
    attempt.ends = 1;
  } else {
    ++under_way_;
  }
  return number;
}

bool End::send(wire::FrameType type, ConstBytes body) {
  return call([&] { return link->send(type, body); });
}
bool End::revoke(const Remote& remote) {
  return call([&] { return link->revoke(remote.key); });
}
bool End::abandon(std::uint64_t attempt) {
  const bool taken_back = call([&] { return link->abandon(attempt); });
  if (taken_back) {
    --under_way_;
    attempts.at(attempt).ends = -1;  // nothing may come for it any more
  }
  return taken_back;
}
bool End::drained() {
  return call([&] { return link->drained(); });
}

void End::close() {
  for (auto& [number, attempt] : attempts) {
    if (attempt.ends == 0) attempt.sequence = link->sequence_of(number);
  }
  closed_ = true;
  call([&] {
    link->close();
    return 0;
  });
}

void End::drop_link() {
  closed_ = true;
  link.reset();
}

void End::take_completions() {
  if (link == nullptr) return;
  std::array<links::Completion, 5> completions;  // few, so that a batch is often not all
  for (;;) {
    const std::size_t count = call([&] { return link->poll(completions); });
    for (std::size_t i = 0; i < count; ++i) {
      const auto found = attempts.find(completions[i].cookie);
      if (found == attempts.end() || found->second.ends != 0) {
        ++stray_ends;
        continue;
      }
      found->second.ends = 1;
      found->second.error = completions[i].error;
      found->second.value = completions[i].value;
      --under_way_;
    }
    if (count < completions.size()) return;
  }
}

// ---- events ----

void End::note_event() {
  if (in_call_) ++inside_calls;
  if (closed_) ++after_close;
}
void End::on_up() {
  note_event();
  ++ups;
}
void End::on_completions() {
  if (in_call_) ++inside_calls;
  take_completions();
}
void End::on_credit() {
  note_event();
  ++credits;
}
void End::on_control(const wire::FrameHeader& header, ConstBytes body) {
  note_event();
  controls.emplace_back(header.type, std::vector<std::byte>(body.begin(), body.end()));
}
void End::on_attached(RegionKey key, const Result<void>& result) {
  note_event();
  attach_results[{key.id, key.generation}] = result;
}
void End::on_down(const Error& error) {
  note_event();
  ++downs;
  down_error = error;
}

}  // namespace conformance
