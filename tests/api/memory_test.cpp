// SPDX-License-Identifier: Apache-2.0
//
// Kinds of memory through the public interface: device memory on every link and in every form, its capacity and spill,
// placement, ranges that a program unmaps.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_page_bytes = 4096;
constexpr std::uint64_t k_hbm_bytes = 32U << 20U;
constexpr AllocateOptions k_hbm{.kind = MemoryKind::hbm};

/// Two ranks with device memory; rank 0 knows a host window and a device region of rank 1.
struct DevicePair {
  explicit DevicePair(std::vector<LinkKind> links, std::size_t bytes = 8U << 20U) {
    auto made = Store::create("tcp://127.0.0.1:0");
    require_ok(made);
    store = std::move(*made);
    for (Rank rank = 0; rank < 2; ++rank) {
      RuntimeOptions options = options_for(rank, 2, store->url(), links);
      options.hbm_bytes = k_hbm_bytes;
      auto runtime = Runtime::create(options);
      require_ok(runtime);
      ranks[rank] = std::move(*runtime);
      host[rank] = *ranks[rank]->allocate(bytes);
      device[rank] = *ranks[rank]->allocate(bytes, k_hbm);
    }
    const Region theirs[] = {host[1], device[1]};
    const Rank zero[] = {0};
    const Rank one[] = {1};
    std::thread other([&] { static_cast<void>(ranks[1]->exchange(theirs, zero, k_patience)); });
    auto answers = ranks[0]->exchange({}, one, k_patience);
    other.join();
    require_ok(answers.front().result);
    remote_host = answers.front().regions.at(0);
    remote_device = answers.front().regions.at(1);
  }
  Runtime& a() { return *ranks[0]; }
  Runtime& b() { return *ranks[1]; }
  std::unique_ptr<Store> store;
  std::unique_ptr<Runtime> ranks[2];
  Region host[2];
  Region device[2];
  RemoteRegion remote_host;
  RemoteRegion remote_device;
};

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  fill_pattern(data.data(), bytes, seed);
  return data;
}

std::vector<std::byte> device_bytes(Runtime& runtime, const Region& region, std::uint64_t offset, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  require_ok(runtime.copy_out(region, offset, data.data(), bytes));
  return data;
}

}  // namespace

TEST_CASE("F146 device memory at either side of puts and gets, in every form and size") {
  for (const auto& links : std::vector<std::vector<LinkKind>>{{}, {LinkKind::tcp}, {LinkKind::hccs}}) {
    CAPTURE(text(links));
    DevicePair pair(links);
    CHECK(pair.remote_device.kind == MemoryKind::hbm);
    CHECK(pair.remote_host.kind == MemoryKind::host);
    const bool windows_only = text(links) == "hccs";
    std::uint64_t seed = 1;
    for (const Form form : k_forms) {
      for (const std::size_t size :
           {std::size_t{8}, std::size_t{64}, std::size_t{65}, std::size_t{70'000}, (std::size_t{5} << 20U) + 13}) {
        CAPTURE(static_cast<int>(form));
        CAPTURE(size);
        const auto bytes = pattern(size, ++seed);
        require_ok(pair.a().copy_in(pair.device[0], 64, bytes.data(), size));
        // Local device memory to a window, and back to other device memory.
        require_ok(
            transfer(pair.a(), form, TransferVerb::put, pair.device[0].data + 64, pair.remote_host.at(128), size));
        CHECK(std::equal(bytes.begin(), bytes.end(), pair.host[1].data + 128));
        const std::vector<std::byte> nothing(size);
        require_ok(pair.a().copy_in(pair.device[0], 64, nothing.data(), size));
        require_ok(
            transfer(pair.a(), form, TransferVerb::get, pair.device[0].data + 64, pair.remote_host.at(128), size));
        CHECK(device_bytes(pair.a(), pair.device[0], 64, size) == bytes);
        // To and from the other side's device memory.
        const auto put =
            transfer(pair.a(), form, TransferVerb::put, pair.device[0].data + 64, pair.remote_device.at(256), size);
        if (windows_only) {
          CHECK(code_of(put) == ErrorCode::transport_unavailable);
          continue;
        }
        require_ok(put);
        CHECK(device_bytes(pair.b(), pair.device[1], 256, size) == bytes);
        std::fill_n(pair.host[0].data, size, std::byte{0});
        require_ok(transfer(pair.a(), form, TransferVerb::get, pair.host[0].data, pair.remote_device.at(256), size));
        CHECK(std::equal(bytes.begin(), bytes.end(), pair.host[0].data));
      }
    }
    if (windows_only) {
      CHECK(pair.a().counters().staging_bytes == 0);
      continue;
    }
    const Counters counters = pair.a().counters();
    CHECK(counters.copies > 0);
    CHECK(counters.staging_bytes > 0);
    CHECK(counters.staging_bytes <= (256U << 10U) + 4 * (1U << 20U));  // bounded, whatever is in flight
    CHECK(counters.hbm_bytes == pair.device[0].size);
    CHECK(counters.bytes_out[static_cast<std::size_t>(LinkKind::tcp)] > 0);
  }
}

TEST_CASE("F146 many transfers of device memory at once stay within the staging buffers") {
  DevicePair pair({LinkKind::tcp});
  constexpr std::size_t k_each = 300'000;
  constexpr std::size_t k_count = 24;
  const auto bytes = pattern(k_each * k_count, 5);
  require_ok(pair.a().copy_in(pair.device[0], 0, bytes.data(), bytes.size()));
  std::vector<Request> requests;
  for (std::size_t i = 0; i < k_count; ++i) {
    requests.push_back(*pair.a().put(pair.device[0].data + i * k_each, pair.remote_device.at(i * k_each), k_each));
  }
  for (Request& request : requests) require_ok(request.wait());
  CHECK(device_bytes(pair.b(), pair.device[1], 0, bytes.size()) == bytes);
  requests.clear();
  require_ok(pair.a().copy_in(pair.device[0], 0, std::vector<std::byte>(bytes.size()).data(), bytes.size()));
  for (std::size_t i = 0; i < k_count; ++i) {
    requests.push_back(*pair.a().get(pair.device[0].data + i * k_each, pair.remote_device.at(i * k_each), k_each));
  }
  for (Request& request : requests) require_ok(request.wait());
  CHECK(device_bytes(pair.a(), pair.device[0], 0, bytes.size()) == bytes);
  CHECK(pair.a().counters().staging_bytes <= (256U << 10U) + 4 * (1U << 20U));
  CHECK(pair.b().counters().staging_bytes <= (256U << 10U) + 4 * (1U << 20U));
}

TEST_CASE("device memory of this rank itself") {
  DevicePair pair({});
  const std::vector<Region> mine{pair.device[0]};
  const Rank zero[] = {0};
  const auto answers = pair.a().exchange(mine, zero, k_patience);
  require_ok(answers.front().result);
  const RemoteRegion own = answers.front().regions.front();
  const auto bytes = pattern(100'000, 3);
  require_ok(pair.a().copy_in(pair.device[0], 0, bytes.data(), bytes.size()));
  require_ok(pair.a().put_sync(pair.device[0].data, own.at(1U << 20U), bytes.size()));
  CHECK(device_bytes(pair.a(), pair.device[0], 1U << 20U, bytes.size()) == bytes);
  require_ok(pair.a().put_sync(pair.device[0].data, own.at(4096), 8));  // as small as those that are copied in the call
  CHECK(device_bytes(pair.a(), pair.device[0], 4096, 8) == std::vector(bytes.begin(), bytes.begin() + 8));
}

TEST_CASE("signals and waits on device memory are refused before a byte moves") {
  for (const auto& links : std::vector<std::vector<LinkKind>>{{}, {LinkKind::tcp}}) {
    CAPTURE(text(links));
    DevicePair pair(links);
    std::memset(pair.host[0].data, 0x77, 4096);
    auto request = pair.a().put_with_signal(pair.host[0].data, pair.remote_host.at(0), 4096,
                                            {.word = pair.remote_device.at(0), .value = 1});
    CHECK((request ? code_of(request->wait()) : request.error().code) == ErrorCode::unsupported);
    CHECK(pair.host[1].data[0] == std::byte{0});
    CHECK(code_of(pair.a().wait_signal(pair.device[0].data, Compare::equal, 0)) == ErrorCode::unsupported);
    // A signal beside device data is fine.
    auto fine = pair.a().put_with_signal(pair.device[0].data, pair.remote_device.at(0), 4096,
                                         {.word = pair.remote_host.at(8192), .value = 9});
    require_ok(fine);
    require_ok(fine->wait());
    require_ok(pair.b().wait_signal(pair.host[1].data + 8192, Compare::equal, 9, k_patience));
  }
}

TEST_CASE("atomics on device memory are refused, at a peer and at home, and change nothing") {
  for (const auto& links : std::vector<std::vector<LinkKind>>{{}, {LinkKind::tcp}}) {
    CAPTURE(text(links));
    DevicePair pair(links);
    const auto bytes = pattern(4096, 7);
    require_ok(pair.b().copy_in(pair.device[1], 0, bytes.data(), bytes.size()));
    auto posted = pair.a().fetch_add(pair.remote_device.at(8), 1);
    CHECK(name(posted ? code_of(posted->wait()) : posted.error().code) == "UNSUPPORTED");
    CHECK(name(code_of(pair.a().swap_sync(pair.remote_device.at(8), 1))) == "UNSUPPORTED");
    const RemoteAddress own{.rank = 1, .address = pair.device[1].address() + 8};
    CHECK(name(code_of(pair.b().compare_swap(own, 0, 1))) == "UNSUPPORTED");
    CHECK(name(code_of(pair.b().fetch_add_sync(own, 1))) == "UNSUPPORTED");
    CHECK(device_bytes(pair.b(), pair.device[1], 0, bytes.size()) == bytes);
  }
}

TEST_CASE("F147 device memory: none, too little, spilled") {
  RuntimeOptions options;
  auto none = Runtime::create(options);
  require_ok(none);
  CHECK(code_of((*none)->allocate(k_page_bytes, k_hbm)) == ErrorCode::unsupported);

  options.hbm_bytes = 10 * k_page_bytes;
  auto runtime = Runtime::create(options);
  require_ok(runtime);
  const auto first = (*runtime)->allocate(8 * k_page_bytes, k_hbm);
  require_ok(first);
  CHECK(first->kind == MemoryKind::hbm);
  CHECK(!first->window);
  CHECK(first->page_bytes == k_page_bytes);
  CHECK(first->spilled_bytes == 0);
  const auto refused = (*runtime)->allocate(3 * k_page_bytes, k_hbm);
  REQUIRE(!refused);
  CHECK(refused.error().code == ErrorCode::no_memory);
  CHECK(refused.error().detail.length == 3 * k_page_bytes);
  CHECK(refused.error().detail.limit == 2 * k_page_bytes);
  const auto spilled = (*runtime)->allocate(3 * k_page_bytes, {.kind = MemoryKind::hbm, .allow_paging_to_ddr = true});
  require_ok(spilled);
  CHECK(spilled->spilled_bytes == k_page_bytes);
  CHECK((*runtime)->counters().hbm_bytes == 10 * k_page_bytes);
  CHECK((*runtime)->counters().spilled_bytes == k_page_bytes);
  const auto bytes = pattern(3 * k_page_bytes, 8);
  require_ok((*runtime)->copy_in(*spilled, 0, bytes.data(), bytes.size()));
  CHECK(device_bytes(**runtime, *spilled, 0, bytes.size()) == bytes);
  require_ok((*runtime)->deregister(*first));
  require_ok((*runtime)->deregister(*spilled));
  CHECK((*runtime)->counters().hbm_bytes == 0);
  CHECK((*runtime)->counters().spilled_bytes == 0);
  CHECK(code_of((*runtime)->copy_in(*first, 0, bytes.data(), 8)) == ErrorCode::stale);
}

TEST_CASE("copies between a program's memory and a region: what is refused") {
  RuntimeOptions options;
  options.hbm_bytes = 10 * k_page_bytes;
  auto runtime = Runtime::create(options);
  require_ok(runtime);
  const Region device = *(*runtime)->allocate(2 * k_page_bytes, k_hbm);
  const Region host = *(*runtime)->allocate(2 * k_page_bytes);
  std::byte bytes[64] = {};
  for (const Region& region : {device, host}) {
    require_ok((*runtime)->copy_in(region, 2 * k_page_bytes - 64, bytes, 64));
    require_ok((*runtime)->copy_in(region, 2 * k_page_bytes, nullptr, 0));
    CHECK(code_of((*runtime)->copy_in(region, 2 * k_page_bytes - 63, bytes, 64)) == ErrorCode::out_of_range);
    CHECK(code_of((*runtime)->copy_out(region, ~std::uint64_t{0}, bytes, 2)) == ErrorCode::out_of_range);
    CHECK(code_of((*runtime)->copy_out(region, 0, nullptr, 2)) == ErrorCode::invalid_argument);
    CHECK(code_of((*runtime)->copy_out(region, 0, device.data, 2)) == ErrorCode::invalid_argument);
  }
  CHECK(code_of((*runtime)->copy_in({}, 0, bytes, 8)) == ErrorCode::stale);
}

TEST_CASE("F148 F150 where memory is, and its pages") {
  auto runtime = Runtime::create({});
  require_ok(runtime);
  const auto plain = (*runtime)->allocate(k_page_bytes);
  CHECK(plain->page_bytes == k_page_bytes);
  CHECK(plain->numa_node == k_no_numa_node);
  const auto placed = (*runtime)->allocate(k_page_bytes, {.numa_node = 0});
  require_ok(placed);
  CHECK((placed->numa_node == 0 || placed->numa_node == k_no_numa_node));  // or the system does not tell
  require_ok((*runtime)->allocate(k_page_bytes, {.numa_node = k_numa_auto}));
  const auto nowhere = (*runtime)->allocate(k_page_bytes, {.numa_node = 4711});
  REQUIRE(!nowhere);
  CHECK(nowhere.error().code == ErrorCode::invalid_argument);
  CHECK(nowhere.error().detail.length == 4711);
  CHECK(nowhere.error().detail.limit >= 1);
  require_ok((*runtime)->allocate(k_page_bytes, {.huge_pages = HugePages::prefer}));
}

TEST_CASE("S9 memory that its owner unmapped is refused by name, and the link stays") {
  World world(2, {LinkKind::tcp});
  void* pages = mmap(nullptr, 4 * k_page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(pages != MAP_FAILED);
  const Region theirs = *world[1].register_memory(pages, 4 * k_page_bytes);
  const Region mine = *world[0].allocate(4 * k_page_bytes);
  const auto table = world.exchange_all({mine, theirs});
  const RemoteRegion remote = table[0][1];
  require_ok(world[0].put_sync(mine.data, remote.at(0), 4 * k_page_bytes));
  REQUIRE(munmap(static_cast<std::byte*>(pages) + k_page_bytes, k_page_bytes) == 0);
  for (int round = 0; round < 3; ++round) {
    CHECK(code_of(world[0].put_sync(mine.data, remote.at(0), 4 * k_page_bytes)) == ErrorCode::memory_unmapped);
    CHECK(code_of(world[0].get_sync(mine.data, remote.at(k_page_bytes), 8)) == ErrorCode::memory_unmapped);
    auto signal = world[0].put_with_signal(mine.data, remote.at(0), 8, {.word = remote.at(k_page_bytes), .value = 1});
    require_ok(signal);
    CHECK(code_of(signal->wait()) == ErrorCode::memory_unmapped);
    CHECK(code_of(world[0].fetch_add_sync(remote.at(k_page_bytes), 1)) == ErrorCode::memory_unmapped);
    require_ok(world[0].put_sync(mine.data, remote.at(0), k_page_bytes));  // what is still there
  }
  CHECK(world[0].counters().link_failures == 0);
  munmap(pages, 4 * k_page_bytes);
}

TEST_CASE("P26 a get into memory that cannot be written is refused, on every link") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    World world(2, links);
    auto* pages = static_cast<std::byte*>(
        mmap(nullptr, k_page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fill_pattern(pages, k_page_bytes, 4);
    REQUIRE(mprotect(pages, k_page_bytes, PROT_READ) == 0);
    CHECK(code_of(world[0].register_memory(pages, k_page_bytes)) == ErrorCode::access_denied);
    require_ok(world[0].register_memory(pages, k_page_bytes, {.rights = Rights::read}));
    const Region mine = *world[0].allocate(k_page_bytes);
    const Region theirs = *world[1].allocate(k_page_bytes);
    const RemoteRegion remote = world.exchange_all({mine, theirs})[0][1];
    for (const Form form : k_forms) {
      require_ok(transfer(world[0], form, TransferVerb::put, pages, remote.at(0), k_page_bytes));
      CHECK(code_of(transfer(world[0], form, TransferVerb::get, pages, remote.at(0), 128)) == ErrorCode::access_denied);
    }
    CHECK(holds_pattern(theirs.data, k_page_bytes, 4));
    munmap(pages, k_page_bytes);
  }
}

TEST_CASE("deregistering much memory goes in steps, and ends") {
  auto runtime = Runtime::create({});
  require_ok(runtime);
  std::vector<Region> regions;
  for (const std::size_t size : {std::size_t{200} << 20U, std::size_t{3} << 20U, std::size_t{100} << 20U}) {
    const auto region = (*runtime)->allocate(size, {.zero_on_release = true});
    require_ok(region);
    regions.push_back(*region);
  }
  std::vector<Answer<Result<void>>> answers(regions.size());
  for (std::size_t i = 0; i < regions.size(); ++i) {
    require_ok((*runtime)->deregister_async(regions[i], k_patience, store_result, &answers[i]));
  }
  for (auto& answer : answers) {
    REQUIRE(answer.wait());
    require_ok(answer.value);
  }
}
