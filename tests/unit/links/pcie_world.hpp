// SPDX-License-Identifier: Apache-2.0
//
// Two ranks with a cross-memory link between them, turned by the test in one thread; and memory that no peer can map.
#pragma once

#include <sys/mman.h>

#include "hccs_world.hpp"
#include "links/pcie/factory.hpp"

namespace hixl::pcie_test {

using hccs_test::drive;
using hccs_test::k_link_gen;
using hccs_test::k_link_id;
using hccs_test::k_session;
using hccs_test::pattern;
using hccs_test::Side;
using hccs_test::socket_pair;

[[nodiscard]] inline std::unique_ptr<Side> make_side(Rank self, std::uint64_t seed) {
  auto side = std::make_unique<Side>(self, seed);
  side->factory = links::make_pcie_factory(std::make_shared<links::CopyPool>(side->loop, 1));
  return side;
}

/// Private pages, registered at a side.
class Plain {
 public:
  explicit Plain(std::size_t bytes) : bytes_(bytes) {
    void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    data_ = static_cast<std::byte*>(pages);
  }
  ~Plain() { ::munmap(data_, bytes_); }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::span<std::byte> span() const noexcept { return {data_, bytes_}; }
  [[nodiscard]] memory::RegionInfo add_to(Side& side) const {
    const auto info = side.regions->add(data_, bytes_, {});
    REQUIRE(info);
    REQUIRE(info->window_id == 0);
    return *info;
  }

 private:
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

struct World {
  std::unique_ptr<Side> a = make_side(0, 11);
  std::unique_ptr<Side> b = make_side(1, 12);
  std::uint64_t cookie = 0;

  World() {
    auto pair = socket_pair();
    a->connect(std::move(pair[0]));
    b->connect(std::move(pair[1]));
    const bool settled = until([&] { return (a->record.up == 1 && b->record.up == 1) || a->record.down > 0; });
    INFO(a->record.error.message());
    REQUIRE(settled);
    REQUIRE(a->record.down == 0);
  }
  template <class Done>
  [[nodiscard]] bool until(Done&& done) {
    Side* const sides[] = {a.get(), b.get()};
    return drive(sides, done);
  }
  /// b's memory, as a knows it.
  [[nodiscard]] memory::RegionInfo shared(const Plain& plain) {
    const auto info = plain.add_to(*b);
    REQUIRE(a->link->attach(b->publish(info, *a, 1)) == links::Answer::done);
    return info;
  }
  /// Posts and waits for the end.
  [[nodiscard]] Error run(links::Verb verb, const memory::RegionInfo& region,
                          std::span<const links::Segment> segments) {
    links::Post post;
    post.verb = verb;
    post.cookie = ++cookie;
    post.region = region.key;
    post.token = region.token;
    post.segments = segments;
    const links::Answer answer = a->link->post(post);
    if (answer == links::Answer::busy) return Error(ErrorCode::busy);
    if (answer == links::Answer::done) return {};
    REQUIRE(until([&] { return a->record.completion(cookie) != nullptr; }));
    return a->record.completion(cookie)->error;
  }
  [[nodiscard]] Error run(links::Verb verb, const memory::RegionInfo& region, const links::Segment& segment) {
    return run(verb, region, std::span(&segment, 1));
  }
};

}  // namespace hixl::pcie_test
