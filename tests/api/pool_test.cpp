// SPDX-License-Identifier: Apache-2.0
//
// Many links as one, from outside: options of addresses and limits, prewarm(), what links() tells, and what a failed
// end tells of its bytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "pattern.hpp"
#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k_bytes = 8U << 20U;

struct Two {
  explicit Two(const RuntimeOptions& like) {
    auto made = Store::create("tcp://127.0.0.1:0");
    require_ok(made);
    store = std::move(*made);
    for (Rank rank = 0; rank < 2; ++rank) {
      auto options = like;
      options.rank = rank;
      options.world_size = 2;
      options.store = store->url();
      auto runtime = Runtime::create(options);
      require_ok(runtime);
      ranks[rank] = std::move(*runtime);
      auto region = ranks[rank]->allocate(k_bytes);
      require_ok(region);
      regions[rank] = *region;
    }
    Answer<std::vector<PeerAddresses>> one, other;
    const Rank first = 0, second = 1;
    require_ok(ranks[0]->exchange_async({&regions[0], 1}, {&second, 1}, k_patience, store_answers, &one));
    require_ok(ranks[1]->exchange_async({&regions[1], 1}, {&first, 1}, k_patience, store_answers, &other));
    REQUIRE(one.wait());
    REQUIRE(other.wait());
    require_ok(one.value.front().result);
    remote = one.value.front().regions.front();
  }
  [[nodiscard]] std::vector<LinkInfo> tcp_links() {
    std::vector<LinkInfo> found;
    for (LinkInfo& link : ranks[0]->links()) {
      if (link.kind == LinkKind::tcp && link.state != "OFF") found.push_back(std::move(link));
    }
    return found;
  }

  std::unique_ptr<Store> store;
  std::unique_ptr<Runtime> ranks[2];
  Region regions[2];
  RemoteRegion remote;
};

RuntimeOptions tcp_options() { return options_for(0, 2, "", {LinkKind::tcp}); }

}  // namespace

TEST_CASE("P30 two addresses are two tcp links, which share a put") {
  RuntimeOptions options = tcp_options();
  options.bind = "127.0.0.1, 127.0.0.2";
  options.max_bandwidth = {100'000'000, 100'000'000};  // so that one alone is not done before the other begins
  Two two(options);
  const Rank other = 1;
  require_ok(two.ranks[0]->prewarm({&other, 1}, k_patience));
  const auto links = two.tcp_links();
  REQUIRE(links.size() == 2);
  std::set<std::uint16_t> ids;
  for (const LinkInfo& link : links) {
    CHECK(link.up);
    CHECK(link.chosen);
    CHECK(link.share == 100);
    ids.insert(link.id);
  }
  CHECK(ids.size() == 2);
  fill_pattern(two.regions[0].data, k_bytes, 3);
  for (int i = 0; i < 4; ++i)
    require_ok(two.ranks[0]->put_sync(two.regions[0].data, two.remote.at(0), k_bytes, k_patience));
  CHECK(holds_pattern(two.regions[1].data, k_bytes, 3));
  std::uint64_t sum = 0;
  for (const LinkInfo& link : two.tcp_links()) {
    CHECK(link.bytes_out > 0);
    CHECK(link.busy > 0ns);
    sum += link.bytes_out;
  }
  CHECK(sum == 4 * k_bytes);
}

TEST_CASE("prewarm: all links at once; oneself, nobody, ranks that do not exist or do not come") {
  RuntimeOptions options = tcp_options();
  options.tcp_links = 4;
  Two two(options);
  const Rank all[] = {0, 1};
  require_ok(two.ranks[0]->prewarm(all, k_patience));
  const auto links = two.tcp_links();
  CHECK(links.size() == 4);
  CHECK(std::all_of(links.begin(), links.end(), [](const LinkInfo& link) { return link.up; }));
  require_ok(two.ranks[0]->prewarm({}, k_patience));
  const Rank none = 7;
  CHECK(code_of(two.ranks[0]->prewarm({&none, 1}, k_patience)) == ErrorCode::rank_out_of_range);
  Answer<Result<void>> answer;
  require_ok(two.ranks[0]->prewarm_async(all, k_patience, store_result, &answer));
  REQUIRE(answer.wait());
  require_ok(answer.value);
  CHECK(code_of(two.ranks[0]->prewarm_async(all, k_patience, nullptr, nullptr)) == ErrorCode::invalid_argument);

  // A rank that never comes.
  auto alone = options_for(0, 2, two.store->url());
  auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  alone.store = (*store)->url();
  auto runtime = Runtime::create(alone);
  require_ok(runtime);
  const Rank absent = 1;
  const auto refused = (*runtime)->prewarm({&absent, 1}, 50ms);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().detail.rank == 1);
  CHECK(refused.error().detail.stage == Stage::rendezvous);
}

TEST_CASE("P31 lists of addresses that cannot be: said at once") {
  const auto start = [](const std::string& bind, const std::string& advertise = "") {
    RuntimeOptions options = options_for(0, 1, "", {LinkKind::tcp});
    options.bind = bind;
    options.advertise = advertise;
    return code_of(Runtime::create(options));
  };
  CHECK(start("127.0.0.1,") == ErrorCode::invalid_argument);
  CHECK(start(",127.0.0.1") == ErrorCode::invalid_argument);
  CHECK(start("127.0.0.1,,127.0.0.2") == ErrorCode::invalid_argument);
  CHECK(start(" , ") == ErrorCode::invalid_argument);
  CHECK(start("127.0.0.1,127.0.0.2", "127.0.0.1") == ErrorCode::invalid_argument);
  CHECK(start("127.0.0.1", "127.0.0.1,127.0.0.2") == ErrorCode::invalid_argument);
  CHECK(start("127.0.0.1:99999") == ErrorCode::invalid_argument);
  CHECK(start("127.0.0.1,10.99.99.99") == ErrorCode::security_required);
  std::string many = "127.0.0.1";
  for (int i = 2; i <= 17; ++i) many += ",127.0.0." + std::to_string(i);
  CHECK(start(many) == ErrorCode::invalid_argument);
  CHECK(start("127.0.0.1, [::1]:0") == ErrorCode::ok);
  CHECK(start("127.0.0.1:0,127.0.0.2:0", "127.0.0.9:4711, localhost") == ErrorCode::ok);

  // A port that is taken: by the first, of the second's list.
  auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  const std::string port = (*store)->url().substr((*store)->url().rfind(':') + 1);
  CHECK(start("127.0.0.2,127.0.0.1:" + port) == ErrorCode::address_in_use);

  RuntimeOptions options = options_for(0, 1, "");
  options.max_bandwidth = {0, 1000};
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);
  options.max_bandwidth = {0, k_bandwidth_min};
  CHECK(code_of(options.validate()) == ErrorCode::ok);
  options.tcp_links = k_tcp_links_max + 1;
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);
  options.tcp_links = 1;
  options.stall = 1ms;
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);
  options.stall = 200ms;
  options.retry.count = 101;
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);
}

TEST_CASE("a put that fails tells which of its bytes are there, and no others are claimed") {
  RuntimeOptions options = tcp_options();
  options.max_bandwidth = {8U << 20U};  // 1 MiB chunks: the second one waits for an eighth of a second
  Two two(options);
  fill_pattern(two.regions[0].data, k_bytes, 5);
  Answer<Completion> answer;
  auto put = two.ranks[0]->put(two.regions[0].data, two.remote.at(0), k_bytes,
                               {.timeout = 300ms,
                                .callback = {.function =
                                                 [](void* context, const Completion& completion) {
                                                   auto& here = *static_cast<Answer<Completion>*>(context);
                                                   here.value = completion;
                                                   here.events.add();
                                                 },
                                             .context = &answer}});
  require_ok(put);
  REQUIRE(answer.wait());
  REQUIRE(code_of(answer.value.result) == ErrorCode::deadline_exceeded);
  std::uint64_t told = 0;
  for (const ByteRange& range : answer.value.written) {
    told += range.end - range.begin;
    CHECK(std::equal(two.regions[0].data + range.begin, two.regions[0].data + range.end,
                     two.regions[1].data + range.begin));
  }
  CHECK(told == answer.value.bytes);
  CHECK(told < k_bytes);
}

TEST_CASE("a window link with a limit keeps to it also for callers' own puts") {
  RuntimeOptions options = options_for(0, 2, "", {LinkKind::hccs});
  options.max_bandwidth = {std::uint64_t{1} << 40U};  // so high that only the rule shows, not the time
  Two two(options);
  fill_pattern(two.regions[0].data, 64, 6);
  require_ok(two.ranks[0]->put_sync(two.regions[0].data, two.remote.at(0), 64, k_patience));
  CHECK(holds_pattern(two.regions[1].data, 64, 6));
  CHECK(two.ranks[0]->counters().lane_operations == 0);
}
