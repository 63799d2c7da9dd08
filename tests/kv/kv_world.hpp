// SPDX-License-Identifier: Apache-2.0
//
// Ranks with a DataDist each, in this process, and caches in memory that is checked byte by byte, what lies before,
// between and behind the tensors included.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include <hixl/kv/data_dist.hpp>

#include "../api/support.hpp"
#include "kv_model.hpp"

namespace hixl::kv::test {

using namespace hixl::test;

/// Bytes between tensors that nothing may touch.
inline constexpr std::size_t k_canary_bytes = 192;

/// Two blocks, and two others.
inline const std::vector<std::uint32_t> k_here{3, 9};
inline const std::vector<std::uint32_t> k_there{0, 7};

[[nodiscard]] inline Slice two_blocks(const std::vector<std::uint32_t>& target = k_there) {
  Slice slice;
  slice.source = k_here;
  slice.target = target;
  return slice;
}

/// A cache of one rank in memory of its own.
class TestCache {
 public:
  TestCache(Runtime& runtime, const CacheDesc& desc, bool window = true) : desc_(desc), runtime_(runtime) {
    const std::size_t tensor = tensor_bytes(desc.layout, desc.blocks).value();
    stride_ = (tensor + k_canary_bytes + 7) / 8 * 8;
    count_ = desc.layout.layers * tensors_per_layer(desc.layout.form);
    const std::size_t size = k_canary_bytes + count_ * stride_;
    if (window) {
      auto allocated = runtime.allocate(size);
      require_ok(allocated);
      region_ = *allocated;
    } else {
      plain_.resize(size);
      auto registered = runtime.register_memory(plain_.data(), size);
      require_ok(registered);
      region_ = *registered;
    }
    fill_pattern(region_.data, region_.size, 4711);
    before_.assign(region_.data, region_.data + region_.size);
  }
  /// One place a tensor.
  [[nodiscard]] std::vector<TensorPlace> places() const {
    std::vector<TensorPlace> all;
    for (std::size_t i = 0; i < count_; ++i) all.push_back({region_, k_canary_bytes + i * stride_});
    return all;
  }
  void load(const Memory& memory) {
    for (std::size_t i = 0; i < count_; ++i) {
      std::memcpy(region_.data + k_canary_bytes + i * stride_, memory[i].data(), memory[i].size());
    }
    before_.assign(region_.data, region_.data + region_.size);
  }
  [[nodiscard]] Memory store() const {
    Memory memory = make_memory(desc_);
    for (std::size_t i = 0; i < count_; ++i) {
      std::memcpy(memory[i].data(), region_.data + k_canary_bytes + i * stride_, memory[i].size());
    }
    return memory;
  }
  /// What is not in a tensor is as it was.
  [[nodiscard]] bool canaries_live() const {
    const std::size_t tensor = tensor_bytes(desc_.layout, desc_.blocks).value();
    const auto same = [&](std::size_t begin, std::size_t end) {
      return std::equal(before_.begin() + static_cast<std::ptrdiff_t>(begin),
                        before_.begin() + static_cast<std::ptrdiff_t>(end), region_.data + begin);
    };
    bool all = same(0, k_canary_bytes);
    for (std::size_t i = 0; i < count_; ++i) {
      const std::size_t end = k_canary_bytes + i * stride_ + tensor;
      all = all && same(end, k_canary_bytes + (i + 1) * stride_);
    }
    return all;
  }
  [[nodiscard]] bool unchanged() const {
    return std::equal(before_.begin(), before_.end(), region_.data, region_.data + region_.size);
  }
  [[nodiscard]] std::byte* tensor(std::size_t index) const { return region_.data + k_canary_bytes + index * stride_; }
  [[nodiscard]] const CacheDesc& desc() const { return desc_; }
  [[nodiscard]] const Region& region() const { return region_; }
  void drop() { require_ok(runtime_.deregister(region_)); }

 private:
  CacheDesc desc_;
  Runtime& runtime_;
  std::vector<std::byte> plain_;
  Region region_{};
  std::size_t stride_ = 0;
  std::size_t count_ = 0;
  std::vector<std::byte> before_;
};

class KvWorld {
 public:
  explicit KvWorld(std::uint32_t size, std::vector<LinkKind> links = {}, const DataDistOptions& options = {})
      : world_(size, std::move(links)) {
    for (std::uint32_t rank = 0; rank < size; ++rank) open(rank, options);
  }
  void open(std::uint32_t rank, const DataDistOptions& options = {}) {
    auto dist = DataDist::open(world_[rank], options);
    require_ok(dist);
    if (dists_.size() <= rank) dists_.resize(rank + 1);
    dists_[rank] = std::move(*dist);
  }
  /// Both sides, side by side.
  void link(Rank a, Rank b) {
    Result<void> other;
    std::thread thread([&] { other = dists_[b]->link({&a, 1}, k_patience).front(); });
    const auto mine = dists_[a]->link({&b, 1}, k_patience).front();
    thread.join();
    require_ok(mine);
    require_ok(other);
  }
  void link_all() {
    for (Rank a = 0; a < dists_.size(); ++a) {
      for (Rank b = a + 1; b < dists_.size(); ++b) link(a, b);
    }
  }
  ~KvWorld() {
    for (auto& dist : dists_) {
      if (dist) CHECK(dist->close(k_patience));
    }
  }
  KvWorld(const KvWorld&) = delete;
  KvWorld& operator=(const KvWorld&) = delete;
  DataDist& operator[](std::size_t rank) { return *dists_[rank]; }
  std::unique_ptr<DataDist>& slot(std::size_t rank) { return dists_[rank]; }
  Runtime& runtime(std::size_t rank) { return world_[rank]; }
  World& world() { return world_; }

 private:
  World world_;
  std::vector<std::unique_ptr<DataDist>> dists_;
};

/// A paged cache as engines have them, small.
inline CacheDesc paged(std::uint32_t blocks = 16, std::uint32_t layers = 4) {
  return {.key = {.model = 1, .name = 0},
          .layout = {.form = Form::separate,
                     .dtype_bytes = 2,
                     .layers = layers,
                     .kv_heads = 4,
                     .head_dim = 32,
                     .block_tokens = 16},
          .blocks = blocks,
          .shard = {}};
}

/// A cache on each of two linked ranks, the first one's filled.
struct Couple {
  explicit Couple(std::vector<LinkKind> links = {}, const CacheDesc& desc = paged(),
                  const DataDistOptions& options = {})
      : world(2, std::move(links), options), source(world.runtime(0), desc), target(world.runtime(1), desc) {
    world.link(0, 1);
    auto one = world[0].register_cache(desc, source.places());
    auto two = world[1].register_cache(desc, target.places());
    require_ok(one);
    require_ok(two);
    from = *one;
    to = *two;
    Maker maker(99);
    filled = make_memory(desc);
    maker.fill(filled);
    source.load(filled);
    auto seen = world[0].find(1, desc.key);
    require_ok(seen);
    target_seen = *seen;
    seen = world[1].find(0, desc.key);
    require_ok(seen);
    source_seen = *seen;
  }
  /// The block of each tensor.
  [[nodiscard]] bool same_block(std::uint32_t here, std::uint32_t there, std::uint32_t first_layer = 0,
                                std::uint32_t last_layer = 0xffffffff) const {
    const CacheDesc& desc = source.desc();
    const std::size_t bytes = block_bytes(desc.layout).value();
    const std::uint32_t per_layer = tensors_per_layer(desc.layout.form);
    for (std::size_t i = std::size_t{first_layer} * per_layer;
         i < std::size_t{std::min(last_layer, desc.layout.layers)} * per_layer; ++i) {
      if (std::memcmp(source.tensor(i) + here * bytes, target.tensor(i) + there * bytes, bytes) != 0) return false;
    }
    return true;
  }
  KvWorld world;
  TestCache source;
  TestCache target;
  CacheId from{};
  CacheId to{};
  Memory filled;
  RemoteCache target_seen;
  RemoteCache source_seen;
};

inline ErrorCode end_of(const Result<Transfer>& transfer) {
  if (!transfer) return transfer.error().code;
  return code_of(transfer->wait(k_patience));
}

}  // namespace hixl::kv::test
