// SPDX-License-Identifier: Apache-2.0
//
// What a forked child may do with a runtime that it inherited (nothing, and it is told so at once), with one of its own
// (everything), and what its parent and its parent's peers notice of it (nothing).
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <uv.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include "home.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

using Said = std::vector<std::string>;  // what went wrong in a child

/// Runs in a forked child, which leaves by _exit; what it says. One that hangs is killed and says so.
std::string in_child(const std::function<void(Said&)>& work) {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const pid_t child = fork();
  if (child == 0) {
    Said said;
    work(said);
    std::string text;
    for (const std::string& line : said) text += line + "; ";
    const bool written = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  REQUIRE(child > 0);
  close(ends[1]);
  int status = -1;
  const bool ended = eventually([&] { return waitpid(child, &status, WNOHANG) == child; });
  if (!ended) {
    ::kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  std::string text(4096, '\0');
  const ssize_t bytes = read(ends[0], text.data(), text.size());
  close(ends[0]);
  text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  if (!ended) return "the child hangs; " + text;
  return status == 0 ? text : "the child ended with status " + std::to_string(status) + "; " + text;
}

template <class T>
void want(Said& said, const char* what, const Result<T>& result, ErrorCode code = ErrorCode::forked) {
  if (code_of(result) != code) said.push_back(std::string(what) + ": " + std::string(name(code_of(result))));
}
void want(Said& said, const char* what, bool holds) {
  if (!holds) said.push_back(what);
}

/// The answer of an asynchronous call, for its `done` and `context`.
template <class Value>
struct Answer {
  std::atomic<int> ends{0};
  Value value{};
};
void store_result(void* context, const Result<void>& result) {
  auto& answer = *static_cast<Answer<Result<void>>*>(context);
  answer.value = result;
  answer.ends.fetch_add(1);
}
void store_answers(void* context, std::vector<PeerAddresses>&& answers) {
  auto& answer = *static_cast<Answer<std::vector<PeerAddresses>>*>(context);
  answer.value = std::move(answers);
  answer.ends.fetch_add(1);
}

void store_group(void* context, Result<Group>&& group) {
  auto& answer = *static_cast<Answer<Result<Group>>*>(context);
  answer.value = std::move(group);
  answer.ends.fetch_add(1);
}

struct Inherited {
  Runtime& runtime;
  Region region;
  RemoteRegion remote;
  Request open;    // under way at the fork, or ended and not looked at
  Request looked;  // its end was seen before the fork
  Group& group;
};

/// Every function of Runtime and of Request, in the child.
void call_everything(Said& said, Inherited& in) {
  Runtime& rt = in.runtime;
  void* data = in.region.data;
  const RemoteAddress to = in.remote.at(0);
  const Rank one[] = {1};
  const BatchEntry entry{TransferVerb::put, data, to, 8};
  std::uint64_t own = 0;
  want(said, "register_memory", rt.register_memory(&own, sizeof own));
  want(said, "allocate", rt.allocate(4096));
  want(said, "deregister", rt.deregister(in.region));
  want(said, "put", rt.put(data, to, 8));
  want(said, "get", rt.get(data, to, 8));
  want(said, "put_sync", rt.put_sync(data, to, 8));
  want(said, "put_sync, long", rt.put_sync(data, to, in.region.size));
  want(said, "get_sync", rt.get_sync(data, to, 8));
  want(said, "batch", rt.batch(std::span(&entry, 1)));
  want(said, "batch_sync", rt.batch_sync(std::span(&entry, 1)));
  want(said, "put_with_signal", rt.put_with_signal(data, to, 8, {.word = in.remote.at(64)}));
  want(said, "wait_signal", rt.wait_signal(data, Compare::equal, 77));
  want(said, "atomic_add", rt.atomic_add(to, 1));
  want(said, "fetch_add", rt.fetch_add(to, 1));
  want(said, "compare_swap", rt.compare_swap(to, 0, 1));
  want(said, "swap", rt.swap(to, 1));
  want(said, "atomic_add_sync", rt.atomic_add_sync(to, 1));
  want(said, "fetch_add_sync", rt.fetch_add_sync(to, 1));
  want(said, "compare_swap_sync", rt.compare_swap_sync(to, 0, 1));
  want(said, "swap_sync", rt.swap_sync(to, 1));
  want(said, "flush", rt.flush(1));
  want(said, "flush_async", rt.flush_async(1));
  want(said, "barrier", rt.barrier());
  want(said, "stop", rt.stop());
  want(said, "joined", rt.joined().query());
  want(said, "exchange", rt.exchange(std::span(&in.region, 1), one).front().result);
  Answer<Result<void>> gone, met, stopped, quiet;
  Answer<std::vector<PeerAddresses>> learned;
  want(said, "deregister_async", rt.deregister_async(in.region, 1s, store_result, &gone));
  want(said, "barrier_async", rt.barrier_async({}, 1s, store_result, &met));
  want(said, "stop_async", rt.stop_async(1s, store_result, &stopped));
  want(said, "exchange_async", rt.exchange_async({}, one, 1s, store_answers, &learned));
  want(said, "quiet_async", rt.quiet_async(1s, store_result, &quiet));
  want(said, "no callback", gone.ends + met.ends + stopped.ends + learned.ends + quiet.ends == 0);
  want(said, "poll", rt.poll() == 0);
  want(said, "fd", rt.fd() == -1);
  want(said, "counters", rt.counters().operations == 0);
  want(said, "links", rt.links().empty());
  want(said, "dump_regions", rt.dump_regions());
  want(said, "outstanding", rt.outstanding());
  want(said, "check_access", rt.check_access(to, 8, Rights::write));
  want(said, "check_access, local", rt.check_access(data, 8, Rights::read));
  want(said, "rank", rt.rank() == 0 && rt.world_size() == 2 && rt.incarnation() != 0);

  want(said, "create_group", rt.create_group(one));
  want(said, "group barrier", in.group.barrier());
  want(said, "group barrier_async", in.group.barrier_async(1s, store_result, &met));
  want(said, "group put", in.group.put(data, to, 8));
  want(said, "group put_sync", in.group.put_sync(data, to, 8));
  want(said, "group flush", in.group.flush(1));
  want(said, "group exchange", in.group.exchange({}).front().result);
  want(said, "group members", in.group.size() == 1 && in.group.world_rank(0) == 0);
  in.group.close();
  Group moved = std::move(in.group);  // ends here: nothing is released

  Request copy = in.open;
  want(said, "cancel", copy.cancel());
  want(said, "then", copy.then({[](void*, const Completion&) {}, nullptr}));
  want(said, "wait with a limit", Request(in.open).wait(1s));
  want(said, "wait_all", wait_all(std::span(&copy, 1)));
  copy = in.open;
  want(said, "wait_any", wait_any(std::span(&copy, 1)));
  want(said, "wait", in.open.wait());
  want(said, "value", in.open.value());
  want(said, "query", in.open.query());
  want(said, "done", in.open.done());
  want(said, "a result seen before", in.looked.query(), ErrorCode::ok);
}

/// A new rank of the child's own works: alone, and in a world whose other rank is the parent.
void live_anew(Said& said) {
  auto runtime = Runtime::create(options_for(0, 1, ""));
  want(said, "create", runtime, ErrorCode::ok);
  if (!runtime) return;
  const auto region = (*runtime)->allocate(1U << 20U);
  want(said, "a new allocate", region, ErrorCode::ok);
  want(said, "a new put", (*runtime)->put_sync(region->data, {0, region->address() + (1U << 19U), {}, 0}, 1U << 19U),
       ErrorCode::ok);
  want(said, "a new stop", (*runtime)->stop(), ErrorCode::ok);
}

enum class Kind { own_thread, hosted, polled };

struct Rig {
  explicit Rig(Kind kind, const std::vector<LinkKind>& links) {
    uv_loop_init(&loop);
    store = std::move(*Store::create("tcp://127.0.0.1:0"));
    auto options = options_for(0, 2, store->url(), links);
    // A hosted or polled rank stands still while this thread waits for a child, however slow the machine is.
    options.lease = std::chrono::minutes(1);
    auto made = kind == Kind::hosted   ? Runtime::create_on(&loop, options)
                : kind == Kind::polled ? Runtime::create_polled(options)
                                       : Runtime::create(options);
    require_ok(made);
    mine = std::move(*made);
    options.rank = 1;
    theirs = std::move(*Runtime::create(options));
    until([&] { return mine->joined().done(); });
    here = *mine->allocate(1U << 20U);
    there = *theirs->allocate(1U << 20U);
    const Rank zero[] = {0}, one[] = {1};
    Answer<std::vector<PeerAddresses>> a, b;
    require_ok(theirs->exchange_async(std::span(&there, 1), zero, k_patience, store_answers, &a));
    require_ok(mine->exchange_async(std::span(&here, 1), one, k_patience, store_answers, &b));
    until([&] { return a.ends + b.ends == 2; });
    require_ok(b.value.front().result);
    remote = b.value.front().regions.front();
  }
  ~Rig() {
    Answer<Result<void>> stopped;
    require_ok(mine->stop_async(k_patience, store_result, &stopped));
    until([&] { return stopped.ends.load() == 1; });
    mine.reset();
    CHECK(uv_loop_close(&loop) == 0);
  }
  void until(const std::function<bool()>& reached) {
    REQUIRE(eventually([&] {
      uv_run(&loop, UV_RUN_NOWAIT);
      mine->poll();
      return reached();
    }));
  }
  uv_loop_t loop{};
  std::unique_ptr<Store> store;
  std::unique_ptr<Runtime> mine, theirs;
  Region here, there;
  RemoteRegion remote;
};

}  // namespace

TEST_CASE("S16 S37 P62 in a forked child every function answers FORKED at once, and a new runtime works") {
  for (const Kind kind : {Kind::own_thread, Kind::hosted, Kind::polled}) {
    for (const auto& links : link_sets()) {
      CAPTURE(static_cast<int>(kind));
      CAPTURE(text(links));
      Rig world(kind, links);
      auto open = world.mine->put(world.here.data, world.remote.at(0), world.here.size);
      auto looked = world.mine->put(world.here.data, world.remote.at(0), 8);
      require_ok(open);
      require_ok(looked);
      world.until([&] { return looked->done(); });
      const Rank self[] = {0};
      Answer<Result<Group>> made{.ends = 0, .value = fail(ErrorCode::busy)};
      require_ok(world.mine->create_group_async(self, {}, k_patience, store_group, &made));
      world.until([&] { return made.ends.load() == 1; });
      require_ok(made.value);
      Inherited in{*world.mine, world.here, world.remote, *open, *looked, *made.value};
      CHECK(in_child([&](Said& said) { call_everything(said, in); }) == "");
      CHECK(in_child([&](Said& said) {
              // Destroyed in the child: nothing hangs, and nothing of it reaches the parent or its peers.
              world.mine.reset();
              world.theirs.reset();
              world.store.reset();
              live_anew(said);
            }) == "");
      world.until([&] { return open->done(); });
      require_ok(open->query());
      Answer<Result<void>> put;
      require_ok(world.mine->put(
          world.here.data, world.remote.at(0), world.here.size,
          {.callback = {[](void* context, const Completion& completion) { store_result(context, completion.result); },
                        &put}}));
      world.until([&] { return put.ends.load() == 1; });
      Answer<Result<void>> met;  // the parent's group is as it was
      require_ok(made.value->barrier_async(k_patience, store_result, &met));
      world.until([&] { return met.ends.load() == 1; });
      require_ok(met.value);
      require_ok(put.value);
      CHECK(world.theirs->counters().peers_lost == 0);
      CHECK(world.theirs->counters().link_failures == 0);
      CHECK(code_of(world.theirs->put_sync(world.there.data, world.remote.at(0), 8)) != ErrorCode::forked);
    }
  }
}

TEST_CASE("S16 a forked child joins its parent's world as a rank of its own") {
  Home home(2);
  fill_pattern(home.data(), 4096, 5);
  const std::string store = home.environment(1).at(2).substr(std::string("HIXL_STORE=").size());
  std::unique_ptr<RemoteRegion> remote;
  std::thread meeting([&] {
    home.meet(1);
    require_ok(home->barrier(k_patience));
  });
  const std::string said = in_child([&](Said& lines) {
    auto runtime = Runtime::create(options_for(1, 2, store));
    want(lines, "create", runtime, ErrorCode::ok);
    const auto region = (*runtime)->allocate(4096);
    const Rank zero[] = {0};
    const auto learned = (*runtime)->exchange(std::span(&*region, 1), zero, k_patience);
    want(lines, "exchange", learned.front().result, ErrorCode::ok);
    if (!learned.front().result) return;
    want(lines, "get", (*runtime)->get_sync(region->data, learned.front().regions.front().at(0), 4096), ErrorCode::ok);
    want(lines, "bytes", holds_pattern(region->data, 4096, 5));
    // Until the parent's side of the exchange has ended too; it is PEER_GONE when we leave before.
    want(lines, "barrier", (*runtime)->barrier(k_patience), ErrorCode::ok);
    want(lines, "stop", (*runtime)->stop(), ErrorCode::ok);
  });
  meeting.join();
  CHECK(said == "");
}

TEST_CASE("a child that is made in a callback changes nothing, whether it ends there or comes back from it") {
  for (const Kind kind : {Kind::own_thread, Kind::polled}) {
    for (const bool ends_there : {true, false}) {
      CAPTURE(static_cast<int>(kind));
      CAPTURE(ends_there);
      Rig world(kind, {LinkKind::tcp});
      struct Call {
        bool ends_there;
        pid_t parent = getpid();
        std::atomic<pid_t> child{0};
        std::atomic<int> calls{0};
      } call{ends_there};
      for (int i = 0; i < 8; ++i) {
        require_ok(world.mine->put(world.here.data, world.remote.at(0), world.here.size,
                                   {.callback = {[](void* context, const Completion&) {
                                                   auto& c = *static_cast<Call*>(context);
                                                   if (c.calls.fetch_add(1) != 2) return;
                                                   const pid_t child = fork();
                                                   if (child == 0 && c.ends_there) _exit(0);
                                                   // Its last thread ends with the loop, and the process with that:
                                                   // before a leak checker looks at what a parent left behind in it.
                                                   if (child == 0) std::atexit([] { _exit(0); });
                                                   if (child != 0) c.child = child;
                                                 },
                                                 &call}}));
      }
      if (kind == Kind::polled) {
        while (call.calls.load() < 8 && getpid() == call.parent) world.mine->poll();
        if (getpid() != call.parent) _exit(world.mine->poll() == 0 ? 0 : 1);  // the child that came back
      }
      world.until([&] { return call.calls.load() == 8; });
      int status = -1;
      CHECK(eventually([&] { return waitpid(call.child, &status, WNOHANG) == call.child; }));
      CHECK(status == 0);
      CHECK(world.mine->counters().link_failures == 0);
      require_ok(world.theirs->flush(0));
      CHECK(world.theirs->counters().link_failures == 0);
    }
  }
}

TEST_CASE("P62 a rank's death is seen although a child of it keeps copies of its sockets") {
  for (const std::string links : {"", "tcp"}) {
    CAPTURE(links);
    Home home(2, links);
    Guest guest(home, 1);
    require_traffic_both_ways(home, guest, 1);
    const auto idler = static_cast<pid_t>(std::stol(guest->ask("fork")));
    REQUIRE(idler > 0);
    require_traffic_both_ways(home, guest, 2);
    guest->kill();
    // By pidfd where one host is proved, by lease over tcp, since the child holds the connection open.
    CHECK(eventually([&] { return home->counters().peers_lost == 1; }));
    CHECK(process_exists(idler));
    ::kill(idler, SIGKILL);
  }
}

TEST_CASE("a program that becomes another one inherits no descriptor of the library") {
  const auto descriptors = [] {
    std::vector<int> all;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      all.push_back(std::stoi(entry.path().filename()));
    }
    return all;
  };
  const auto before = descriptors();
  for (const Kind kind : {Kind::own_thread, Kind::polled, Kind::hosted}) {
    Rig world(kind, {});
    int ours = 0;
    for (const int fd : descriptors()) {
      if (std::find(before.begin(), before.end(), fd) != before.end()) continue;
      const int flags = fcntl(fd, F_GETFD);
      if (flags < 0) continue;  // the directory's own
      ours += 1;
      CHECK_MESSAGE((flags & FD_CLOEXEC) != 0, "descriptor " << fd);
    }
    CHECK(ours > 8);
  }
}
