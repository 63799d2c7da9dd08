// SPDX-License-Identifier: Apache-2.0
//
// Closing what other threads are inside of, and what may be called in callbacks: nobody waits for somebody who waits
// for him.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <hixl/hixl.h>
#include <hixl/store.hpp>

namespace {

constexpr int k_patience_ms = 30'000;

std::uint64_t address(const void* data) { return reinterpret_cast<std::uint64_t>(data); }

/// A world of one rank, one of several in this process.
struct Single {
  explicit Single(const char* job) {
    hixl_init_info_t info{};
    info.rank_size = 1;
    info.job = job;
    REQUIRE(hixl_init(&ctx, &info) == HIXL_OK);
    REQUIRE(hixl_alloc(ctx, 1 << 16, &data) == HIXL_OK);
    REQUIRE(hixl_connect_sized(ctx, 0, 4096, k_patience_ms, &conn) == HIXL_OK);
  }
  ~Single() { CHECK(hixl_finalize(ctx) == HIXL_OK); }
  hixl_ctx_t ctx = nullptr;
  void* data = nullptr;
  hixl_conn_t conn = nullptr;
};

/// Runs it in a callback of that rank.
void in_callback(const Single& one, const std::function<void()>& what) {
  struct Run {
    const std::function<void()>& what;
    std::promise<void> over{};
  } run{what};
  const auto call = [](hixl_status_t status, void* context) {
    CHECK(status == HIXL_OK);
    auto& mine = *static_cast<Run*>(context);
    mine.what();
    mine.over.set_value();
  };
  REQUIRE(hixl_put_callback(one.ctx, address(one.data), address(one.data) + 4096, 512, 0, call, &run, nullptr) ==
          HIXL_OK);
  run.over.get_future().wait();
}

}  // namespace

TEST_CASE("a disconnect ends the calls that wait in the connection") {
  const Single one("close");
  for (int round = 0; round < 5; ++round) {
    hixl_conn_t conn = one.conn;
    if (round > 0) REQUIRE(hixl_connect_sized(one.ctx, 0, 4096, k_patience_ms, &conn) == HIXL_OK);
    std::atomic<int> begun{0};
    const auto over = [&](hixl_status_t status) {
      CHECK((status == HIXL_ERR_CANCELLED || status == HIXL_ERR_INVALID_HANDLE));
    };
    std::thread sending([&] {
      hixl_status_t status = HIXL_OK;
      for (begun += 1; status == HIXL_OK;) status = hixl_send_timeout(conn, "text", 5, k_patience_ms);
      over(status);
    });
    std::thread receiving([&] {
      const void* data = nullptr;
      std::size_t size = 0;
      hixl_status_t status = HIXL_OK;
      for (begun += 1; status == HIXL_OK;) status = hixl_recv(conn, &data, &size, k_patience_ms);
      over(status);
    });
    while (begun < 2) std::this_thread::yield();
    CHECK(hixl_disconnect(conn) == HIXL_OK);
    CHECK(hixl_disconnect(conn) == HIXL_ERR_INVALID_HANDLE);
    sending.join();
    receiving.join();
  }
}

TEST_CASE("messages in callbacks: what might wait is refused, also in those of another rank, and one look is allowed") {
  const Single one("close-a");
  const Single other("close-b");
  HIXL_BatchDescriptor_t batch = nullptr;
  REQUIRE(HIXL_BatchInit(&batch) == HIXL_OK);
  for (const Single* const home : {&one, &other}) {
    in_callback(*home, [&] {
      const void* data = &one;
      std::size_t size = 7;
      hixl_conn_t conn = nullptr;
      CHECK(hixl_send(one.conn, "text", 5) == HIXL_ERR_WOULD_DEADLOCK);
      CHECK(hixl_recv(one.conn, &data, &size, 5) == HIXL_ERR_WOULD_DEADLOCK);
      CHECK(hixl_recv(one.conn, &data, &size, 0) == HIXL_ERR_DEADLINE_EXCEEDED);
      CHECK(data == nullptr);
      CHECK(hixl_connect(one.ctx, 0, 5, &conn) == HIXL_ERR_WOULD_DEADLOCK);
      CHECK(hixl_disconnect(one.conn) == HIXL_ERR_WOULD_DEADLOCK);
    });
  }
  REQUIRE(hixl_send(one.conn, "text", 5) == HIXL_OK);
  in_callback(other, [&] {
    const void* data = nullptr;
    std::size_t size = 0;
    CHECK(hixl_recv(one.conn, &data, &size, 0) == HIXL_OK);
    CHECK(std::string(static_cast<const char*>(data)) == "text");
    CHECK(hixl_recv_release(one.conn, data) == HIXL_OK);
    CHECK(HIXL_BatchDestroy(&batch) == HIXL_OK);
  });
  CHECK(batch == nullptr);
}

TEST_CASE("waiting in callbacks is refused, also for operations and ranks whose loop is another one") {
  const Single one("close-a");
  const Single other("close-b");
  std::promise<void> go;
  std::promise<void> held;
  struct Hold {
    std::promise<void>& go;
    std::promise<void>& held;
  } hold{go, held};
  const auto stand_still = [](hixl_status_t, void* context) {
    auto& mine = *static_cast<Hold*>(context);
    mine.held.set_value();
    mine.go.get_future().wait();
  };
  hixl_request_t request = nullptr;
  hixl_request_t ended = nullptr;
  REQUIRE(hixl_put_async(one.ctx, address(one.data), address(one.data) + 4096, 512, 0, &ended) == HIXL_OK);
  REQUIRE(hixl_wait(&ended) == HIXL_OK);
  // While the one's loop stands still, what is posted there stays under way.
  REQUIRE(hixl_put_callback(one.ctx, address(one.data), address(one.data) + 4096, 512, 0, stand_still, &hold,
                            nullptr) == HIXL_OK);
  held.get_future().wait();
  REQUIRE(hixl_put_async(one.ctx, address(one.data), address(one.data) + 4096, 512, 0, &request) == HIXL_OK);
  in_callback(other, [&] {
    hixl_request_t both[2] = {ended, request};
    hixl_status_t statuses[2] = {};
    std::size_t index = 9;
    std::uint64_t seen = 7;
    hixl_comm_t comm = nullptr;
    const int rank = 0;
    CHECK(hixl_wait(&request) == HIXL_ERR_WOULD_DEADLOCK);
    CHECK(hixl_wait_timeout(&request, 5) == HIXL_ERR_WOULD_DEADLOCK);
    CHECK(hixl_wait(&ended) == HIXL_OK);
    CHECK(hixl_wait_all(2, both, statuses, 5) == HIXL_ERR_WOULD_DEADLOCK);
    CHECK(statuses[0] == HIXL_OK);
    CHECK(statuses[1] == HIXL_ERR_BUSY);
    CHECK(hixl_wait_any(1, &request, &index, 5) == HIXL_ERR_WOULD_DEADLOCK);
    CHECK(hixl_wait_any(2, both, &index, 5) == HIXL_OK);
    CHECK(index == 0);
    CHECK(hixl_flush(one.ctx, 0, 5) == HIXL_ERR_WOULD_DEADLOCK);
    CHECK(hixl_quiet(one.ctx, 5) == HIXL_ERR_WOULD_DEADLOCK);
    CHECK(hixl_barrier(one.ctx) == HIXL_ERR_WOULD_DEADLOCK);
    CHECK(hixl_comm_create(one.ctx, &comm, 1, &rank) == HIXL_ERR_WOULD_DEADLOCK);
    CHECK(hixl_wait_signal(one.ctx, address(one.data), UINT64_MAX, 5, &seen) == HIXL_ERR_WOULD_DEADLOCK);
    CHECK(hixl_wait_signal(one.ctx, address(one.data), UINT64_MAX, 0, &seen) == HIXL_ERR_DEADLINE_EXCEEDED);
    CHECK(hixl_wait_signal(one.ctx, address(one.data), 0, 5, &seen) == HIXL_OK);
  });
  go.set_value();
  CHECK(hixl_wait(&request) == HIXL_OK);
}

TEST_CASE("closing waits no longer than a call that names no time; what is still in use goes later") {
  auto store = hixl::Store::create("tcp://127.0.0.1:0");
  REQUIRE(store.has_value());
  const std::string url = (*store)->url();
  hixl_init_info_t info{};
  info.rank_size = 2;  // the other one never comes
  info.store = url.c_str();
  info.timeout_ms = 20;
  hixl_ctx_t ctx = nullptr;
  REQUIRE(hixl_init(&ctx, &info) == HIXL_OK);
  void* data = nullptr;
  REQUIRE(hixl_alloc(ctx, 4096, &data) == HIXL_OK);
  hixl_comm_t world = nullptr;
  REQUIRE(hixl_comm_world(ctx, &world) == HIXL_OK);
  std::promise<void> inside;
  std::thread waiting([&] {
    inside.set_value();
    const hixl_status_t status = hixl_comm_barrier(world, k_patience_ms);
    CHECK((status == HIXL_ERR_STOPPED || status == HIXL_ERR_INVALID_HANDLE));
  });
  inside.get_future().wait();
  const hixl_status_t closed = hixl_comm_destroy(world);
  CHECK((closed == HIXL_ERR_DEADLINE_EXCEEDED || closed == HIXL_OK));  // the other thread may not be in it yet
  CHECK(hixl_comm_rank(world) == -1);
  CHECK(hixl_comm_destroy(world) == HIXL_ERR_INVALID_HANDLE);
  CHECK(hixl_finalize_timeout(ctx, k_patience_ms) == HIXL_OK);
  waiting.join();
  REQUIRE(hixl_init(&ctx, &info) == HIXL_OK);
  CHECK(hixl_finalize_timeout(ctx, 0) != HIXL_ERR_INVALID_HANDLE);
  CHECK(hixl_rank(ctx) == -1);
}
