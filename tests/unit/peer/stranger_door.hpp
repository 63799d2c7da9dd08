// SPDX-License-Identifier: Apache-2.0
//
// StrangerDoor: somebody who is dialled by a rank, and answers its hellos when and as the test wants it, or never.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../plain_sink.hpp"
#include "peer_world.hpp"

namespace hixl::peer::test {

class StrangerDoor final : private runtime::ListenerEvents {
 public:
  /// One who has dialled.
  class Caller final : private hixl::test::PlainSink {
   public:
    Caller(std::unique_ptr<runtime::Stream> stream, StrangerDoor& door)
        : door_(door), stream_(std::make_unique<links::FrameStream>(std::move(stream), door.loop_)) {
      stream_->set_sink(this);
    }
    template <class Message>
    void answer(wire::FrameType type, const Message& message) {
      wire::FrameHeader header;
      header.type = type;
      REQUIRE(links::send_message(*stream_, header, message));
      door_.port_.wake();
    }
    std::optional<wire::Hello> hello;
    bool down = false;

   private:
    void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>&) override {
      if (header.type == wire::FrameType::hello) REQUIRE(wire::decode_body(body, hello.emplace()));
    }
    void on_down(const Error&) override { down = true; }

    StrangerDoor& door_;
    std::unique_ptr<links::FrameStream> stream_;
  };

  StrangerDoor(PeerWorld& world, const std::string& name)
      : world_(world), port_(world.world.make_port(name)), loop_(port_, 1, 16) {
    auto listening = port_.listen(*runtime::Address::parse("127.0.0.1:0"), *this);
    REQUIRE(listening.has_value());
    listener_ = std::move(*listening);
    world.world.add(loop_, port_);
  }
  ~StrangerDoor() {
    callers_.clear();
    listener_.reset();
    world_.world.remove(port_);
  }
  /// What a book would say of a life that is dialled here.
  [[nodiscard]] wire::Endpoints endpoints(Rank rank, Incarnation incarnation, Birth birth = 1) const {
    return {.peer_id = {.high = 7, .low = rank + 1U},
            .incarnation = incarnation,
            .rank = rank,
            .birth = birth,
            .unix_name = {},
            .addresses = {listener_->address().text()}};
  }
  /// The i-th one, once its hello is there.
  [[nodiscard]] Caller& caller(std::size_t index, Duration time = seconds(5)) {
    REQUIRE(world_.run([&] { return callers_.size() > index && callers_[index]->hello; }, time));
    return *callers_[index];
  }
  [[nodiscard]] std::size_t callers() const noexcept { return callers_.size(); }

 private:
  void on_accept(std::unique_ptr<runtime::Stream> stream) override {
    callers_.push_back(std::make_unique<Caller>(std::move(stream), *this));
  }

  PeerWorld& world_;
  runtime::EventPort& port_;
  runtime::Loop loop_;
  std::unique_ptr<runtime::Listener> listener_;
  std::vector<std::unique_ptr<Caller>> callers_;
};

}  // namespace hixl::peer::test
