// SPDX-License-Identifier: Apache-2.0
//
// A small world for tests of the public interface: a store and N runtimes in this process, as different ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <hixl/runtime.hpp>
#include <hixl/store.hpp>

#include "pattern.hpp"

namespace hixl::test {

/// Says what went wrong instead of "false".
template <class T>
void require_ok(const Result<T>& result) {
  if (!result) FAIL(result.error().message());
}
template <class T>
ErrorCode code_of(const Result<T>& result) {
  return result ? ErrorCode::ok : result.error().code;
}

inline RuntimeOptions options_for(Rank rank, std::uint32_t size, const std::string& store,
                                  std::vector<LinkKind> links = {}) {
  RuntimeOptions options;
  options.rank = rank;
  options.world_size = size;
  options.store = store;
  options.links = std::move(links);
  options.requests_max = 256;
  options.regions_max = 1024;
  return options;
}

/// `links` empty: automatic. Ranks join in order.
class World {
 public:
  explicit World(std::uint32_t size, std::vector<LinkKind> links = {}) : links_(std::move(links)) {
    auto store = Store::create("tcp://127.0.0.1:0");
    require_ok(store);
    store_ = std::move(*store);
    for (Rank rank = 0; rank < size; ++rank) {
      auto runtime = Runtime::create(options_for(rank, size, store_->url(), links_));
      require_ok(runtime);
      ranks_.push_back(std::move(*runtime));
    }
  }
  Runtime& operator[](std::size_t rank) { return *ranks_[rank]; }
  [[nodiscard]] std::size_t size() const { return ranks_.size(); }
  [[nodiscard]] const std::string& store_url() const { return store_->url(); }
  std::unique_ptr<Runtime>& slot(std::size_t rank) { return ranks_[rank]; }

  /// Every rank publishes one region to all; answers [reader][owner].
  std::vector<std::vector<RemoteRegion>> exchange_all(const std::vector<Region>& mine) {
    std::vector<Rank> all(ranks_.size());
    std::iota(all.begin(), all.end(), 0U);
    struct Wait {
      std::vector<PeerAddresses> answers;
      std::atomic<bool> done{false};
    };
    std::vector<Wait> waits(ranks_.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      require_ok(ranks_[rank]->exchange_async(
          std::span(&mine[rank], 1), all, std::chrono::seconds(20),
          [](void* context, std::vector<PeerAddresses>&& answers) {
            auto& wait = *static_cast<Wait*>(context);
            wait.answers = std::move(answers);
            wait.done.store(true);
            wait.done.notify_all();
          },
          &waits[rank]));
    }
    std::vector<std::vector<RemoteRegion>> table(ranks_.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      waits[rank].done.wait(false);
      for (PeerAddresses& answer : waits[rank].answers) {
        require_ok(answer.result);
        REQUIRE(answer.regions.size() == 1);
        table[rank].push_back(answer.regions.front());
      }
    }
    return table;
  }

 private:
  std::vector<LinkKind> links_;
  std::unique_ptr<Store> store_;
  std::vector<std::unique_ptr<Runtime>> ranks_;
};

/// The link kinds that tests of the interface run over on every machine.
inline std::vector<std::vector<LinkKind>> link_sets() { return {{}, {LinkKind::hccs}, {LinkKind::tcp}}; }
inline std::string text(const std::vector<LinkKind>& links) {
  return links.empty() ? "auto" : std::string(name(links.front()));
}

}  // namespace hixl::test
