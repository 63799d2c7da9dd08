// SPDX-License-Identifier: Apache-2.0
//
// hixl_run -n N PROGRAM [ARGS...]: starts N ranks of a program on this host and hosts the rendezvous store for them, or
// tells them of a file that serves as one.
// Ends with 0 when every rank did, otherwise as the rank that failed first. Ranks never outlive it.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <hixl/store.hpp>

#include "checks.hpp"

namespace {

using Clock = std::chrono::steady_clock;

/// Time between the polite signal and the one that cannot be ignored.
constexpr std::chrono::seconds k_kill_after{5};
/// Exit code when the program could not be started, as shells have it.
constexpr int k_exit_not_found = 127;
constexpr int k_exit_usage = 2;
/// Added to a signal's number, as shells have it.
constexpr int k_exit_signal = 128;

struct Options {
  std::uint32_t ranks = 1;
  std::string store_host = "127.0.0.1";
  std::string store_url;  // empty: a free port of store_host
  bool insecure = false;
  double grace_s = 10.0;
  std::vector<std::string> command;
};

struct Child {
  pid_t pid = -1;
  bool running = false;
};

class Launch {
 public:
  Launch(Options options, std::string store_url) : options_(std::move(options)), store_url_(std::move(store_url)) {}

  /// Runs everything; the exit code.
  int run(const sigset_t& signals, const sigset_t& inherited) {
    for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
      if (!start(rank, inherited)) {
        note_failure(k_exit_not_found);
        signal_all(SIGTERM);
        break;
      }
    }
    while (collect()) wait_for_signal(signals);
    return exit_code_;
  }

 private:
  bool start(std::uint32_t rank, const sigset_t& inherited) {
    std::vector<std::string> environment = environment_of(rank);
    std::vector<char*> environment_pointers = pointers(environment);
    std::vector<char*> arguments = pointers(options_.command);
    const pid_t launcher = getpid();
    std::array<int, 2> told{};
    if (::pipe2(told.data(), O_CLOEXEC) != 0) return not_started(rank);
    const pid_t pid = fork();
    if (pid < 0) {
      for (const int fd : told) ::close(fd);
      return not_started(rank);
    }
    if (pid == 0) {
      // Only async-signal-safe calls here: the store's thread does not exist in the child.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != launcher) _exit(k_exit_not_found);  // it died before the line above
      sigprocmask(SIG_SETMASK, &inherited, nullptr);
      execvpe(arguments[0], arguments.data(), environment_pointers.data());
      const int error = errno;
      static_cast<void>(!write(told[1], &error, sizeof error));
      _exit(k_exit_not_found);
    }
    children_.push_back({pid, true});
    ::close(told[1]);
    // Ends with the exec, which closes the other end; an errno came first where there was none.
    int error = 0;
    ssize_t bytes = 0;
    do bytes = ::read(told[0], &error, sizeof error);
    while (bytes < 0 && errno == EINTR);
    ::close(told[0]);
    if (bytes != sizeof error) return true;
    std::fprintf(stderr, "hixl_run: %s cannot be executed: %s (errno %d)\n", options_.command.front().c_str(),
                 std::strerror(error), error);
    return false;
  }

  static bool not_started(std::uint32_t rank) {
    std::fprintf(stderr, "hixl_run: rank %u could not be started: %s\n", rank, std::strerror(errno));
    return false;
  }

  std::vector<std::string> environment_of(std::uint32_t rank) const {
    std::vector<std::string> result;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      if (text.starts_with("HIXL_RANK=") || text.starts_with("HIXL_WORLD_SIZE=") || text.starts_with("HIXL_STORE="))
        continue;
      result.emplace_back(text);
    }
    result.push_back("HIXL_RANK=" + std::to_string(rank));
    result.push_back("HIXL_WORLD_SIZE=" + std::to_string(options_.ranks));
    result.push_back("HIXL_STORE=" + store_url_);
    return result;
  }

  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  }

  /// Takes every rank that has ended; false when none runs any more.
  bool collect() {
    for (std::uint32_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      int status = 0;
      if (!child.running || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.running = false;
      if (WIFSIGNALED(status)) {
        std::fprintf(stderr, "hixl_run: rank %u was ended by signal %d (%s)\n", rank, WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
        note_failure(k_exit_signal + WTERMSIG(status));
      } else if (WEXITSTATUS(status) != 0) {
        std::fprintf(stderr, "hixl_run: rank %u ended with code %d\n", rank, WEXITSTATUS(status));
        note_failure(WEXITSTATUS(status));
      }
    }
    return std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.running; });
  }

  void note_failure(int code) {
    if (exit_code_ != 0) return;
    exit_code_ = code;
    end_after_grace();
  }

  void end_after_grace() {
    const std::chrono::duration<double> grace(options_.grace_s);
    if (!end_at_) end_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(grace);
  }

  /// Sleeps until a child ends, somebody interrupts us, or it is time to end those that are left.
  void wait_for_signal(const sigset_t& signals) {
    siginfo_t info{};
    int number = 0;
    if (end_at_) {
      const auto left = std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(*end_at_ - Clock::now()));
      const timespec limit{static_cast<time_t>(left.count() / 1'000'000'000),
                           static_cast<long>(left.count() % 1'000'000'000)};
      number = sigtimedwait(&signals, &info, &limit);
      if (number < 0 && errno == EAGAIN) end_those_left();
    } else {
      number = sigwaitinfo(&signals, &info);
    }
    if (number != SIGINT && number != SIGTERM) return;
    // A terminal has sent its signal to the ranks as well.
    if (info.si_code != SI_KERNEL) signal_all(number);
    end_after_grace();
  }

  void end_those_left() {
    const int number = asked_to_end_ ? SIGKILL : SIGTERM;
    if (!asked_to_end_) std::fprintf(stderr, "hixl_run: ending the ranks that are left\n");
    asked_to_end_ = true;
    signal_all(number);
    end_at_ = Clock::now() + k_kill_after;
  }

  void signal_all(int number) {
    for (const Child& child : children_) {
      if (child.running) kill(child.pid, number);  // not waited for yet, so the pid is still its own
    }
  }

  Options options_;
  std::string store_url_;
  std::vector<Child> children_;
  int exit_code_ = 0;
  std::optional<Clock::time_point> end_at_;
  bool asked_to_end_ = false;
};

std::string store_address(const std::string& host) {
  return host.find(':') == std::string::npos ? "tcp://" + host + ":0" : "tcp://[" + host + "]:0";
}

int launch(const Options& options) {
  // Blocked before the store makes its thread, so that every signal waits for us.
  sigset_t signals;
  sigset_t inherited;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, &inherited);

  const std::string wanted = options.store_url.empty() ? store_address(options.store_host) : options.store_url;
  if (wanted.starts_with("file://")) return Launch(options, wanted).run(signals, inherited);  // the ranks keep it
  const auto store = hixl::Store::create(wanted, options.insecure);
  if (!store) {
    std::fprintf(stderr, "hixl_run: no store at %s: %s\n", wanted.c_str(), store.error().message().c_str());
    return 1;
  }
  return Launch(options, (*store)->url()).run(signals, inherited);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Starts N ranks of a program on this host, with HIXL_RANK, HIXL_WORLD_SIZE and HIXL_STORE set.");
  app.add_option("-n,--ranks", options.ranks, "how many ranks")->required()->check(hixl::cli::whole(1, 65'536));
  app.add_option("--store-host", options.store_host, "address at which the store listens")->capture_default_str();
  app.add_option("--store", options.store_url,
                 "host the store at tcp://host:port or unix:@name, or let a file file:///path serve as one")
      ->excludes("--store-host");
  app.add_flag("--insecure", options.insecure, "allow a store address beyond loopback");
  app.add_option("--grace", options.grace_s, "seconds that the other ranks are given after one has failed")
      ->capture_default_str()
      ->check(hixl::cli::real(0, 86'400));
  app.prefix_command();
  app.footer("PROGRAM [ARGS...] follows the options.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : k_exit_usage;
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") options.command.erase(options.command.begin());
  if (options.command.empty()) {
    std::fprintf(stderr, "hixl_run: no program given\n%s", app.help().c_str());
    return k_exit_usage;
  }
  return launch(options);
}
