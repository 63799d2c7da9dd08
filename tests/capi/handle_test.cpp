// SPDX-License-Identifier: Apache-2.0
//
// Handles under threads: ranks that end while others are inside, requests that several threads wait for, answers that
// are remembered, and nothing left behind.
#include <doctest/doctest.h>

#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <hixl/hixl.h>
#include <hixl/store.hpp>

namespace {

constexpr int k_patience_ms = 30'000;

int rounds(int full) {
  const char* scale = std::getenv("HIXL_TEST_SCALE");
  return std::max(1, static_cast<int>(full * (scale == nullptr ? 1.0 : std::strtod(scale, nullptr))));
}

std::uint64_t address(const void* data) { return reinterpret_cast<std::uint64_t>(data); }

struct Alone {
  explicit Alone(std::uint32_t requests_max = 0) {
    hixl_init_info_t info{};
    info.rank_size = 1;
    info.requests_max = requests_max;
    REQUIRE(hixl_init(&ctx, &info) == HIXL_OK);
    REQUIRE(hixl_alloc(ctx, 1 << 20, &data) == HIXL_OK);
  }
  ~Alone() { CHECK(hixl_finalize(ctx) == HIXL_OK); }
  [[nodiscard]] hixl_status_t put(hixl_request_t* req) const {
    return hixl_put_async(ctx, address(data), address(data) + 4096, 4096, 0, req);
  }
  hixl_ctx_t ctx = nullptr;
  void* data = nullptr;
};

std::size_t descriptors() {
  std::size_t count = 0;
  DIR* const directory = ::opendir("/proc/self/fd");
  REQUIRE(directory != nullptr);
  while (::readdir(directory) != nullptr) count += 1;
  ::closedir(directory);
  return count;
}

}  // namespace

TEST_CASE("a thousand ranks come and go, and leave no descriptor") {
  { const Alone first; }
  const std::size_t before = descriptors();
  for (int i = 0; i < rounds(1000); ++i) {
    hixl_init_info_t info{};
    info.rank_size = 1;
    hixl_ctx_t ctx = nullptr;
    REQUIRE(hixl_init(&ctx, &info) == HIXL_OK);
    REQUIRE(hixl_finalize(ctx) == HIXL_OK);
    REQUIRE(hixl_finalize(ctx) == HIXL_ERR_INVALID_HANDLE);
  }
  CHECK(descriptors() == before);
}

TEST_CASE("ten thousand views of one rank cost no more than their handles") {
  const Alone one;
  const std::size_t before = descriptors();
  std::vector<hixl_ctx_t> views(static_cast<std::size_t>(rounds(10'000)));
  hixl_init_info_t info{};
  info.rank_size = 1;
  for (hixl_ctx_t& view : views) REQUIRE(hixl_init(&view, &info) == HIXL_OK);
  CHECK(descriptors() == before);
  CHECK(hixl_put_sync(views.back(), address(one.data), address(one.data) + 64, 8, 0) == HIXL_OK);
  for (const hixl_ctx_t view : views) REQUIRE(hixl_finalize(view) == HIXL_OK);
  CHECK(hixl_put_sync(one.ctx, address(one.data), address(one.data) + 64, 8, 0) == HIXL_OK);
}

TEST_CASE("an answer is given again, also by copies and other threads, until the ring has come round") {
  const Alone one(16);
  hixl_request_t first = nullptr;
  REQUIRE(one.put(&first) == HIXL_OK);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&right, copy = first]() mutable { right += hixl_wait(&copy) == HIXL_OK ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 4);
  for (int i = 0; i < 16; ++i) {  // as many as there are requests
    CHECK(hixl_query(first) == HIXL_OK);
    hixl_request_t next = nullptr;
    REQUIRE(one.put(&next) == HIXL_OK);
    REQUIRE(hixl_wait(&next) == HIXL_OK);
  }
  for (int i = 0; i < 50'000; ++i) {  // more than the ring has places
    hixl_request_t next = nullptr;
    REQUIRE(one.put(&next) == HIXL_OK);
    REQUIRE(hixl_wait(&next) == HIXL_OK);
    REQUIRE(next != first);
  }
  CHECK(hixl_query(first) == HIXL_ERR_INVALID_REQUEST);
  CHECK(hixl_wait(&first) == HIXL_ERR_INVALID_REQUEST);
}

TEST_CASE("a thread that posts seldom does not take the place of an answer that was given a moment ago") {
  const Alone one(16);
  const auto place = [](hixl_request_t request) { return address(request) & ((1U << 22U) - 1); };
  const auto post = [&] {
    hixl_request_t request = nullptr;
    REQUIRE(one.put(&request) == HIXL_OK);
    REQUIRE(hixl_wait(&request) == HIXL_OK);
    return request;
  };
  std::promise<std::uint64_t> first;
  std::promise<void> again;
  std::thread seldom([&] {
    hixl_request_t request = post();
    while (place(request) % 8 != 0) request = post();  // the first of those that a thread takes at once
    first.set_value(place(request));
    again.get_future().wait();
    static_cast<void>(post());
  });
  const std::uint64_t next = first.get_future().get() + 1;
  hixl_request_t mine = post();
  while (place(mine) != next) mine = post();
  again.set_value();
  seldom.join();
  CHECK(hixl_query(mine) == HIXL_OK);
}

TEST_CASE("requests that nobody looks at make the next post BUSY; looking or dropping makes room") {
  const Alone one(8);
  std::vector<hixl_request_t> requests(8);
  for (std::size_t i = 0; i < 7; ++i) REQUIRE(one.put(&requests[i]) == HIXL_OK);
  hixl_request_t more = nullptr;
  hixl_status_t status = one.put(&more);
  if (status == HIXL_OK) status = one.put(&requests[7]);  // the runtime keeps one for itself until it has joined
  CHECK(status == HIXL_ERR_BUSY);
  CHECK(hixl_wait(&requests[0]) == HIXL_OK);
  CHECK(one.put(&requests[0]) == HIXL_OK);
  hixl_request_t dropped = requests[1];
  CHECK(hixl_request_drop(&requests[1]) == HIXL_OK);
  CHECK(requests[1] == nullptr);
  CHECK(hixl_query(dropped) == HIXL_ERR_INVALID_REQUEST);
  CHECK(hixl_flush(one.ctx, 0, k_patience_ms) == HIXL_OK);
  CHECK(one.put(&requests[1]) == HIXL_OK);
}

TEST_CASE("a post that was BUSY has ended, with an error that does not say that it is under way") {
  const Alone one(8);
  std::vector<hixl_request_t> requests(16);
  std::size_t posted = 0;
  while (one.put(&requests[posted]) == HIXL_OK) posted += 1;
  REQUIRE(posted < 9);
  CHECK(hixl_last_status() == HIXL_ERR_BUSY);
  hixl_request_t& refused = requests[posted];
  CHECK(hixl_query(refused) == HIXL_ERR_LIMIT_REACHED);
  CHECK(hixl_wait(&refused) == HIXL_ERR_LIMIT_REACHED);
  CHECK(hixl_wait_all(posted + 1, requests.data(), nullptr, k_patience_ms) == HIXL_ERR_LIMIT_REACHED);
}

TEST_CASE("a wait for all that is over while one is under way says so, whatever another has ended with") {
  const Alone one;
  std::promise<void> go;
  const auto hold = [](hixl_status_t, void* held) { static_cast<std::promise<void>*>(held)->get_future().wait(); };
  hixl_request_t requests[2] = {};
  // While the loop stands still in a callback, what is posted stays under way.
  REQUIRE(hixl_put_callback(one.ctx, address(one.data), address(one.data) + 4096, 4096, 0, hold, &go, nullptr) ==
          HIXL_OK);
  CHECK(hixl_put_async(one.ctx, address(one.data), 16, 4096, 0, &requests[0]) == HIXL_ERR_NOT_REGISTERED);
  REQUIRE(one.put(&requests[1]) == HIXL_OK);
  hixl_status_t statuses[2] = {};
  CHECK(hixl_wait_all(2, requests, statuses, 1) == HIXL_ERR_DEADLINE_EXCEEDED);
  CHECK(statuses[0] == HIXL_ERR_NOT_REGISTERED);
  CHECK(statuses[1] == HIXL_ERR_BUSY);
  std::size_t index = 9;
  CHECK(hixl_wait_any(1, &requests[1], &index, 1) == HIXL_ERR_DEADLINE_EXCEEDED);
  CHECK(index == 1);
  go.set_value();
  CHECK(hixl_wait_all(2, requests, statuses, k_patience_ms) == HIXL_ERR_NOT_REGISTERED);
  CHECK(statuses[1] == HIXL_OK);
  CHECK(hixl_wait_all(1, nullptr, statuses, 1) == HIXL_ERR_INVALID_ARGUMENT);
  CHECK(statuses[0] == HIXL_ERR_BUSY);  // nothing is left from before
}

TEST_CASE("a request may be in a list twice") {
  const Alone one;
  for (int round = 0; round < rounds(500); ++round) {
    hixl_request_t requests[3] = {};
    REQUIRE(one.put(&requests[0]) == HIXL_OK);
    REQUIRE(one.put(&requests[1]) == HIXL_OK);
    requests[2] = requests[0];
    std::size_t index = 9;
    CHECK(hixl_wait_any(3, requests, &index, k_patience_ms) == HIXL_OK);
    CHECK(index < 3);
    CHECK(hixl_wait_all(3, requests, nullptr, k_patience_ms) == HIXL_OK);
  }
}

TEST_CASE("threads wait for, query and cancel the same requests at once") {
  const Alone one;
  for (int round = 0; round < rounds(300); ++round) {
    hixl_request_t requests[4];
    for (hixl_request_t& request : requests) REQUIRE(one.put(&request) == HIXL_OK);
    const auto use = [&](int which) {
      for (hixl_request_t request : requests) {
        const hixl_status_t status = which == 0   ? hixl_wait(&request)
                                     : which == 1 ? hixl_query(request)
                                     : which == 2 ? hixl_cancel(request)
                                                  : hixl_wait_timeout(&request, 1000);
        CHECK((status == HIXL_OK || status == HIXL_ERR_CANCELLED || (which == 1 && status == HIXL_ERR_BUSY)));
      }
    };
    std::vector<std::thread> threads;
    for (int which = 0; which < 4; ++which) threads.emplace_back(use, which);
    for (std::thread& thread : threads) thread.join();
    std::size_t index = 9;
    CHECK(hixl_wait_any(4, requests, &index, 1000) != HIXL_ERR_DEADLINE_EXCEEDED);
    CHECK(index < 4);
  }
}

TEST_CASE("a rank ends while threads are inside it: each gets an answer") {
  for (int round = 0; round < rounds(30); ++round) {
    auto one = std::make_unique<Alone>();
    std::atomic<int> inside{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i, ctx = one->ctx, at = address(one->data)] {
        inside += 1;
        hixl_status_t status = HIXL_OK;
        while (status == HIXL_OK || status == HIXL_ERR_BUSY) {
          hixl_request_t request = nullptr;
          status = i == 0   ? hixl_put_sync(ctx, at, at + 64, 8, 0)
                   : i == 1 ? hixl_put_async(ctx, at, at + 64, 64, 0, &request)
                   : i == 2 ? hixl_barrier(ctx)
                            : hixl_wait_signal(ctx, at + 512, 1, k_patience_ms, nullptr);
          if (request != nullptr) static_cast<void>(hixl_wait(&request));
        }
        CHECK((status == HIXL_ERR_STOPPED || status == HIXL_ERR_INVALID_HANDLE || status == HIXL_ERR_STALE ||
               status == HIXL_ERR_NOT_REGISTERED));
      });
    }
    while (inside < 4) std::this_thread::yield();
    one.reset();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_CASE("two threads end the same view: one does, the other is told that it is over") {
  for (int round = 0; round < rounds(100); ++round) {
    const Alone one;
    hixl_init_info_t info{};
    info.rank_size = 1;
    hixl_ctx_t view = nullptr;
    REQUIRE(hixl_init(&view, &info) == HIXL_OK);
    std::atomic<int> ended{0};
    const auto end = [&] {
      const hixl_status_t status = hixl_finalize(view);
      if (status == HIXL_OK) ended += 1;
      CHECK((status == HIXL_OK || status == HIXL_ERR_INVALID_HANDLE));
    };
    std::thread other(end);
    end();
    other.join();
    CHECK(ended == 1);
    CHECK(hixl_barrier(one.ctx) == HIXL_OK);
  }
}

#ifndef __SANITIZE_THREAD__  // which ends a child that begins threads
TEST_CASE("another process with the same rank is a conflict, and a program may end without finalize") {
  auto store = hixl::Store::create("tcp://127.0.0.1:0");
  REQUIRE(store.has_value());
  const auto join = [&](int rank, hixl_ctx_t& ctx) {
    hixl_init_info_t info{};
    info.rank_id = rank;
    info.rank_size = 2;
    info.store = (*store)->url().c_str();
    return hixl_init(&ctx, &info);
  };
  hixl_ctx_t mine = nullptr;
  const pid_t child = fork();  // before this process has threads of its own ranks
  REQUIRE(child >= 0);
  if (child == 0) {
    int wait[2];
    static_cast<void>(pipe(wait));
    hixl_ctx_t ctx = nullptr;
    hixl_status_t status = join(0, ctx);
    if (status == HIXL_OK) status = hixl_barrier_timeout(ctx, k_patience_ms);
    hixl_ctx_t other = nullptr;
    if (status == HIXL_OK) status = join(1, other) == HIXL_ERR_RANK_CONFLICT ? HIXL_OK : HIXL_ERR_INTERNAL;
    exit(status == HIXL_OK ? 0 : 1);  // without hixl_finalize
  }
  REQUIRE(join(1, mine) == HIXL_OK);
  CHECK(hixl_barrier_timeout(mine, k_patience_ms) == HIXL_OK);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(hixl_finalize(mine) == HIXL_OK);
}
#endif

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // their shadow memory needs all of the address space
TEST_CASE("no memory for a rank is a code of its own") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    unsigned long pages = 0;
    FILE* const file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%lu", &pages) != 1) _exit(2);
    std::fclose(file);
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = pages * static_cast<unsigned long>(sysconf(_SC_PAGESIZE)) + (4U << 20U);
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    hixl_init_info_t info{};
    info.rank_size = 1;
    info.requests_max = 131'072;
    hixl_ctx_t ctx = nullptr;
    const hixl_status_t status = hixl_init(&ctx, &info);
    _exit(status == HIXL_ERR_NO_MEMORY && ctx == nullptr ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
#endif

TEST_CASE("an operation under way when its rank ends is ended, and its request tells how") {
  hixl_request_t request = nullptr;
  {
    const Alone one;
    for (int i = 0; i < 64; ++i) REQUIRE(one.put(&request) == HIXL_OK);
    CHECK(hixl_finalize_timeout(one.ctx, -5) == HIXL_ERR_INVALID_ARGUMENT);
    CHECK(hixl_rank(one.ctx) == 0);  // it still is
  }
  CHECK((hixl_wait(&request) == HIXL_OK || hixl_query(request) == HIXL_ERR_STOPPED));
}
