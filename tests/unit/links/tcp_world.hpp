// SPDX-License-Identifier: Apache-2.0
//
// Two tcp links over a pipe in memory, each with the tables of a rank, turned in one thread. And a peer that is not
// ours: it sends any frame it likes.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/random.hpp"
#include "links/link.hpp"
#include "links/tcp/factory.hpp"
#include "memory_pipe.hpp"

namespace hixl::test {

using ByteVector = std::vector<std::byte>;

inline ByteVector random_bytes(Random& random, std::size_t size) {
  ByteVector bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

/// Registered memory with a canary on each side of it.
struct Guarded {
  static constexpr std::size_t k_canary_bytes = 256;
  static constexpr std::byte k_canary{0xa5};
  explicit Guarded(std::size_t size, std::byte fill = std::byte{0}) : size_(size), bytes_(size + 2 * k_canary_bytes) {
    std::fill(bytes_.begin(), bytes_.end(), k_canary);
    std::fill_n(data(), size, fill);
  }
  [[nodiscard]] std::byte* data() { return bytes_.data() + k_canary_bytes; }
  [[nodiscard]] std::span<std::byte> span() { return {data(), size_}; }
  [[nodiscard]] bool canaries_whole() const {
    const auto whole = [](std::byte b) { return b == k_canary; };
    const auto middle = bytes_.begin() + k_canary_bytes;
    return std::all_of(bytes_.begin(), middle, whole) &&
           std::all_of(middle + static_cast<std::ptrdiff_t>(size_), bytes_.end(), whole);
  }
  [[nodiscard]] bool all(std::byte value) {
    return std::all_of(span().begin(), span().end(), [&](std::byte b) { return b == value; });
  }

 private:
  std::size_t size_;
  ByteVector bytes_;
};

/// What the owner of a link sees.
struct Owner final : links::LinkEvents {
  void on_up() override {
    REQUIRE(!inside);
    up = true;
  }
  void on_completions() override {
    REQUIRE(!inside);
    ++completion_events;
    if (poll_at_once) take();
    if (on_event) on_event();
  }
  void on_credit() override {
    REQUIRE(!inside);
    ++credits;
  }
  void on_control(const wire::FrameHeader& header, ConstBytes body) override {
    REQUIRE(up);
    REQUIRE(!inside);
    control.push_back(header);
    bodies.emplace_back(body.begin(), body.end());
    if (on_event) on_event();
  }
  void on_attached(RegionKey, const Result<void>&) override {}
  void on_down(const Error& error) override {
    REQUIRE(!inside);
    REQUIRE(!down);
    down = error;
  }
  void take() {
    std::array<links::Completion, 3> out;
    for (std::size_t count; (count = link->poll(out)) != 0;) {
      completions.insert(completions.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count));
    }
  }
  std::unique_ptr<links::Link> link;
  bool inside = false;  ///< a call into the link is under way
  bool up = false;
  bool poll_at_once = true;
  std::size_t completion_events = 0;
  std::size_t credits = 0;
  std::vector<links::Completion> completions;
  std::vector<wire::FrameHeader> control;
  std::vector<ByteVector> bodies;
  std::optional<Error> down;
  std::function<void()> on_event;
};

struct Side {
  Side(runtime::Loop& loop_in, std::uint64_t seed)
      : loop(loop_in),
        regions(std::move(*memory::RegionTable::create(64, seed))),
        signals(std::move(*memory::SignalPage::create())) {}
  [[nodiscard]] memory::RegionInfo add(std::span<std::byte> memory, Rights rights = Rights::all) {
    return *regions->add(memory.data(), memory.size(), {.rights = rights});
  }
  runtime::Loop& loop;
  std::unique_ptr<memory::RegionTable> regions;
  std::unique_ptr<memory::SignalPage> signals;
  memory::RemoteTable remotes{64};
  links::AtomicWindow atomics{4};  ///< small, so that its end is near
  Owner owner;
};

constexpr links::LinkIdentity k_identity{.rank = 1, .session = 9, .link_id = 2, .link_gen = 4, .dialled = true};

class TcpWorld {
 public:
  struct Options {
    std::uint32_t tx_depth = 32;
    std::uint32_t rx_depth = 4;
    bool second = true;  ///< false: the other end is given to a Stranger
    std::array<bool, 2> check_payload{};
  };
  explicit TcpWorld(const Options& options) {
    for (std::size_t i = 0; i < (options.second ? 2U : 1U); ++i) {
      auto stream = std::make_unique<links::FrameStream>(pair.stream(i), pair.ends[i].loop);
      streams[i] = stream.get();
      Side& side = sides[i];
      side.owner.link = factory->make(k_identity, std::move(stream),
                                      {.loop = side.loop,
                                       .regions = *side.regions,
                                       .remotes = side.remotes,
                                       .signals = *side.signals,
                                       .tx_depth = options.tx_depth,
                                       .rx_depth = options.rx_depth,
                                       .atomics = &side.atomics,
                                       .check_payload = options.check_payload[i]},
                                      side.owner);
      CHECK(!side.owner.up);
    }
    REQUIRE(pair.settle());
    CHECK(sides[0].owner.up);
  }
  TcpWorld() : TcpWorld(Options{}) {}

  [[nodiscard]] links::Link& link(std::size_t side = 0) { return *sides[side].owner.link; }
  [[nodiscard]] Owner& owner(std::size_t side = 0) { return sides[side].owner; }

  struct PostArgs {
    links::Verb verb = links::Verb::write;
    std::uint64_t cookie = 0;
    const memory::RegionInfo* region = nullptr;
    std::vector<links::Segment> segments;
    std::uint64_t value = 0;
    links::AtomicTerms atomic{};
  };
  /// Posts from side 0. The segments live as long as the world.
  links::Answer post(const PostArgs& args) {
    kept_.push_back(args.segments);
    Owner& owner = sides[0].owner;
    owner.inside = true;
    const links::Answer answer = owner.link->post({.verb = args.verb,
                                                   .cookie = args.cookie,
                                                   .op_id = args.cookie + 1000,
                                                   .chunk = 3,
                                                   .attempt = 1,
                                                   .region = args.region->key,
                                                   .token = args.region->token,
                                                   .local_device = &memory::host_device(),
                                                   .segments = kept_.back(),
                                                   .value = args.value,
                                                   .atomic = args.atomic});
    owner.inside = false;
    return answer;
  }
  /// The code of the one completion that has come since the last call.
  [[nodiscard]] ErrorCode only_code() {
    REQUIRE(pair.settle());
    REQUIRE(owner().completions.size() == 1);
    const ErrorCode code = owner().completions[0].error.code;
    owner().completions.clear();
    return code;
  }

  PipePair pair;
  std::array<Side, 2> sides{Side(pair.ends[0].loop, 1), Side(pair.ends[1].loop, 2)};
  std::unique_ptr<links::LinkFactory> factory = links::make_tcp_factory();
  std::array<links::FrameStream*, 2> streams{};

 private:
  std::deque<std::vector<links::Segment>> kept_;
};

/// Sits at end 1 of a world and writes frames by hand.
class Stranger final : public links::FrameSink {
 public:
  explicit Stranger(TcpWorld& world)
      : stream_(std::make_unique<links::FrameStream>(world.pair.stream(1), world.pair.ends[1].loop,
                                                     std::size_t{64} << 20U)) {
    stream_->set_sink(this);
  }
  [[nodiscard]] static wire::FrameHeader header(wire::FrameType type, LinkSeq seq) {
    wire::FrameHeader header;
    header.type = type;
    header.session = k_identity.session;
    header.link_id = k_identity.link_id;
    header.link_gen = k_identity.link_gen;
    header.link_seq = seq;
    return header;
  }
  template <class Message>
  void send(const wire::FrameHeader& header, const Message& message, ConstBytes payload = {}) {
    std::array<std::byte, 1024> body;
    ByteWriter writer(body);
    encode(message, writer);
    send_raw(header, writer.written(), payload);
  }
  void send_raw(const wire::FrameHeader& header, ConstBytes body, ConstBytes payload = {}) {
    std::vector<iovec> pieces;
    if (!payload.empty()) {
      ByteVector& kept = kept_.emplace_back(payload.begin(), payload.end());  // read when the frame leaves
      pieces.push_back({kept.data(), kept.size()});
    }
    REQUIRE(stream_->send(header, body, pieces, 0));
  }
  [[nodiscard]] links::FrameStream& stream() { return *stream_; }
  [[nodiscard]] std::size_t count(wire::FrameType type) const {
    return static_cast<std::size_t>(
        std::count_if(headers.begin(), headers.end(), [&](const auto& h) { return h.type == type; }));
  }
  std::vector<wire::FrameHeader> headers;
  std::vector<ByteVector> bodies;
  bool down = false;

 private:
  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>&) override {
    headers.push_back(header);
    bodies.emplace_back(body.begin(), body.end());
  }
  void on_payload_start(const wire::FrameHeader& header, ConstBytes body) override {
    headers.push_back(header);
    bodies.emplace_back(body.begin(), body.end());
  }
  std::size_t payload_target(std::uint64_t, std::span<iovec>) override { return 0; }
  void on_payload_bytes(std::size_t) override {}
  void on_payload_end() override {}
  void on_sendable() override {}
  void on_sent(std::uint64_t) override {}
  void on_down(const Error&) override { down = true; }
  std::deque<ByteVector> kept_;
  std::unique_ptr<links::FrameStream> stream_;
};

}  // namespace hixl::test
