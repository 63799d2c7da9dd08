// SPDX-License-Identifier: Apache-2.0
//
// fence_cost: what the checks that fencing needs cost a frame when nothing fails, beside the time of that frame on its
// link. There is no build without the checks, so they are run alone, as a target runs them for each write: session,
// generation and number; the region, whole before the first byte, and that it still stands in the turn that touches it;
// the record of what was executed. One JSON line a frame size. Lives with the tests, since programs in bench/ see the
// public interface only.
#include <sys/utsname.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include <hixl/runtime.hpp>
#include <hixl/store.hpp>

#include "links/sequencer.hpp"
#include "measure.hpp"
#include "memory/region_table.hpp"
#include "memory_pipe.hpp"

namespace {

using namespace hixl;
using namespace hixl::bench;

template <class T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  std::cerr << "fence_cost: " << result.error().message() << "\n";
  std::exit(1);
}
void need(const Result<void>& result, const char* what) {
  if (result) return;
  std::cerr << "fence_cost: " << what << ": " << result.error().message() << "\n";
  std::exit(1);
}

struct Checks {
  double accept_ns = 0;  ///< session, generation, number
  double region_ns = 0;  ///< the access, and again that its region stands
  double record_ns = 0;  ///< executed set, and that an acknowledgement is due
  double all_ns = 0;     ///< the three together, as one pass
};

/// Median over batches of the time of one call.
template <class Body>
double each_ns(std::size_t rounds, Body&& body) {
  constexpr std::size_t k_batch = 1000;
  Samples samples(rounds / k_batch + 1);
  for (std::size_t done = 0; done < rounds; done += k_batch) {
    const std::uint64_t start = now_ns();
    for (std::size_t i = 0; i < k_batch; ++i) body();
    samples.add(now_ns() - start);
  }
  return samples.us(500) * 1000 / k_batch;
}

/// A target with many regions, so that the look-up is not that of a table of one line.
class Target {
 public:
  Target() : memory_(k_regions * k_region_bytes), table_(need(memory::RegionTable::create(1U << 16U, 1))) {
    for (std::size_t i = 0; i < k_regions; ++i) {
      regions_.push_back(need(table_->add(memory_.data() + i * k_region_bytes, k_region_bytes, {})));
    }
    header_ = sequencer_.header(wire::FrameType::write);
  }
  void accept() {
    header_.link_seq += 1;
    need(sequencer_.accept(header_), "accept");
  }
  void check_region() {
    const memory::RegionInfo& region = present();
    const auto place = table_->check(region.key, region.token, 64, 4096, Rights::write);
    if (!place || place->data != region.data + 64) std::exit(1);
  }
  void check_again() {
    if (!table_->stands(present().key)) std::exit(1);
  }
  void record() { sequencer_.executed(header_.link_seq, true); }
  [[nodiscard]] LinkSeq highest() const { return sequencer_.executed_set().highest; }

 private:
  static constexpr std::size_t k_regions = 256;
  static constexpr std::size_t k_region_bytes = 8192;
  [[nodiscard]] const memory::RegionInfo& present() const { return regions_[header_.link_seq * 7 % k_regions]; }
  std::vector<std::byte> memory_;
  std::unique_ptr<memory::RegionTable> table_;
  std::vector<memory::RegionInfo> regions_;
  test::PipePair pipe_;
  links::FrameStream stream_{pipe_.stream(0), pipe_.ends[0].loop};
  links::Sequencer sequencer_{stream_, {.session = 7, .link_id = 3, .link_gen = 5}, 32, pipe_.ends[0].loop};
  wire::FrameHeader header_;
};

Checks measure_checks(std::size_t rounds) {
  Checks checks;
  const auto all = [](Target& target) {
    target.accept();
    target.check_region();
    target.check_again();
    target.record();
  };
  Target together;
  checks.all_ns = each_ns(rounds, [&] { all(together); });
  if (together.highest() == 0) std::exit(1);
  Target apart;
  checks.accept_ns = each_ns(rounds, [&] { apart.accept(); });
  checks.region_ns = each_ns(rounds, [&] {
    apart.check_region();
    apart.check_again();
  });
  Target recording;
  checks.record_ns = each_ns(rounds, [&] {
    recording.accept();
    recording.record();
  });
  checks.record_ns -= checks.accept_ns;
  return checks;
}

/// The time of one frame of `size` bytes among many on a tcp link over loopback: puts of one frame each, 64 at a time.
double frame_ns(std::size_t size, std::size_t rounds) {
  constexpr std::size_t k_burst = 64;
  const auto store = need(Store::create("tcp://127.0.0.1:0"));
  std::unique_ptr<Runtime> ranks[2];
  Region regions[2];
  for (Rank rank = 0; rank < 2; ++rank) {
    RuntimeOptions options;
    options.rank = rank;
    options.world_size = 2;
    options.store = store->url();
    options.links = {LinkKind::tcp};
    options.tx_depth = k_burst;
    ranks[rank] = need(Runtime::create(options));
    regions[rank] = need(ranks[rank]->allocate(size * k_burst));
  }
  std::thread other([&] {
    const Rank zero[] = {0};
    need(ranks[1]->exchange(std::span(&regions[1], 1), zero).front().result, "exchange");
  });
  const Rank one[] = {1};
  auto answers = ranks[0]->exchange(std::span(&regions[0], 1), one);
  other.join();
  need(answers.front().result, "exchange");
  const RemoteRegion remote = answers.front().regions.front();
  Samples samples(rounds);
  std::vector<Request> requests(k_burst);
  for (std::size_t i = 0; i < rounds + rounds / 10; ++i) {
    if (i % 64 == 0) fill(regions[0].data, size * k_burst, i);
    const std::uint64_t start = now_ns();
    for (std::size_t n = 0; n < k_burst; ++n) {
      requests[n] = need(ranks[0]->put(regions[0].data + n * size, remote.at(n * size), size));
    }
    need(wait_all(requests), "put");
    if (i >= rounds / 10) samples.add((now_ns() - start) / k_burst);
    if (i % 64 == 0 && !verify(regions[1].data, size * k_burst, i)) {
      std::cerr << "fence_cost: the bytes at the target are not the bytes that were put\n";
      std::exit(1);
    }
  }
  return samples.us(500) * 1000;
}

}  // namespace

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::string_view(argv[1]) == "--smoke";
  utsname kernel{};
  uname(&kernel);
  const Checks checks = measure_checks(smoke ? 20'000 : 5'000'000);
  for (const std::size_t size : {std::size_t{4} << 10U, std::size_t{64} << 10U}) {
    const double link_ns = frame_ns(size, smoke ? 100 : 3000);
    const nlohmann::json row{{"bench", "fence_cost"},
                             {"link", "tcp"},
                             {"size", size},
                             {"checks_ns", checks.all_ns},
                             {"link_ns", link_ns},
                             {"ratio", checks.all_ns / link_ns},
                             {"accept_ns", checks.accept_ns},
                             {"region_ns", checks.region_ns},
                             {"record_ns", checks.record_ns},
                             {"verified", true},
                             {"kernel", kernel.release},
                             {"compiler", __VERSION__},
                             {"commit", HIXL_COMMIT}};
    std::cout << row.dump() << std::endl;
  }
  return 0;
}
