// SPDX-License-Identifier: Apache-2.0
#include "directory.hpp"

#include <algorithm>

#include "byte_plan.hpp"

namespace hixl::kv {

namespace {

constexpr std::uint64_t k_magic = 0x3230564b4c584948U;  // "HIXLKV02", little-endian
constexpr std::uint32_t k_ranks_max = 65'536;

class Writer {
 public:
  void u64(std::uint64_t value) {
    for (unsigned i = 0; i < 8; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  void u32(std::uint32_t value) {
    for (unsigned i = 0; i < 4; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  void seal() { u64(checksum(bytes_)); }
  [[nodiscard]] Bytes take(std::size_t size) {
    bytes_.resize(size);
    return std::move(bytes_);
  }

 private:
  Bytes bytes_;
};

/// Of bytes whose number was checked.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t u64() { return number(8); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  /// Whether what follows is the checksum of all that was read.
  [[nodiscard]] bool sealed() {
    const std::uint64_t sum = checksum(bytes_.first(at_));
    return u64() == sum;
  }

 private:
  std::uint64_t number(unsigned size) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < size; ++i) value |= static_cast<std::uint64_t>(bytes_[at_ + i]) << (8 * i);
    at_ += size;
    return value;
  }
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

std::uint64_t mixed(std::uint64_t value) noexcept {
  value = (value ^ (value >> 33U)) * 0xff51afd7ed558ccdU;
  value = (value ^ (value >> 33U)) * 0xc4ceb9fe1a85ec53U;
  return value ^ (value >> 33U);
}

constexpr std::uint64_t up_to_line(std::uint64_t offset) noexcept { return (offset + 63) / 64 * 64; }

}  // namespace

Directory::Directory(const DirectoryCounts& counts) noexcept : counts_(counts) {
  words_ = k_header_bytes + 64;  // the bell has a cache line of its own
  records_ = up_to_line(words_ + std::uint64_t{counts.ranks} * k_word_bytes);
  tensors_ = up_to_line(records_ + std::uint64_t{counts.caches} * k_record_bytes);
  gates_ = up_to_line(tensors_ + std::uint64_t{counts.caches} * counts.tensors * k_tensor_bytes);
  releases_ = up_to_line(gates_ + std::uint64_t{counts.links} * gates_a_link() * k_word_bytes);
  arrivals_ = up_to_line(releases_ + std::uint64_t{counts.links} * counts.leases * k_word_bytes);
  scratch_ = up_to_line(arrivals_ + std::uint64_t{counts.arrivals} * k_arrival_layers * k_word_bytes);
  bytes_ = scratch_ + k_record_bytes + std::uint64_t{counts.tensors} * k_tensor_bytes;
}

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = mixed(bytes.size() + 1);
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    const std::size_t count = std::min<std::size_t>(8, bytes.size() - at);
    for (std::size_t i = 0; i < count; ++i) word |= static_cast<std::uint64_t>(bytes[at + i]) << (8 * i);
    sum = mixed(sum ^ word) + 0x9e3779b97f4a7c15U;
  }
  return sum;
}

std::uint64_t life_of(const RemoteAddress& directory) noexcept {
  const std::uint64_t region = std::uint64_t{directory.region.id} << 32U | directory.region.generation;
  return mixed(mixed(directory.incarnation) ^ region) & k_life_mask;
}

Bytes encode(const DirectoryCounts& counts) {
  Writer out;
  out.u64(k_magic);
  for (const std::uint32_t count :
       {counts.ranks, counts.caches, counts.tensors, counts.links, counts.leases, counts.arrivals}) {
    out.u32(count);
  }
  out.seal();
  return out.take(k_header_bytes);
}

std::optional<DirectoryCounts> decode_counts(std::span<const std::byte> bytes) {
  if (bytes.size() < k_header_bytes) return std::nullopt;
  Reader in(bytes);
  if (in.u64() != k_magic) return std::nullopt;
  DirectoryCounts counts;
  counts.ranks = in.u32();
  counts.caches = in.u32();
  counts.tensors = in.u32();
  counts.links = in.u32();
  counts.leases = in.u32();
  counts.arrivals = in.u32();
  // As DataDistOptions; so no offset wraps.
  const bool sane = counts.ranks >= 1 && counts.ranks <= k_ranks_max && counts.caches >= 1 && counts.caches <= 4'096 &&
                    counts.tensors >= 1 && counts.tensors <= 65'536 && counts.links >= 1 && counts.links <= 4'096 &&
                    counts.leases >= 1 && counts.leases <= 65'536 && counts.arrivals <= 4'096;
  if (!in.sealed() || !sane) return std::nullopt;
  return counts;
}

Bytes encode(const CacheRecord& record) {
  Writer out;
  const CacheDesc& desc = record.desc;
  const LayoutWords words = pack({.layout = desc.layout, .shard = desc.shard});
  out.u64(record.version);
  out.u64(desc.key.model);
  out.u64(desc.key.name);
  out.u64(words.shape);
  out.u64(words.place);
  out.u32(desc.shard.layers_first);
  out.u32(desc.shard.layers_total);
  out.u32(desc.blocks);
  out.u32(0);
  out.u64(record.tensors_sum);
  out.seal();
  return out.take(k_record_bytes);
}

Decoded decode(std::span<const std::byte> bytes, CacheRecord& record) {
  if (bytes.size() < k_record_bytes) return Decoded::torn;
  if (std::all_of(bytes.begin(), bytes.begin() + k_record_bytes, [](std::byte byte) { return byte == std::byte{0}; })) {
    return Decoded::empty;
  }
  Reader in(bytes);
  record.version = in.u64();
  record.desc.key.model = in.u64();
  record.desc.key.name = in.u64();
  LayoutWords words;
  words.shape = in.u64();
  words.place = in.u64();
  const Shape shape = unpack(words);
  record.desc.layout = shape.layout;
  record.desc.shard = shape.shard;
  record.desc.shard.layers_first = in.u32();
  record.desc.shard.layers_total = in.u32();
  record.desc.blocks = in.u32();
  static_cast<void>(in.u32());
  record.tensors_sum = in.u64();
  if (!in.sealed()) return Decoded::torn;
  if (record.version == 0) return Decoded::empty;
  return validate(record.desc) ? Decoded::valid : Decoded::torn;
}

Bytes encode(std::span<const TensorAddress> tensors) {
  Writer out;
  for (const TensorAddress& tensor : tensors) {
    out.u64(tensor.address);
    out.u32(tensor.region.id);
    out.u32(tensor.region.generation);
  }
  return out.take(tensors.size() * k_tensor_bytes);
}

std::vector<TensorAddress> decode_tensors(std::span<const std::byte> bytes) {
  std::vector<TensorAddress> tensors(bytes.size() / k_tensor_bytes);
  Reader in(bytes);
  for (TensorAddress& tensor : tensors) {
    tensor.address = in.u64();
    tensor.region.id = in.u32();
    tensor.region.generation = in.u32();
  }
  return tensors;
}

}  // namespace hixl::kv
