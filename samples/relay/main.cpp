// SPDX-License-Identifier: Apache-2.0
//
// hixl_relay: forwards TCP ports of this host, and makes trouble on demand. For tests and the demo.
//
//   hixl_relay [--from ADDRESS] [--at SECONDS:COMMAND]... [LISTEN_PORT=]TARGET...
//
// TARGET is PORT or ADDRESS:PORT; addresses are IPv4 literals, 127.0.0.1 where none is said. Without LISTEN_PORT a free
// port is taken. At start it prints a line "LISTEN_PORT TARGET_PORT" for each target, in order. It ends with its
// standard input, or with "quit". Commands are lines there, or come from --at at that time after the start; PORT is a
// LISTEN_PORT, or #N, the N-th target from 1 on:
//
//   cut PORT                reset all connections, refuse new ones
//   stall PORT              neither read nor write; new ones connect and hear nothing
//   heal PORT               end everything that another command did to it
//   corrupt PORT N          let N more bytes pass (both directions together), then flip a bit of the next one
//   slow PORT BYTES_PER_S   pass no more than that (both directions together)
//   quit
//
// Each command is answered when it has been done, by a line "done COMMAND... connections=N bytes=N" (of that port;
// bytes since the start), or "error: ...".
#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "route.hpp"

namespace relay {
namespace {

struct Timed {
  Clock::time_point at;
  std::string command;
};

template <class Number>
Number number_in(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw std::invalid_argument("not a number: '" + std::string(text) + "'");
  }
  return value;
}

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const bool read = ::inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1;
  if (!read) throw std::invalid_argument("not an IPv4 address: " + host);
  return address;
}

class Relay {
 public:
  Relay(int argc, char** argv) {
    std::string from = "127.0.0.1";
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      if (argument == "--from" && i + 1 < argc) {
        from = argv[++i];
      } else if (argument == "--at" && i + 1 < argc) {
        add_timed(argv[++i]);
      } else {
        add_route(from, argument);
      }
    }
    if (routes_.empty()) throw std::invalid_argument("no target; see the head of samples/relay/main.cpp");
    std::stable_sort(timed_.begin(), timed_.end(), [](const Timed& a, const Timed& b) { return a.at < b.at; });
  }

  void run() {
    for (const auto& route : routes_) std::printf("%u %u\n", route->port(), route->target_port());
    std::fflush(stdout);
    while (!ended_) turn();
  }

 private:
  void add_timed(const std::string& text) {
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) throw std::invalid_argument("--at: expected SECONDS:COMMAND");
    const std::chrono::duration<double> after(number_in<double>(std::string_view(text).substr(0, colon)));
    timed_.push_back({begun_ + std::chrono::duration_cast<Clock::duration>(after), text.substr(colon + 1)});
  }

  void add_route(const std::string& from, const std::string& text) {
    const std::size_t equals = text.find('=');
    const std::string target = equals == std::string::npos ? text : text.substr(equals + 1);
    const auto port = equals == std::string::npos ? std::uint16_t{0} : number_in<std::uint16_t>(text.substr(0, equals));
    const std::size_t colon = target.find(':');
    const std::string host = colon == std::string::npos ? "127.0.0.1" : target.substr(0, colon);
    const std::string target_port = colon == std::string::npos ? target : target.substr(colon + 1);
    routes_.push_back(
        std::make_unique<Route>(address_of(from, port), address_of(host, number_in<std::uint16_t>(target_port))));
  }

  void turn() {
    std::vector<pollfd> fds{{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}};
    std::vector<std::size_t> begins;
    auto wait = std::chrono::milliseconds(-1);
    for (const auto& route : routes_) {
      begins.push_back(fds.size());
      route->add_to(fds);
      // Short against a tenth of a second, for which a limited port may save up.
      if (route->waits_for_budget()) wait = std::chrono::milliseconds(5);
    }
    if (!timed_.empty()) {
      const auto left = std::max(Clock::duration::zero(), timed_.front().at - Clock::now());
      const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left);
      wait = wait.count() < 0 ? left_ms : std::min(wait, left_ms);
    }
    if (::poll(fds.data(), fds.size(), static_cast<int>(wait.count())) < 0 && errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "poll");
    }
    for (std::size_t i = 0; i < routes_.size(); ++i) routes_[i]->turn(&fds[begins[i]]);
    if (fds.front().revents != 0) read_commands();
    while (!ended_ && !timed_.empty() && timed_.front().at <= Clock::now()) {
      const Timed timed = timed_.front();
      timed_.erase(timed_.begin());
      answer(timed.command);
    }
  }

  void read_commands() {
    char buffer[4096];
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (count <= 0) {
      ended_ = count == 0 || errno != EINTR;
      return;
    }
    input_.append(buffer, static_cast<std::size_t>(count));
    for (std::size_t end = 0; !ended_ && (end = input_.find('\n')) != std::string::npos;) {
      const std::string line = input_.substr(0, end);
      input_.erase(0, end + 1);
      answer(line);
    }
  }

  void answer(const std::string& line) {
    try {
      obey(line);
    } catch (const std::invalid_argument& error) {
      std::printf("error: %s\n", error.what());
    }
    std::fflush(stdout);
  }

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    std::string port;
    std::string value;
    std::string rest;
    words >> verb >> port >> value >> rest;
    if (verb == "quit") {
      ended_ = true;
      return;
    }
    const bool takes_value = verb == "corrupt" || verb == "slow";
    if (!takes_value && verb != "cut" && verb != "stall" && verb != "heal") {
      throw std::invalid_argument("no such command: '" + line + "'");
    }
    if (value.empty() == takes_value || !rest.empty()) throw std::invalid_argument("wrong arguments: '" + line + "'");
    Route& route = route_of(port);
    if (verb == "cut") route.cut();
    if (verb == "stall") route.stall();
    if (verb == "heal") route.heal();
    if (verb == "corrupt") route.corrupt_after(number_in<std::uint64_t>(value));
    if (verb == "slow") route.slow(number_in<std::uint64_t>(value));
    std::printf("done %s connections=%zu bytes=%llu\n", line.c_str(), route.connections(),
                static_cast<unsigned long long>(route.passed_bytes()));
  }

  Route& route_of(const std::string& text) {
    const bool by_place = text.starts_with("#");
    const auto wanted = number_in<std::uint32_t>(by_place ? std::string_view(text).substr(1) : text);
    for (std::size_t i = 0; i < routes_.size(); ++i) {
      if (by_place ? i + 1 == wanted : routes_[i]->port() == wanted) return *routes_[i];
    }
    throw std::invalid_argument("no such port: '" + text + "'");
  }

  const Clock::time_point begun_ = Clock::now();
  std::vector<std::unique_ptr<Route>> routes_;
  std::vector<Timed> timed_;
  std::string input_;
  bool ended_ = false;
};

}  // namespace
}  // namespace relay

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // whoever started it may have closed its end of the output
  try {
    relay::Relay(argc, argv).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hixl_relay: %s\n", error.what());
    return 1;
  }
  return 0;
}
