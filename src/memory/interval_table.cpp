// SPDX-License-Identifier: Apache-2.0
//
// Two levels: a directory of chunks in order of base, each chunk a sorted array of up to 256 ranges. Everything lives
// in arrays sized for ranges_max at the start (committed when touched), so a reader never meets freed memory.
//
// Beside each range, and beside each chunk, stands how far the ranges before it reach. A look-up starts at the last
// base that is not behind the address and walks back only while something before it reaches far enough; chunks that
// do not are stepped over whole. With disjoint ranges that is one range; with one big range around 10^5 small ones it
// is two chunks and the directory.
#include "memory/interval_table.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "base/assert.hpp"
#include "memory/sequence.hpp"
#include "memory/sparse_array.hpp"

namespace hixl::memory {
namespace {

using Word = Cell<std::uint64_t>;

constexpr std::uint64_t k_address_max = std::numeric_limits<std::uint64_t>::max();
// 256 ranges a chunk: inserting moves half of 10 KiB (a fraction of a microsecond), and 10^5 ranges need a directory
// that stays in the first-level cache.
constexpr std::size_t k_chunk_ranges = 256;
// Below a quarter a chunk takes from its neighbour or joins it; joined chunks keep a quarter free, so that the next
// insertions do not split them again. No chunk but an only one is ever smaller, which bounds the number of chunks.
constexpr std::size_t k_chunk_ranges_min = k_chunk_ranges / 4;
constexpr std::size_t k_joined_ranges_max = k_chunk_ranges * 3 / 4;

/// All of a range but its base: what a look-up reads of it is in one cache line.
struct alignas(32) Rest {
  Word end;           // exclusive
  Word reach_before;  // the greatest end of the earlier ranges of this chunk
  Word age;
  Cell<std::uint32_t> value;
};

struct alignas(64) Chunk {
  std::array<Word, k_chunk_ranges> bases;
  std::array<Rest, k_chunk_ranges> rests;
};

struct alignas(32) Row {
  Word end_max;       // of this chunk
  Word reach_before;  // the greatest end of all earlier chunks
  Cell<std::uint32_t> chunk;
  Cell<std::uint32_t> count;
};

/// How many of the sorted keys are <= key. No branch depends on a key.
std::size_t count_up_to(const Word* keys, std::size_t count, std::uint64_t key) noexcept {
  const Word* first = keys;
  while (count > 1) {
    const std::size_t half = count / 2;
    first += first[half - 1].load() <= key ? half : 0;
    count -= half;
  }
  return static_cast<std::size_t>(first - keys) + (count == 1 && first->load() <= key ? 1 : 0);
}

}  // namespace

struct IntervalTable::Impl {
  explicit Impl(std::size_t max)
      : rows_max(max / k_chunk_ranges_min + 2), first_bases(rows_max), rows(rows_max), chunks(rows_max) {
    const bool granted = first_bases.size() != 0 && rows.size() != 0 && chunks.size() != 0;
    ranges_max = granted ? max : 0;
    free_chunks.reserve(rows_max);
  }

  /// The ranges before this place are those whose base is not behind the address.
  struct Position {
    std::size_t row = 0;
    std::size_t index = 0;
  };
  struct Hit {
    const Chunk* chunk = nullptr;
    std::size_t index = 0;
    [[nodiscard]] std::uint64_t base() const noexcept { return chunk->bases[index].load(); }
    [[nodiscard]] const Rest& rest() const noexcept { return chunk->rests[index]; }
    [[nodiscard]] Answer as(Answer::Kind kind) const noexcept {
      return {kind, rest().value.load(), base(), rest().end.load() - base()};
    }
  };

  // Readers.
  [[nodiscard]] Answer look_up(std::uint64_t address, std::uint64_t length) const noexcept;
  [[nodiscard]] Position position(std::uint64_t address) const noexcept;
  [[nodiscard]] Hit newest_reaching(Position before, std::uint64_t end) const noexcept;
  [[nodiscard]] Answer closest(Position place, std::uint64_t address) const noexcept;
  [[nodiscard]] const Chunk& chunk_of(std::size_t row) const noexcept { return chunks[rows[row].chunk.load()]; }

  // The writer, inside sequence.write().
  [[nodiscard]] Chunk& chunk_of(std::size_t row) noexcept { return chunks[rows[row].chunk.load()]; }
  void place(std::uint64_t base, std::uint64_t end, std::uint64_t age, std::uint32_t value) noexcept;
  void remove(Position at) noexcept;
  void add_row(std::size_t row) noexcept;
  void drop_row(std::size_t row) noexcept;
  void share(std::size_t row, std::size_t left_count) noexcept;
  void refresh_row(std::size_t row, std::size_t index) noexcept;
  void refresh_directory(std::size_t row) noexcept;

  std::size_t rows_max;
  std::size_t ranges_max = 0;
  Sequence sequence;
  Cell<std::size_t> size;
  Cell<std::size_t> row_count;
  SparseArray<Word> first_bases;  // by row, as rows
  SparseArray<Row> rows;
  SparseArray<Chunk> chunks;
  std::vector<std::uint32_t> free_chunks;  // used before
  std::uint32_t fresh_chunk = 0;           // from here on never used
};

IntervalTable::IntervalTable(std::size_t ranges_max) : impl_(std::make_unique<Impl>(ranges_max)) {}
IntervalTable::~IntervalTable() = default;

std::size_t IntervalTable::size() const noexcept { return impl_->size.load(); }
std::size_t IntervalTable::capacity() const noexcept { return impl_->ranges_max; }

IntervalTable::Answer IntervalTable::find(std::uint64_t address, std::uint64_t length) const noexcept {
  return impl_->sequence.read([&] { return impl_->look_up(address, length); });
}

bool IntervalTable::insert(std::uint64_t base, std::uint64_t length, std::uint64_t age, std::uint32_t value) {
  if (length == 0 || length > k_address_max - base) return false;
  if (impl_->size.load() >= impl_->ranges_max) return false;
  impl_->sequence.write([&] { impl_->place(base, base + length, age, value); });
  return true;
}

bool IntervalTable::erase(std::uint64_t base, std::uint32_t value) noexcept {
  if (impl_->row_count.load() == 0) return false;
  // Equal bases stand in order of insertion and may span chunks.
  Impl::Position at = impl_->position(base);
  for (;;) {
    if (at.index == 0) {
      if (at.row == 0) return false;
      --at.row;
      at.index = impl_->rows[at.row].count.load();
    }
    --at.index;
    const Chunk& chunk = impl_->chunk_of(at.row);
    if (chunk.bases[at.index].load() != base) return false;
    if (chunk.rests[at.index].value.load() == value) break;
  }
  impl_->sequence.write([&] { impl_->remove(at); });
  return true;
}

void IntervalTable::clear() noexcept {
  impl_->sequence.write([&] {
    impl_->size.store(0);
    impl_->row_count.store(0);
    impl_->free_chunks.clear();
    impl_->fresh_chunk = 0;
  });
}

IntervalTable::Impl::Position IntervalTable::Impl::position(std::uint64_t address) const noexcept {
  const std::size_t row = count_up_to(first_bases.data(), row_count.load(), address);
  if (row == 0) return {};
  return {row - 1, count_up_to(chunk_of(row - 1).bases.data(), rows[row - 1].count.load(), address)};
}

/// The newest range before `before` that ends at `end` or behind it.
IntervalTable::Impl::Hit IntervalTable::Impl::newest_reaching(Position before, std::uint64_t end) const noexcept {
  Hit best;
  std::uint64_t best_age = 0;
  std::size_t row = before.row;
  std::size_t index = before.index;
  for (;;) {
    const Chunk& chunk = chunk_of(row);
    while (index > 0) {
      const Rest& rest = chunk.rests[--index];
      if (rest.end.load() >= end) {
        const std::uint64_t age = rest.age.load();
        if (best.chunk == nullptr || age > best_age) {
          best = {&chunk, index};
          best_age = age;
        }
      }
      if (rest.reach_before.load() < end) break;
    }
    if (row == 0 || rows[row].reach_before.load() < end) return best;
    do --row;
    while (row > 0 && rows[row].end_max.load() < end);
    index = rows[row].count.load();
  }
}

IntervalTable::Answer IntervalTable::Impl::look_up(std::uint64_t address, std::uint64_t length) const noexcept {
  if (row_count.load() == 0) return {};
  const Position place = position(address);
  if (place.index > 0) {
    if (length <= k_address_max - address) {
      const Hit hit = newest_reaching(place, address + length);
      if (hit.chunk != nullptr) return hit.as(Answer::Kind::found);
    }
    if (address < k_address_max) {
      const Hit hit = newest_reaching(place, address + 1);
      if (hit.chunk != nullptr) return hit.as(Answer::Kind::partly);
    }
  }
  return closest(place, address);
}

/// No range holds `address`: the closest ends before it or begins behind it.
IntervalTable::Answer IntervalTable::Impl::closest(Position place, std::uint64_t address) const noexcept {
  Hit before;
  if (place.index > 0) {
    const Rest& last = chunk_of(place.row).rests[place.index - 1];
    const std::uint64_t reach =
        std::max({rows[place.row].reach_before.load(), last.reach_before.load(), last.end.load()});
    before = newest_reaching(place, reach);
  }
  Hit behind;
  if (place.index < rows[place.row].count.load()) {
    behind = {&chunk_of(place.row), place.index};
  } else if (place.row + 1 < row_count.load()) {
    behind = {&chunk_of(place.row + 1), 0};
  }
  if (before.chunk == nullptr && behind.chunk == nullptr) return {};
  const bool choose_behind =
      before.chunk == nullptr ||
      (behind.chunk != nullptr && behind.base() - address <= address - before.rest().end.load());
  return (choose_behind ? behind : before).as(Answer::Kind::none);
}

void IntervalTable::Impl::place(std::uint64_t base, std::uint64_t end, std::uint64_t age,
                                std::uint32_t value) noexcept {
  if (row_count.load() == 0) add_row(0);
  Position at = position(base);
  if (rows[at.row].count.load() == k_chunk_ranges) {
    add_row(at.row + 1);
    share(at.row, k_chunk_ranges / 2);
    at = position(base);
  }
  Chunk& chunk = chunk_of(at.row);
  const std::size_t count = rows[at.row].count.load();
  for (std::size_t i = count; i > at.index; --i) {
    chunk.bases[i] = chunk.bases[i - 1];
    chunk.rests[i] = chunk.rests[i - 1];
  }
  chunk.bases[at.index].store(base);
  chunk.rests[at.index].end.store(end);
  chunk.rests[at.index].age.store(age);
  chunk.rests[at.index].value.store(value);
  rows[at.row].count.store(static_cast<std::uint32_t>(count + 1));
  size.store(size.load() + 1);
  refresh_row(at.row, at.index);
  refresh_directory(at.row);
}

void IntervalTable::Impl::remove(Position at) noexcept {
  Chunk& chunk = chunk_of(at.row);
  const std::size_t count = rows[at.row].count.load() - 1;
  for (std::size_t i = at.index; i < count; ++i) {
    chunk.bases[i] = chunk.bases[i + 1];
    chunk.rests[i] = chunk.rests[i + 1];
  }
  rows[at.row].count.store(static_cast<std::uint32_t>(count));
  size.store(size.load() - 1);
  refresh_row(at.row, at.index);

  std::size_t row = at.row;
  if (count < k_chunk_ranges_min && row_count.load() > 1) {
    row = std::min(row, row_count.load() - 2);
    const std::size_t both = rows[row].count.load() + rows[row + 1].count.load();
    const bool join = both <= k_joined_ranges_max;
    share(row, join ? both : both / 2);
    if (join) drop_row(row + 1);
  } else if (count == 0) {
    drop_row(row);
  }
  refresh_directory(row);
}

/// A new empty chunk at this place of the directory.
void IntervalTable::Impl::add_row(std::size_t row) noexcept {
  const std::size_t count = row_count.load();
  HIXL_ASSERT(count < rows_max);  // every chunk but an only one holds k_chunk_ranges_min at least
  std::uint32_t chunk = fresh_chunk;
  if (free_chunks.empty()) {
    ++fresh_chunk;
  } else {
    chunk = free_chunks.back();
    free_chunks.pop_back();
  }
  for (std::size_t i = count; i > row; --i) {
    first_bases[i] = first_bases[i - 1];
    rows[i] = rows[i - 1];
  }
  rows[row].chunk.store(chunk);
  rows[row].count.store(0);
  row_count.store(count + 1);
}

void IntervalTable::Impl::drop_row(std::size_t row) noexcept {
  free_chunks.push_back(rows[row].chunk.load());
  const std::size_t count = row_count.load() - 1;
  for (std::size_t i = row; i < count; ++i) {
    first_bases[i] = first_bases[i + 1];
    rows[i] = rows[i + 1];
  }
  row_count.store(count);
}

/// Moves ranges between this chunk and the next until this one has `left_count`: the split, the join and the loan.
void IntervalTable::Impl::share(std::size_t row, std::size_t left_count) noexcept {
  Chunk& left = chunk_of(row);
  Chunk& right = chunk_of(row + 1);
  const auto move = [](Chunk& to, std::size_t to_index, const Chunk& from, std::size_t from_index) {
    to.bases[to_index] = from.bases[from_index];
    to.rests[to_index] = from.rests[from_index];
  };
  const std::size_t left_before = rows[row].count.load();
  const std::size_t right_before = rows[row + 1].count.load();
  if (left_before > left_count) {
    const std::size_t moved = left_before - left_count;
    for (std::size_t i = right_before; i > 0; --i) move(right, i - 1 + moved, right, i - 1);
    for (std::size_t i = 0; i < moved; ++i) move(right, i, left, left_count + i);
  } else {
    const std::size_t moved = left_count - left_before;
    for (std::size_t i = 0; i < moved; ++i) move(left, left_before + i, right, i);
    for (std::size_t i = moved; i < right_before; ++i) move(right, i - moved, right, i);
  }
  rows[row].count.store(static_cast<std::uint32_t>(left_count));
  rows[row + 1].count.store(static_cast<std::uint32_t>(left_before + right_before - left_count));
  refresh_row(row, 0);
  refresh_row(row + 1, 0);
}

/// Puts right what follows from the ranges of a chunk, from `index` on.
void IntervalTable::Impl::refresh_row(std::size_t row, std::size_t index) noexcept {
  Chunk& chunk = chunk_of(row);
  const std::size_t count = rows[row].count.load();
  std::uint64_t reach =
      index == 0 ? 0 : std::max(chunk.rests[index - 1].reach_before.load(), chunk.rests[index - 1].end.load());
  for (std::size_t i = index; i < count; ++i) {
    chunk.rests[i].reach_before.store(reach);
    reach = std::max(reach, chunk.rests[i].end.load());
  }
  rows[row].end_max.store(reach);
  if (count > 0) first_bases[row] = chunk.bases[0];
}

void IntervalTable::Impl::refresh_directory(std::size_t row) noexcept {
  const std::size_t count = row_count.load();
  std::uint64_t reach = row == 0 ? 0 : std::max(rows[row - 1].reach_before.load(), rows[row - 1].end_max.load());
  for (std::size_t i = row; i < count; ++i) {
    rows[i].reach_before.store(reach);
    reach = std::max(reach, rows[i].end_max.load());
  }
}

}  // namespace hixl::memory
