// SPDX-License-Identifier: Apache-2.0
//
// What the C interface adds to the C++ one: the same call on two pairs of ranks of this process, one pair made by
// hixl_init(), the other by Runtime::create(), in turns. Data is verified.
//   capi_bench [--smoke]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <hixl/hixl.h>
#include <hixl/runtime.hpp>
#include <hixl/store.hpp>

namespace {

using Clock = std::chrono::steady_clock;

/// A pair of ranks in C++: rank 0 puts into rank 1.
struct CppPair {
  std::unique_ptr<hixl::Store> store;
  std::unique_ptr<hixl::Runtime> here;
  std::unique_ptr<hixl::Runtime> there;
  hixl::Region source{};
  hixl::Region target{};
  hixl::RemoteAddress remote{};
};
struct CPair {
  std::unique_ptr<hixl::Store> store;
  hixl_ctx_t here = nullptr;
  hixl_ctx_t there = nullptr;
  void* source = nullptr;
  void* target = nullptr;
};

[[noreturn]] void give_up(const char* step, const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", step, why.c_str());
  std::exit(1);
}
template <class Value>
Value need(const char* step, hixl::Result<Value>&& result) {
  if (!result) give_up(step, result.error().message());
  return std::move(*result);
}
void need(hixl_status_t status, const char* step) {
  if (status != HIXL_OK) give_up(step, hixl_last_error());
}

CppPair make_cpp() {
  CppPair pair;
  pair.store = need("store", hixl::Store::create("tcp://127.0.0.1:0"));
  hixl::RuntimeOptions options;
  options.world_size = 2;
  options.store = pair.store->url();
  pair.here = need("rank 0", hixl::Runtime::create(options));
  options.rank = 1;
  pair.there = need("rank 1", hixl::Runtime::create(options));
  pair.source = need("source", pair.here->allocate(1 << 16));
  pair.target = need("target", pair.there->allocate(1 << 16));
  const hixl::Rank zero = 0;
  const hixl::Rank one = 1;
  std::thread other([&] { static_cast<void>(pair.there->exchange({&pair.target, 1}, {&zero, 1})); });
  const auto told = pair.here->exchange({&pair.source, 1}, {&one, 1});
  other.join();
  if (!told[0].result) give_up("exchange", told[0].result.error().message());
  // The address alone, as the C interface names it.
  pair.remote = {.rank = 1, .address = told[0].regions[0].base};
  return pair;
}

CPair make_c() {
  CPair pair;
  pair.store = need("store", hixl::Store::create("tcp://127.0.0.1:0"));
  hixl_init_info_t info{};
  info.rank_size = 2;
  info.store = pair.store->url().c_str();
  need(hixl_init(&pair.here, &info), "rank 0");
  info.rank_id = 1;
  need(hixl_init(&pair.there, &info), "rank 1");
  need(hixl_alloc(pair.here, 1 << 16, &pair.source), "source");
  need(hixl_alloc(pair.there, 1 << 16, &pair.target), "target");
  hixl_comm_t worlds[2];
  need(hixl_comm_world(pair.here, &worlds[0]), "comm");
  need(hixl_comm_world(pair.there, &worlds[1]), "comm");
  const auto mine = reinterpret_cast<std::uint64_t>(pair.source);
  const auto theirs = reinterpret_cast<std::uint64_t>(pair.target);
  std::thread other([&] { need(hixl_address_exchange(worlds[1], &theirs, 1, 0), "exchange"); });
  need(hixl_address_exchange(worlds[0], &mine, 1, 1), "exchange");
  other.join();
  return pair;
}

/// Nanoseconds a call, over `calls` of them.
template <class Call>
double time_of(int calls, Call&& call) {
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) call(i);
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / calls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Both in turns, so that a busy machine is busy for both.
template <class Cpp, class C>
void compare(const char* what, int rounds, int calls, Cpp&& cpp, C&& c) {
  std::vector<double> cpp_ns;
  std::vector<double> c_ns;
  std::vector<double> added;
  for (int round = 0; round < rounds; ++round) {
    cpp_ns.push_back(time_of(calls, cpp));
    c_ns.push_back(time_of(calls, c));
    added.push_back(c_ns.back() - cpp_ns.back());
  }
  std::printf("{\"call\": \"%s\", \"cpp_ns\": %.1f, \"c_ns\": %.1f, \"added_ns_p50\": %.1f, \"rounds\": %d}\n", what,
              median(cpp_ns), median(c_ns), median(added), rounds);
}

}  // namespace

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::strcmp(argv[1], "--smoke") == 0;
  const int rounds = smoke ? 3 : 301;
  const int calls = smoke ? 100 : 10'000;
  CppPair cpp = make_cpp();
  CPair c = make_c();
  auto* const cpp_source = reinterpret_cast<std::uint64_t*>(cpp.source.data);
  auto* const c_source = static_cast<std::uint64_t*>(c.source);
  const auto c_local = reinterpret_cast<std::uint64_t>(c.source);
  const auto c_remote = reinterpret_cast<std::uint64_t>(c.target);
  bool right = true;
  for (const std::size_t size : {std::size_t{8}, std::size_t{4096}}) {
    compare(
        size == 8 ? "put_sync 8 B" : "put_sync 4 KiB", rounds, calls,
        [&](int i) {
          *cpp_source = static_cast<std::uint64_t>(i) + 1;
          right = cpp.here->put_sync(cpp_source, cpp.remote, size).has_value() && right;
        },
        [&](int i) {
          *c_source = static_cast<std::uint64_t>(i) + 1;
          right = hixl_put_sync(c.here, c_local, c_remote, size, 1) == HIXL_OK && right;
        });
    right = right && *reinterpret_cast<const std::uint64_t*>(cpp.target.data) == static_cast<std::uint64_t>(calls) &&
            *static_cast<const std::uint64_t*>(c.target) == static_cast<std::uint64_t>(calls);
  }
  std::uint64_t before = 0;
  compare(
      "fetch_add", rounds, calls, [&](int) { right = cpp.here->fetch_add_sync(cpp.remote, 1).has_value() && right; },
      [&](int) { right = hixl_atomic_fetch_add(c.here, c_remote, 1, 1, &before) == HIXL_OK && right; });
  compare(
      "post and wait of a put, 4 KiB", rounds, calls / 10,
      [&](int) {
        auto request = cpp.here->put(cpp_source, cpp.remote, 4096);
        right = request && request->wait() && right;
      },
      [&](int) {
        hixl_request_t request = nullptr;
        static_cast<void>(hixl_put_async(c.here, c_local, c_remote, 4096, 1, &request));
        right = hixl_wait(&request) == HIXL_OK && right;
      });
  need(hixl_finalize(c.here), "finalize");
  need(hixl_finalize(c.there), "finalize");
  if (!right) give_up("data", "a call failed, or the bytes are not there");
  return 0;
}
