// SPDX-License-Identifier: Apache-2.0
//
// Payload that is damaged on its way: sent again a bounded number of times, then told.
#include <cstring>

#include "peer_world.hpp"

using namespace hixl;
using namespace hixl::peer::test;

namespace {

/// Damages the payload of the next `left` frames that pass, whichever way they go. Only payload comes in pieces longer
/// than a stream's read buffer.
class DamagedStream final : public runtime::Stream {
 public:
  DamagedStream(std::unique_ptr<runtime::Stream> inner, int& left) : inner_(std::move(inner)), left_(left) {}
  void set_events(runtime::StreamEvents* events) override { inner_->set_events(events); }
  void want_read(bool on) override { inner_->want_read(on); }
  std::string remote_text() const override { return inner_->remote_text(); }
  Credentials credentials() const override { return inner_->credentials(); }
  runtime::IoResult write(std::span<const iovec> pieces, std::span<const int> fds) override {
    std::vector<iovec> sent(pieces.begin(), pieces.end());
    std::vector<std::byte> copy;  // so that the source itself stays what it is
    std::size_t before = 0;
    for (iovec& piece : sent) {
      if (damages(piece.iov_len)) {
        const auto* source = static_cast<const std::byte*>(piece.iov_base);
        copy.assign(source, source + piece.iov_len);
        copy[0] ^= std::byte{4};
        piece.iov_base = copy.data();
        const auto result = inner_->write(sent, fds);
        if (result.bytes > before) damaged(piece.iov_len, result.bytes - before);
        return result;
      }
      before += piece.iov_len;
    }
    const auto result = inner_->write(pieces, fds);
    passed(pieces[0].iov_len, result.bytes);
    return result;
  }
  runtime::IoResult read(std::span<const iovec> pieces, std::vector<runtime::Fd>* fds) override {
    const auto result = inner_->read(pieces, fds);
    if (damages(pieces[0].iov_len) && result.bytes > 0) {
      static_cast<std::byte*>(pieces[0].iov_base)[0] ^= std::byte{4};
      damaged(pieces[0].iov_len, result.bytes);
    } else {
      passed(pieces[0].iov_len, result.bytes);
    }
    return result;
  }

 private:
  static constexpr std::size_t k_buffer_bytes = 16U << 10U;
  /// Once a frame: a piece as long as what was left of the damaged one is the rest of it.
  [[nodiscard]] bool damages(std::size_t bytes) const { return left_ > 0 && bytes > k_buffer_bytes && bytes != rest_; }
  void damaged(std::size_t bytes, std::size_t moved) {
    left_ -= 1;
    rest_ = bytes - std::min(bytes, moved);
  }
  void passed(std::size_t bytes, std::size_t moved) {
    if (bytes == rest_) rest_ -= std::min(bytes, moved);
  }
  std::unique_ptr<runtime::Stream> inner_;
  std::size_t rest_ = 0;
  int& left_;
};

/// Two ranks that know each other, over a network that damages what it is told to.
struct DamagedWorld {
  explicit DamagedWorld(std::uint64_t seed) : world(seed) {
    for (const Rank rank : {Rank{0}, Rank{1}}) {
      world[rank].services->check_payload = true;
      world[rank].counting.wrap = [this](std::unique_ptr<runtime::Stream> stream) {
        return std::make_unique<DamagedStream>(std::move(stream), left);
      };
    }
    world.meet(0, 1);
  }
  int left = 0;  ///< outlives the streams
  PeerWorld world;
};

std::uint64_t corrupt(Life& life, Rank other) {
  Counters counters;
  life.to(other).count(counters);
  return counters.corrupt_chunks;
}

}  // namespace

TEST_CASE("F75 bytes that arrive damaged up to three times are sent again, and the operation ends well") {
  for (const TransferVerb verb : {TransferVerb::put, TransferVerb::get}) {
    for (const int times : {1, 2, 3}) {
      CAPTURE(times);
      DamagedWorld damaged(40 + static_cast<std::uint64_t>(times));
      PeerWorld& world = damaged.world;
      for (std::size_t i = 4096; i < 204'096; ++i) world[0].memory[i] = static_cast<std::byte>(i * 7);
      for (std::size_t i = 4096; i < 204'096; ++i) world[1].memory[i] = static_cast<std::byte>(i * 11);
      const std::uint64_t word = world[1].word(0);
      damaged.left = times;
      const std::uint64_t add = verb == TransferVerb::put ? 5 : 0;
      Job& job = world[0].post(verb, world[1], 4096, 4096, 200'000, seconds(30), add);
      REQUIRE(world.run([&] { return job.ended(); }));
      CHECK(job.code == ErrorCode::ok);
      CHECK(damaged.left == 0);
      CHECK(std::memcmp(world[0].memory.data() + 4096, world[1].memory.data() + 4096, 200'000) == 0);
      CHECK(world[1].word(0) == word + add);  // once, and after all bytes
      CHECK(corrupt(world[0], 1) == static_cast<std::uint64_t>(times));
      CHECK(world[0].downs.empty());
    }
  }
}

TEST_CASE("F75 bytes that are damaged in every attempt end the operation with PAYLOAD_CORRUPT and the place") {
  for (const TransferVerb verb : {TransferVerb::put, TransferVerb::get}) {
    DamagedWorld damaged(50);
    PeerWorld& world = damaged.world;
    damaged.left = 4;
    Job& job = world[0].post(verb, world[1], 4096, 8192, 60'000);
    REQUIRE(world.run([&] { return job.ended(); }));
    CHECK(job.code == ErrorCode::payload_corrupt);
    CHECK(job.error.detail.rank == 1);
    CHECK(job.error.detail.limit == 8192);
    CHECK(job.error.detail.length == 60'000);
    const Life& where = world[verb == TransferVerb::put ? 1 : 0];
    CHECK(job.error.detail.address ==
          reinterpret_cast<std::uint64_t>(where.memory.data() + (verb == TransferVerb::put ? 8192 : 4096)));
    CHECK(damaged.left == 0);  // four attempts, not one more
    CHECK(corrupt(world[0], 1) == 4);
    // The third of them cost the connection; what comes next has a new one.
    Job& next = world[0].put(world[1], 4096, 200'000);
    REQUIRE(world.run([&] { return next.ended(); }));
    CHECK(next.code == ErrorCode::ok);
    CHECK(world[0].links(1)[0].failures >= 1);
  }
}
