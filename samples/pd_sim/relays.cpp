// SPDX-License-Identifier: Apache-2.0
#include "relays.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace pd {

namespace {

/// For a line of the relay, on a machine that has other things to do; an answer takes it less than a millisecond.
constexpr int k_answer_ms = 10'000;

/// Of each link: so little that a Prefill at work needs both. Without a limit one loopback connection carries all, and
/// the slower one through the relay would be left idle.
constexpr std::uint64_t k_link_bytes_per_s = 25'000'000;

/// An address that no other run on this host uses, since it is made of the process id: all of 127.0.0.0/8 is loopback.
/// So the ports below stay free between being chosen and being bound by a rank.
std::string own_loopback_host() {
  const auto pid = static_cast<std::uint32_t>(::getpid());
  return "127." + std::to_string(64 + (pid >> 16 & 63)) + "." + std::to_string(pid >> 8 & 255) + "." +
         std::to_string(pid & 255);
}

/// The program that lies beside this one.
std::string path_of_relay() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  return self.substr(0, self.rfind('/') + 1) + "hixl_relay";
}

}  // namespace

std::unique_ptr<Relays> Relays::start(std::uint32_t ranks) {
  std::unique_ptr<Relays> relays(new Relays);
  if (!relays->choose_addresses(ranks)) {
    std::fprintf(stderr, "hixl_pd_sim: no ports at %s: %s\n", relays->second_host_.c_str(), std::strerror(errno));
    return nullptr;
  }
  if (!relays->run()) {
    std::fprintf(stderr, "hixl_pd_sim: %s does not run\n", path_of_relay().c_str());
    return nullptr;
  }
  return relays;
}

Relays::~Relays() {
  if (input_ >= 0) ::close(input_);  // which ends it
  if (output_ >= 0) ::close(output_);
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
}

std::vector<std::string> Relays::settings_of(std::uint32_t rank) const {
  const std::string limit = std::to_string(k_link_bytes_per_s);
  return {"HIXL_LINKS=tcp", "HIXL_TCP_LINKS=2", "HIXL_MAX_BANDWIDTH=" + limit + "," + limit,
          "HIXL_BIND=127.0.0.1," + second_host_ + ":" + std::to_string(second_ports_[rank]),
          "HIXL_ADVERTISE=127.0.0.1,127.0.0.1:" + std::to_string(relay_ports_[rank])};
}

bool Relays::tell(const std::string& command) {
  std::string text;
  for (const std::uint16_t port : relay_ports_) text += command + " " + std::to_string(port) + "\n";
  // A few kilobytes at most, which a pipe takes at once.
  if (::write(input_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) return false;
  for (std::string line : std::vector<std::string>(relay_ports_.size())) {
    if (!read_line(line) || !line.starts_with("done ")) return false;
  }
  return true;
}

bool Relays::choose_addresses(std::uint32_t ranks) {
  second_host_ = own_loopback_host();
  std::vector<int> sockets;  // all open at once, so that no two get the same port
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, second_host_.c_str(), &address.sin_addr);
  bool chosen = true;
  while (chosen && sockets.size() < ranks) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address.sin_port = 0;
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    chosen = sockets.back() >= 0 && ::bind(sockets.back(), generic, size) == 0 &&
             ::getsockname(sockets.back(), generic, &size) == 0;
    second_ports_.push_back(ntohs(address.sin_port));
  }
  for (const int fd : sockets) ::close(fd);
  return chosen;
}

bool Relays::run() {
  const std::string path = path_of_relay();
  std::vector<std::string> arguments{path};
  for (const std::uint16_t port : second_ports_) arguments.push_back(second_host_ + ":" + std::to_string(port));
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);

  int commands[2];
  int answers[2];
  if (::pipe2(commands, O_CLOEXEC) != 0) return false;
  input_ = commands[1];
  if (::pipe2(answers, O_CLOEXEC) != 0) {
    ::close(commands[0]);
    return false;
  }
  output_ = answers[0];
  const pid_t launcher = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(1);  // it died before the line above
    ::dup2(commands[0], STDIN_FILENO);
    ::dup2(answers[1], STDOUT_FILENO);
    ::execv(path.c_str(), pointers.data());
    ::_exit(127);
  }
  ::close(commands[0]);
  ::close(answers[1]);
  if (pid_ < 0) return false;
  for (std::size_t i = 0; i < second_ports_.size(); ++i) {
    std::string line;
    unsigned port = 0;
    if (!read_line(line) || std::sscanf(line.c_str(), "%u ", &port) != 1) return false;
    relay_ports_.push_back(static_cast<std::uint16_t>(port));
  }
  return true;
}

bool Relays::read_line(std::string& line) {
  for (;;) {
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return true;
    }
    pollfd ready{.fd = output_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, k_answer_ms) <= 0) return false;
    char piece[4096];
    const ssize_t count = ::read(output_, piece, sizeof piece);
    if (count <= 0) return false;
    buffer_.append(piece, static_cast<std::size_t>(count));
  }
}

}  // namespace pd
