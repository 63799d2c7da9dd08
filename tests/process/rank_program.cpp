// SPDX-License-Identifier: Apache-2.0
//
// A rank that does what it is told by lines on standard input, and answers each with one line. With HIXL_* set it can
// stand under any launcher. It ends with whoever started it.
//
//   exchange RANK                  ok: both have published their region; the other's is known
//   meet RANK MS                   the same within that time, and only tried: ok, or the whole message of the error
//   renew RANK BYTES               the same with a new region of that size, which becomes this rank's
//   check OFFSET BYTES SEED        ok | wrong: own region holds the pattern
//   word OFFSET                    the 8-byte word there
//   wait OFFSET VALUE              the value seen, once the word is at least VALUE
//   put RANK OFFSET BYTES SEED     writes the pattern into that rank's region
//   hammer RANK BYTES              "hammering", then puts without pause until the next line; answers "puts N failed M"
//   count RANK OFFSET TIMES        fetch_adds 1; answers "ok" and all values before, in order
//   lock RANK OFFSET TIMES         takes the lock word there by compare_swap, adds 1 to the word behind it by get and
//                                  put, and gives it back, that often: ok
//   away                           "away", then computes (its own loop: stays inside a callback) until the next line;
//                                  answers "back"
//   lost                           counters().peers_lost
//   fork                           the number of a child that holds copies of all descriptors until it is killed
//   fill BYTES                     allocates regions of that size, and keeps them, until that fails; "N CODE"
//   make FIRST LAST                makes a group of those ranks, LAST not among them
//   barrier                        of that group; a failure is followed by the rank that it names
//   send PLACE                     exchanges regions in the group, then puts a pattern seeded by this rank's place into
//                                  the region of that member; ends with a barrier
//   close                          of that group
//   pour RANK BASE BYTES BLOCKS FIRST  sends a stream of blocks (stream.hpp) to that rank: ok, or what went wrong
//   drain RANK BASE BYTES BLOCKS FIRST  receives one
//   links                          the link table as JSON
//   quit                           stops and ends with 0
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include <uv.h>
#include <CLI/CLI.hpp>

#include <hixl/inspect_text.hpp>
#include <hixl/runtime.hpp>

#include "counting.hpp"
#include "driven_group.hpp"
#include "lines.hpp"
#include "mirrored.hpp"
#include "no_attach.hpp"
#include "rank_options.hpp"
#include "../api/pattern.hpp"
#include "../chaos/stream.hpp"

namespace {

using namespace hixl;
using namespace hixl::test;

[[noreturn]] void give_up(const Error& error) {
  std::fprintf(stderr, "rank program: %s\n", error.message().c_str());
  std::_Exit(3);
}
template <class T>
T value_of(Result<T> result) {
  if (!result) give_up(result.error());
  return std::move(*result);
}

class DrivenRank {
 public:
  explicit DrivenRank(const Options& options)
      : options_(options), forbidden_(options.forbid_attach && forbid_attach()) {
    RuntimeOptions runtime = value_of(RuntimeOptions::from_environment());
    runtime.lease = std::chrono::milliseconds(options.lease_ms);
    if (options.connect_timeout_ms > 0) {
      runtime.connect_timeout = std::chrono::milliseconds(options.connect_timeout_ms);
    }
    runtime.requests_max = 256;
    runtime.regions_max = 1024;
    if (options.hosted) {
      uv_loop_init(&loop_);
      uv_poll_init(&loop_, &input_, STDIN_FILENO);
      input_.data = this;
      runtime_ = value_of(Runtime::create_on(&loop_, runtime));
      Request joined = runtime_->joined();
      turn_until([&joined] { return joined.done(); });
      check(joined.query());
    } else {
      runtime_ = value_of(Runtime::create(runtime));
    }
    region_ = make_region(options.bytes);
    region_of_puts_ = value_of(runtime_->allocate(options.mirrored ? Mirrored::k_pages_bytes : options.bytes));
  }

  int serve() {
    for (;;) {
      if (options_.hosted) await_input();
      const auto line = lines_.next(std::chrono::hours(1));
      if (!line) return 0;  // the test is over
      std::istringstream words(*line);
      std::string verb;
      words >> verb;
      if (verb == "quit") return quit();
      lines_.send(obey(verb, words));
    }
  }

 private:
  static void check(const Result<void>& result) {
    if (!result) give_up(result.error());
  }

  Region make_region(std::size_t bytes) {
    if (options_.mirrored) {
      mirrored_ = std::make_unique<Mirrored>(bytes);
      return value_of(runtime_->register_memory(mirrored_->data(), bytes));
    }
    if (!options_.registered) return value_of(runtime_->allocate(bytes));
    void* memory = std::aligned_alloc(4096, bytes);
    std::fill_n(static_cast<std::byte*>(memory), bytes, std::byte{0});
    return value_of(runtime_->register_memory(memory, bytes));
  }

  /// TSan knows nothing of the other process that was told of the bytes, and is told of the answer before it puts more:
  /// this waits for the thread that wrote them, and that one for this.
  template <class Look>
  auto with_memory(Look&& look) {
    static_cast<void>(runtime_->counters());
    auto seen = look();
    static_cast<void>(runtime_->counters());
    return seen;
  }

  std::string obey(const std::string& verb, std::istringstream& words) {
    std::uint64_t number[5] = {};
    for (std::uint64_t& item : number) words >> item;
    if (verb == "exchange") return exchange(static_cast<Rank>(number[0]));
    if (verb == "meet") return meet(static_cast<Rank>(number[0]), std::chrono::milliseconds(number[1]));
    if (verb == "renew") {
      region_ = make_region(number[1]);
      return exchange(static_cast<Rank>(number[0]));
    }
    if (verb == "check") {
      return with_memory([&] { return holds_pattern(region_.data + number[0], number[1], number[2]); }) ? "ok"
                                                                                                        : "wrong";
    }
    if (verb == "word") return std::to_string(*reinterpret_cast<volatile std::uint64_t*>(region_.data + number[0]));
    if (verb == "wait") return wait(number[0], number[1]);
    if (verb == "put") return put(static_cast<Rank>(number[0]), number[1], number[2], number[3]);
    if (verb == "hammer") return hammer(static_cast<Rank>(number[0]), number[1]);
    if (verb == "count") {
      return count_on(*runtime_, remote_[static_cast<Rank>(number[0])].at(number[1]), number[2], k_patience);
    }
    if (verb == "lock") {
      return take_turns(*runtime_, remote_[static_cast<Rank>(number[0])], number[1], number[2], region_of_puts_.data,
                        k_patience);
    }
    if (verb == "away") return away();
    if (verb == "fork") return fork_idler();
    if (verb == "fill") return fill(number[0]);
    if (verb == "forbidden") return forbidden_ ? "yes" : "no";
    const auto rank = [&number](std::size_t i) { return static_cast<Rank>(number[i]); };
    if (auto done = group_.act(verb, rank(0), rank(1), *runtime_, region_, region_of_puts_)) return *done;
    if (verb == "pour" || verb == "drain") {
      const Stream stream{
          .base = number[1], .bytes = number[2], .blocks = number[3], .patience = k_patience, .first = number[4]};
      const RemoteRegion& there = remote_[rank(0)];
      return with_memory([&] {
        return verb == "pour" ? send_stream(*runtime_, region_, there, stream)
                              : receive_stream(*runtime_, region_, there, stream);
      });
    }
    if (verb == "links") return to_json(runtime_->links());
    if (verb == "lost") return std::to_string(runtime_->counters().peers_lost);
    return "no such verb";
  }

  // ---- the host's loop ----

  template <class Done>
  void turn_until(Done&& done) {
    while (!done()) uv_run(&loop_, UV_RUN_ONCE);
  }
  void await_input() {
    if (lines_.waiting()) return;
    bool there = false;
    input_.data = &there;
    uv_poll_start(&input_, UV_READABLE, [](uv_poll_t* handle, int, int) {
      *static_cast<bool*>(handle->data) = true;
      uv_poll_stop(handle);
    });
    turn_until([&there] { return there; });
  }
  Result<void> finish(Request request) {
    if (!options_.hosted) return request.wait();
    turn_until([&request] { return request.done(); });
    return request.query();
  }
  std::string say(const Result<void>& result) {
    if (!result) std::fprintf(stderr, "%s\n", result.error().message().c_str());
    return result ? "ok" : std::string(name(result.error().code));
  }

  // ---- verbs ----

  std::string exchange(Rank rank) {
    struct Answer {
      std::atomic<bool> here{false};
      PeerAddresses addresses;
    } answer;
    const auto asked = runtime_->exchange_async(
        std::span(&region_, 1), std::span(&rank, 1), std::chrono::milliseconds(options_.patience_ms),
        [](void* context, std::vector<PeerAddresses>&& answers) {
          auto& to = *static_cast<Answer*>(context);
          to.addresses = std::move(answers.front());
          to.here.store(true);
          to.here.notify_all();
        },
        &answer);
    if (!asked) return say(asked);
    if (options_.hosted) {
      turn_until([&answer] { return answer.here.load(); });
    } else {
      answer.here.wait(false);
    }
    if (answer.addresses.result) remote_[rank] = answer.addresses.regions.front();
    return say(answer.addresses.result);
  }

  std::string meet(Rank rank, std::chrono::milliseconds time) {
    auto answers = runtime_->exchange(std::span(&region_, 1), std::span(&rank, 1), time);
    if (!answers.front().result) return answers.front().result.error().message();
    remote_[rank] = answers.front().regions.front();
    return "ok";
  }

  std::string wait(std::uint64_t offset, std::uint64_t value) {
    const auto* word = region_.data + offset;
    if (options_.hosted) {  // blocking calls are not for the thread of the loop; what has come is there to be read
      return std::to_string(*reinterpret_cast<const volatile std::uint64_t*>(word));
    }
    const auto seen = runtime_->wait_signal(word, Compare::greater_equal, value, k_patience);
    return seen ? std::to_string(*seen) : std::string(name(seen.error().code));
  }

  std::string put(Rank rank, std::uint64_t offset, std::uint64_t bytes, std::uint64_t seed) {
    fill_pattern(region_of_puts_.data, bytes, seed);
    auto request = runtime_->put(region_of_puts_.data, remote_[rank].at(offset), bytes, {.timeout = k_patience});
    if (!request) return say(fail(request.error()));
    return say(finish(*request));
  }

  std::string fill(std::uint64_t bytes) {
    for (std::uint64_t count = 0;; ++count) {
      const auto region = runtime_->allocate(bytes);
      if (!region) return std::to_string(count) + " " + std::string(name(region.error().code));
    }
  }

  std::string hammer(Rank rank, std::uint64_t bytes) {
    lines_.send("hammering");
    std::uint64_t puts = 0;
    std::uint64_t failed = 0;
    while (!lines_.waiting()) {
      // Each round writes another byte value, so that a late store shows.
      std::memset(region_of_puts_.data, static_cast<int>(puts & 0xffU), bytes);
      puts += 1;
      if (!runtime_->put_sync(region_of_puts_.data, remote_[rank].at(0), bytes, k_patience)) failed += 1;
    }
    static_cast<void>(lines_.next());
    return "puts " + std::to_string(puts) + " failed " + std::to_string(failed);
  }

  /// A child that holds copies of all descriptors until it is killed; its number.
  static std::string fork_idler() {
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    return std::to_string(child);
  }

  std::string away() {
    if (options_.hosted) {
      uv_timer_t timer;
      uv_timer_init(&loop_, &timer);
      bool back = false;
      struct Stay {
        DrivenRank* rank;
        bool* back;
      } stay{this, &back};
      timer.data = &stay;
      uv_timer_start(
          &timer,
          [](uv_timer_t* handle) {
            auto& here = *static_cast<Stay*>(handle->data);
            here.rank->lines_.send("away");
            static_cast<void>(
                here.rank->lines_.next(std::chrono::hours(1)));  // inside the callback: the loop stands still
            uv_close(reinterpret_cast<uv_handle_t*>(handle),
                     [](uv_handle_t* closed) { *static_cast<Stay*>(closed->data)->back = true; });
          },
          0, 0);
      turn_until([&back] { return back; });
      return "back";
    }
    lines_.send("away");
    volatile double sum = 0;
    while (!lines_.waiting()) {
      for (int i = 1; i < 1'000'000; ++i) sum = sum + 1.0 / i;
    }
    static_cast<void>(lines_.next());
    return "back";
  }

  int quit() {
    if (options_.hosted) {
      struct End {
        bool here = false;
        Result<void> result{};
      } end;
      const auto asked = runtime_->stop_async(
          std::chrono::seconds(5),
          [](void* context, const Result<void>& result) {
            auto& to = *static_cast<End*>(context);
            to.result = result;
            to.here = true;
          },
          &end);
      if (!asked) return 6;
      turn_until([&end] { return end.here; });
      runtime_.reset();
      uv_close(reinterpret_cast<uv_handle_t*>(&input_), nullptr);
      uv_run(&loop_, UV_RUN_DEFAULT);
      if (uv_loop_close(&loop_) != 0) return 4;
      return end.result ? 0 : 5;
    }
    return runtime_->stop() ? 0 : 5;
  }

  const Options options_;
  const bool forbidden_;
  std::unique_ptr<Mirrored> mirrored_;
  Lines lines_{STDIN_FILENO};
  uv_loop_t loop_{};
  uv_poll_t input_{};
  std::unique_ptr<Runtime> runtime_;
  Region region_;
  Region region_of_puts_;
  std::map<Rank, RemoteRegion> remote_;
  DrivenGroup group_;
};

const char* variable(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "-";
}

}  // namespace

int main(int argc, char** argv) {
  const pid_t starter = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != starter) return 6;

  Options options;
  CLI::App app("A rank that does what it is told, for tests.");
  app.add_option("--bytes", options.bytes, "size of its region");
  app.add_flag("--registered", options.registered, "its region is memory of its own, not of the library");
  app.add_flag("--mirrored", options.mirrored, "its region is a few pages, mapped again and again");
  app.add_flag("--forbid-attach", options.forbid_attach, "it may not reach another process' memory");
  app.add_option("--patience-ms", options.patience_ms, "how long it waits for an exchange");
  app.add_flag("--hosted", options.hosted, "runs on a loop of its own program");
  app.add_option("--lease-ms", options.lease_ms, "the lease by which it wants to be judged");
  app.add_option("--connect-timeout-ms", options.connect_timeout_ms, "time for the rendezvous and each connection");
  app.add_flag("--tell-environment", options.tell_environment, "prints pid, rank, world size and store");
  app.add_option("--exit-at-rank", options.exit_code_at_rank, "the rank that ends at once");
  app.add_option("--exit-code", options.exit_code, "with this code");
  app.add_option("--descriptors-max", options.descriptors_max, "its RLIMIT_NOFILE");
  app.add_option("--memlock-kib", options.memlock_kib, "its RLIMIT_MEMLOCK");
  app.add_flag("--tiny-shm", options.tiny_shm,
               "it sees a full /dev/shm of 1 MiB; exit code 77 where that cannot be had");
  CLI11_PARSE(app, argc, argv);
  if (!live_within_limits(options)) return 77;

  if (options.tell_environment) {
    std::printf("pid %d rank %s of %s store %s\n", getpid(), variable("HIXL_RANK"), variable("HIXL_WORLD_SIZE"),
                variable("HIXL_STORE"));
    std::fflush(stdout);
  }
  if (options.exit_code_at_rank >= 0 && std::to_string(options.exit_code_at_rank) == variable("HIXL_RANK")) {
    return options.exit_code;
  }
  return DrivenRank(options).serve();
}
