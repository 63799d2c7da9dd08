// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "frame.hpp"
#include "rival.hpp"
#include "wire.hpp"

namespace hixl::bench {

namespace {

/// One way in the bytes of messages, as both sides use it.
class Channel {
 public:
  Channel(Descriptor socket, const Ask& ask, const SocketStyle& style)
      : socket_(std::move(socket)), ask_(ask), style_(style), blocks_(ask.what == "batch" ? ask.count : 1) {
    if (style.tuned) tune(socket_);
    // Touched, so that no page fault is measured.
    data_.resize(blocks_ * ask.size, std::byte{1});
  }
  void fill_source() { fill(data_.data(), data_.size(), ask_.size); }
  [[nodiscard]] bool right() const { return verify(data_.data(), data_.size(), ask_.size); }
  Descriptor& socket() { return socket_; }

  void send_round() {
    std::byte answer{};
    const std::uint64_t start = now_ns();
    for (std::uint64_t i = 0; i < messages(); ++i) {
      send_one(i % blocks_);
      if (style_.answer_each) read_all(socket_, &answer, 1);
    }
    if (ask_.what == "flight") held_.add(now_ns() - start);
    if (!style_.answer_each) read_all(socket_, &answer, 1);
  }
  /// Median time for which a round of messages holds the sender.
  [[nodiscard]] double held_us() { return held_.us(500); }
  void receive_round() {
    const std::byte answer{1};
    for (std::uint64_t i = 0; i < messages(); ++i) {
      receive_one(i % blocks_);
      if (style_.answer_each || i + 1 == messages()) write_all(socket_, &answer, 1);
    }
  }

 private:
  /// A flow of many has one message under way; a batch or flight is one connection's.
  [[nodiscard]] std::uint64_t messages() const {
    return ask_.what == "batch" || ask_.what == "flight" ? ask_.count : 1;
  }
  void send_one(std::uint64_t block) {
    const std::byte* const source = data_.data() + block * ask_.size;
    if (!style_.framed) return write_all(socket_, source, ask_.size);
    if (!style_.tuned) message_ = {};
    const Frame frame{"layers.17.kv", {1, 2, static_cast<std::uint32_t>(block)}, source, ask_.size};
    serialise(frame, message_);
    if (style_.tuned) return write_all(socket_, message_.data(), message_.size());
    write_all(socket_, message_.data(), sizeof(std::uint64_t));
    write_all(socket_, message_.data() + sizeof(std::uint64_t), message_.size() - sizeof(std::uint64_t));
  }
  void receive_one(std::uint64_t block) {
    std::byte* const target = data_.data() + block * ask_.size;
    if (!style_.framed) return read_all(socket_, target, ask_.size);
    std::uint64_t length = 0;
    read_all(socket_, &length, sizeof length);
    if (length > ask_.size + 4096) give_up("a message of " + std::to_string(length) + " bytes was not asked for");
    if (!style_.tuned) message_ = {};
    message_.resize(length);
    read_all(socket_, message_.data(), length);
    Frame frame;
    if (!parse(message_, frame) || frame.size != ask_.size) give_up("what came is no frame");
    std::memcpy(target, frame.data, frame.size);
  }

  Descriptor socket_;
  const Ask& ask_;
  const SocketStyle style_;
  const std::uint64_t blocks_;
  std::vector<std::byte> data_;
  std::vector<std::byte> message_;
  Samples held_{64};
};

std::uint64_t flows_of(const Ask& ask) { return ask.what == "streams" ? ask.count : 1; }
std::uint64_t rounds_of(const Ask& ask) { return ask.rounds + ask.rounds / 10 + 1; }

/// The same for every channel at once, a thread each.
template <class F>
void everywhere(std::vector<Channel>& channels, const F& what) {
  if (channels.size() == 1) return what(channels.front());
  std::vector<std::thread> threads;
  for (Channel& channel : channels) threads.emplace_back([&what, &channel] { what(channel); });
  for (std::thread& thread : threads) thread.join();
}

/// The receiver's process. Its exit code.
int receive(const Descriptor& listener, const Ask& ask, const SocketStyle& style) {
  std::vector<Channel> channels;
  for (std::uint64_t i = 0; i < flows_of(ask); ++i) channels.emplace_back(accepted(listener), ask, style);
  const std::byte ready{1};
  for (Channel& channel : channels) write_all(channel.socket(), &ready, 1);
  everywhere(channels, [&](Channel& channel) {
    for (std::uint64_t i = 0; i < rounds_of(ask); ++i) channel.receive_round();
  });
  // Until the other side has measured: what follows is not part of it.
  std::byte go{};
  read_all(channels.front().socket(), &go, 1);
  for (Channel& channel : channels) {
    if (!channel.right()) return k_exit_wrong_bytes;
  }
  return 0;
}

}  // namespace

nlohmann::json socketed(const Ask& ask, const SocketStyle& style) {
  std::uint16_t port = 0;
  const Descriptor listener = listening(port);
  const pid_t child = fork();
  need_call(child >= 0, "fork");
  if (child == 0) _exit(receive(listener, ask, style));
  std::vector<Channel> channels;
  for (std::uint64_t i = 0; i < flows_of(ask); ++i) {
    channels.emplace_back(connected(std::to_string(port)), ask, style);
    channels.back().fill_source();
  }
  for (Channel& channel : channels) {
    std::byte ready{};
    read_all(channel.socket(), &ready, 1);
  }
  const PeakMemory here(getpid()), there(child);
  const auto cpu = [&] { return cpu_seconds() + process_seconds(child); };
  nlohmann::json answer;
  if (ask.what == "streams") {
    Samples samples(1);
    const auto run = [&](std::uint64_t rounds) {
      everywhere(channels, [rounds](Channel& channel) {
        for (std::uint64_t i = 0; i < rounds; ++i) channel.send_round();
      });
    };
    run(rounds_of(ask) - ask.rounds);
    const double before = cpu();
    const std::uint64_t start = now_ns();
    run(ask.rounds);
    samples.add((now_ns() - start) / ask.rounds);
    answer = row(ask, samples, cpu() - before);
  } else {
    answer = timed(
        ask, [&] { channels.front().send_round(); }, cpu);
  }
  answer["staging_bytes"] = here.grown_bytes() + there.grown_bytes();
  if (ask.what == "flight") answer["held_us"] = channels.front().held_us();
  const std::byte go{1};
  write_all(channels.front().socket(), &go, 1);
  int status = 0;
  need_call(waitpid(child, &status, 0) == child, "waitpid");
  need_bytes(!WIFEXITED(status) || WEXITSTATUS(status) != k_exit_wrong_bytes);
  if (status != 0) give_up("the receiver ended with status " + std::to_string(status));
  return answer;
}

}  // namespace hixl::bench
