// SPDX-License-Identifier: Apache-2.0
//
// A link whose every answer is written by the test, and the factory that makes such links.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "links/link.hpp"

namespace hixl::peer::test {

class FakeLink final : public links::Link {
 public:
  struct Posted {
    links::Verb verb;
    std::uint64_t cookie;
    OpId op_id;
    std::uint32_t chunk;
    std::uint8_t attempt;
    RegionKey region;
    std::uint64_t value;
    std::vector<links::Segment> segments;
  };
  struct Gone {
    bool* flag = nullptr;
    ~Gone() {
      if (flag != nullptr) *flag = true;
    }
  };

  FakeLink(const links::LinkCaps& caps, const links::LinkIdentity& id, links::LinkEvents& to)
      : identity(id), events(to), caps_(caps) {}

  // ---- what the test does ----
  void complete(std::uint64_t cookie, const Error& error = {}) { done_.push_back({cookie, error}); }
  /// Sent with that number.
  void number(std::uint64_t cookie, LinkSeq seq) { numbers[cookie] = seq; }
  [[nodiscard]] const Posted& last() const { return posts.back(); }

  links::LinkIdentity identity;
  links::LinkEvents& events;
  std::deque<links::Answer> answers;  ///< of the next posts; posted when empty
  std::vector<Posted> posts;
  std::vector<wire::FrameType> sent;
  std::map<std::uint64_t, LinkSeq> numbers;
  std::set<std::uint64_t> kept;  ///< abandon() answers false
  std::set<std::uint64_t> abandoned;
  wire::ExecutedSet executed_set;
  bool closed = false;
  bool is_drained = true;
  int pieces = 0;  // of memory that it has to give back
  bool revoked = true;
  bool sendable = true;
  Gone gone;

  // ---- Link ----
  const links::LinkCaps& caps() const noexcept override { return caps_; }
  links::Answer post(const links::Post& post) override {
    REQUIRE_FALSE(closed);
    links::Answer answer = links::Answer::posted;
    if (!answers.empty()) {
      answer = answers.front();
      answers.pop_front();
    }
    if (answer != links::Answer::busy) {
      posts.push_back({post.verb, post.cookie, post.op_id, post.chunk, post.attempt, post.region, post.value,
                       std::vector<links::Segment>(post.segments.begin(), post.segments.end())});
    }
    return answer;
  }
  std::size_t poll(std::span<links::Completion> out) override {
    const std::size_t count = std::min(out.size(), done_.size());
    std::copy_n(done_.begin(), count, out.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  bool send(wire::FrameType type, ConstBytes) override {
    if (sendable) sent.push_back(type);
    return sendable;
  }
  links::Answer attach(const wire::RegionDescriptor&) override { return links::Answer::done; }
  bool revoke(RegionKey) override { return revoked; }
  void close() override { closed = true; }
  bool drained() override { return closed && is_drained; }
  bool give_back() override { return pieces-- == 0; }
  const wire::ExecutedSet& executed() const noexcept override { return executed_set; }
  LinkSeq sequence_of(std::uint64_t cookie) const noexcept override {
    const auto found = numbers.find(cookie);
    return found == numbers.end() ? 0 : found->second;
  }
  bool abandon(std::uint64_t cookie) override {
    if (kept.contains(cookie)) return false;
    std::erase_if(done_, [cookie](const links::Completion& item) { return item.cookie == cookie; });
    abandoned.insert(cookie);
    return true;
  }
  Instant last_heard() const noexcept override { return {}; }
  Traffic traffic() const noexcept override { return {}; }

 private:
  const links::LinkCaps caps_;
  std::deque<links::Completion> done_;
};

class FakeFactory final : public links::LinkFactory {
 public:
  explicit FakeFactory(const links::LinkCaps& caps = {}) : caps_(caps) {}
  const links::LinkCaps& caps() const noexcept override { return caps_; }
  Result<void> available() const override { return {}; }
  std::unique_ptr<links::Link> make(const links::LinkIdentity& identity, std::unique_ptr<links::FrameStream>,
                                    const links::LinkServices&, links::LinkEvents& events) override {
    auto link = std::make_unique<FakeLink>(caps_, identity, events);
    newest = link.get();
    return link;
  }
  FakeLink* newest = nullptr;

 private:
  const links::LinkCaps caps_;
};

}  // namespace hixl::peer::test
