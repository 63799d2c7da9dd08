// SPDX-License-Identifier: Apache-2.0
//
// What is open to a peer that stands still can be seen from here, and says where it waits.
#include <doctest/doctest.h>

#include <hixl/inspect_text.hpp>

#include "home.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_large = 64U << 20U;

std::vector<OperationInfo> open_rows(Home& home) {
  auto rows = home->outstanding();
  require_ok(rows);
  return std::move(*rows);
}

const OperationInfo& row_of(const std::vector<OperationInfo>& rows, std::uint64_t user_data) {
  for (const OperationInfo& row : rows) {
    if (row.user_data == user_data) return row;
  }
  FAIL("operation " << user_data << " is not there:\n" << to_text(rows));
  return rows.front();
}

}  // namespace

TEST_CASE("S26 P5 a stopped peer shows up with its operations: on which link, behind which fence, how old") {
  // Memory that is in no window, so that everything needs the peer's loop; on this host the kernel vouches for its
  // life.
  Home home(2, "tcp,hccs", k_large);
  Guest guest(home, 1, {"--registered", "--bytes", std::to_string(k_large)});
  require_ok(home->put_sync(home.data(), guest.remote().at(0), 64));
  guest->stop();

  const OpOptions patient{.timeout = k_patience};
  const auto with = [&patient](std::uint64_t number) {
    OpOptions options = patient;
    options.user_data = number;
    return options;
  };
  auto put = home->put(home.data(), guest.remote().at(0), k_large, with(1));
  auto get = home->get(home.data(), guest.remote().at(0), 4096, with(2));
  auto fence = home->fence(1, with(3));
  auto behind = home->put(home.data(), guest.remote().at(0), 4096, with(4));
  require_ok(put);
  require_ok(get);
  require_ok(fence);
  require_ok(behind);
  // The kernel's buffers take some of it; then nothing moves any more.
  REQUIRE(eventually([&] {
    const auto rows = open_rows(home);
    return rows.size() == 4 && row_of(rows, 1).state == OperationState::posted &&
           row_of(rows, 4).state == OperationState::waiting;
  }));
  const auto rows = open_rows(home);
  INFO(to_text(rows));
  CHECK(row_of(rows, 1).live[static_cast<std::size_t>(LinkKind::tcp)] > 0);
  CHECK(row_of(rows, 1).live[static_cast<std::size_t>(LinkKind::hccs)] == 0);
  CHECK(row_of(rows, 1).done_bytes < k_large);
  CHECK(row_of(rows, 1).bytes == k_large);
  CHECK(row_of(rows, 2).verb == OperationVerb::get);
  CHECK((row_of(rows, 2).state == OperationState::posted || row_of(rows, 2).state == OperationState::ready));
  CHECK(row_of(rows, 3).verb == OperationVerb::fence);
  CHECK(row_of(rows, 3).state == OperationState::waiting);
  for (const OperationInfo& row : rows) {
    CHECK(row.rank == 1);
    CHECK(row.error.code == ErrorCode::ok);
    CHECK(row.deadline_left > std::chrono::nanoseconds(0));
    CHECK(row.deadline_left + row.age <= k_patience + std::chrono::milliseconds(1));
  }
  for (std::size_t i = 1; i < rows.size(); ++i) CHECK(rows[i - 1].age >= rows[i].age);
  std::uint32_t in_flight = 0;
  for (const LinkInfo& link : home->links()) {
    if (link.kind == LinkKind::tcp) in_flight = link.in_flight;
  }
  CHECK(in_flight > 0);

  // Cancelled, the large put waits until it is known what became of its pieces. The peer does not say: at the latest
  // when its lease is over it ends with PEER_LOST, and nobody has looked at that.
  require_ok(put->cancel());
  REQUIRE(eventually([&] {
    const auto now = open_rows(home);
    const OperationInfo& row = row_of(now, 1);
    return row.state == OperationState::fencing || row.state == OperationState::ended;
  }));
  const ErrorCode end = row_of(open_rows(home), 1).error.code;
  CHECK((end == ErrorCode::cancelled || end == ErrorCode::peer_lost));

  guest->resume();
  static_cast<void>(put->wait());
  require_ok(get->wait());
  require_ok(fence->wait());
  require_ok(behind->wait());
  CHECK(open_rows(home).empty());
}
