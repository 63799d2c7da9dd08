// SPDX-License-Identifier: Apache-2.0
#include "pair_flow.hpp"

#include <algorithm>

namespace hixl::bench {

namespace {

using nlohmann::json;

/// A batch's blocks lie this many blocks apart, so that they cannot be taken together.
constexpr std::uint64_t k_stride = 2;

/// Processor time of both ranks, which must share a host.
double both_seconds(Pair& pair) { return cpu_seconds() + process_seconds(pair.other_process()); }

class Asked {
 public:
  Asked(Pair& pair, const Flow& flow) : pair_(pair), flow_(flow) {
    const std::uint64_t blocks = flow.what == "batch" ? flow.count : 1;
    for (std::uint64_t i = 0; i < blocks; ++i) {
      fill(at(i), flow.size, flow.size + i);
      entries_.push_back({TransferVerb::put, at(i), pair.there(i * k_stride * flow.size), flow.size});
    }
    if (flow.what == "flight" || flow.what == "streams") requests_.resize(flow.count);
  }
  /// All bytes of one round, until they are there.
  void round() {
    Runtime& runtime = pair_.runtime();
    if (flow_.what == "put") {
      need(runtime.put_sync(pair_.data(), pair_.there(0), flow_.size, k_patience));
    } else if (flow_.what == "batch") {
      need(runtime.batch_sync(entries_, k_patience));
    } else {
      const std::uint64_t start = now_ns();
      for (Request& request : requests_) post(request);
      held_.add(now_ns() - start);
      for (Request& request : requests_) need(request.wait(k_patience));
    }
  }
  /// Median time for which a round of posts holds the caller.
  [[nodiscard]] double held_us() { return held_.us(500); }
  /// As many rounds without a moment at which nothing is under way.
  void stream(std::uint64_t rounds) {
    for (Request& request : requests_) post(request);
    for (std::uint64_t i = 1; i < rounds; ++i) {
      for (Request& request : requests_) {
        need(request.wait(k_patience));
        post(request);
      }
    }
    for (Request& request : requests_) need(request.wait(k_patience));
  }
  void need_bytes() {
    // A batch's blocks one after the other: between two of them lies what nobody wrote.
    for (std::uint64_t i = 0; i < entries_.size(); ++i) {
      pair_.need_bytes({.bytes = flow_.size, .slots = 1, .seed = flow_.size + i, .offset = i * k_stride * flow_.size});
    }
  }
  [[nodiscard]] std::uint64_t bytes() const { return flow_.size * (flow_.what == "put" ? 1 : flow_.count); }

 private:
  std::byte* at(std::uint64_t block) { return pair_.data() + block * k_stride * flow_.size; }
  void post(Request& request) {
    request = need(pair_.runtime().put(pair_.data(), pair_.there(0), flow_.size, {.timeout = k_patience}));
  }
  Pair& pair_;
  const Flow& flow_;
  std::vector<BatchEntry> entries_;
  std::vector<Request> requests_;
  Samples held_{64};
};

}  // namespace

bool Flow::known() const {
  const auto all = {"put", "flight", "batch", "streams"};
  // A region's largest, and half of the request slots that a runtime has by default.
  return std::find(all.begin(), all.end(), what) != all.end() && size > 0 && size <= 1U << 30U && count > 0 &&
         count <= 2048 && room() <= 1U << 30U;
}

std::uint64_t Flow::room() const { return what == "batch" ? size * count * k_stride : size; }

json answer(Pair& pair, const Flow& flow) {
  Asked asked(pair, flow);
  const std::uint64_t bytes = asked.bytes();
  const std::uint64_t budget = std::uint64_t{pair.settings().megabytes} << 20U;
  const std::uint64_t rounds =
      std::clamp<std::uint64_t>(budget / bytes, k_rounds_min, std::max(pair.settings().rounds, k_rounds_min));
  const PeakMemory here(getpid()), there(pair.other_process());
  for (std::uint64_t i = 0; i < rounds / 10 + 1; ++i) asked.round();  // warms up
  Samples samples(rounds);
  const double cpu = both_seconds(pair);
  const std::uint64_t start = now_ns();
  if (flow.what == "streams") {
    asked.stream(rounds);
    samples.add((now_ns() - start) / rounds);
  } else {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const std::uint64_t begun = now_ns();
      asked.round();
      samples.add(now_ns() - begun);
    }
  }
  const double used = both_seconds(pair) - cpu;
  const double staging = here.grown_bytes() + there.grown_bytes();
  asked.need_bytes();
  json row{{"question", flow.text},
           {"us", samples.us(500)},
           {"p99_us", samples.us(990)},
           {"p999_us", samples.us(999)},
           {"gbps", static_cast<double>(bytes) / (samples.us(500) * 1000)},
           {"cpu_s_gb", used / (static_cast<double>(bytes * rounds) * 1e-9)},
           {"staging_bytes", staging},
           {"rounds", rounds},
           {"verified", true}};
  if (flow.what == "flight") row["held_us"] = asked.held_us();
  return row;
}

}  // namespace hixl::bench
