// SPDX-License-Identifier: Apache-2.0
//
// PlainSink: for peers made by tests, which look at frames and take no payload.
#pragma once

#include "links/frame_stream.hpp"

namespace hixl::test {

class PlainSink : public links::FrameSink {
 public:
  void on_payload_start(const wire::FrameHeader&, ConstBytes) override {}
  std::size_t payload_target(std::uint64_t, std::span<iovec>) override { return 0; }
  void on_payload_bytes(std::size_t) override {}
  void on_payload_end() override {}
  void on_sendable() override {}
  void on_sent(std::uint64_t) override {}
  void on_down(const Error&) override {}

 protected:
  ~PlainSink() = default;
};

}  // namespace hixl::test
