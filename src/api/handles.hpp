// SPDX-License-Identifier: Apache-2.0
//
// Handles of the C interfaces: a number in the shape of a pointer, made of index and generation, that is looked up in
// one table. Whoever passes a wrong one gets an error, and nothing is ever dereferenced that a caller gave.
//
// A call announces the handle that it is inside of, in a place of its own thread, before it looks; who closes a handle
// takes it from the table first and then waits until nobody announces it. So a call costs one locked instruction on a
// cache line that no other thread writes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <hixl/error.hpp>
#include <hixl/result.hpp>

#include "api/deadline.hpp"

namespace hixl::api {

enum class HandleKind : std::uint8_t {
  none = 0,
  failed = 1,  ///< a request that never began: its index is the error's code
  request = 2,
  view = 3,  ///< hixl_ctx_t
  comm = 4,
  connection = 5,
  context = 6,  ///< HIXL_Context_t
  batch = 7,
};

/// From the low end: index 22 bits, kind 4, epoch 6 (processes that forked), generation 32.
struct Handle {
  std::uint64_t bits = 0;
  static constexpr std::uint32_t k_index_max = (1U << 22U) - 1;

  [[nodiscard]] static Handle make(HandleKind kind, std::uint32_t epoch, std::uint32_t index,
                                   std::uint32_t generation) noexcept {
    return {std::uint64_t{generation} << 32U | std::uint64_t{epoch & 0x3fU} << 26U |
            std::uint64_t{static_cast<std::uint8_t>(kind)} << 22U | index};
  }
  [[nodiscard]] static Handle of(const void* pointer) noexcept { return {reinterpret_cast<std::uint64_t>(pointer)}; }
  template <class Pointer>
  [[nodiscard]] Pointer as() const noexcept {
    static_assert(sizeof(Pointer) == sizeof bits, "handles need pointers of 64 bits");
    return reinterpret_cast<Pointer>(bits);
  }
  [[nodiscard]] std::uint32_t index() const noexcept { return static_cast<std::uint32_t>(bits) & k_index_max; }
  [[nodiscard]] HandleKind kind() const noexcept { return static_cast<HandleKind>(bits >> 22U & 0xfU); }
  [[nodiscard]] std::uint32_t epoch() const noexcept { return static_cast<std::uint32_t>(bits >> 26U & 0x3fU); }
  [[nodiscard]] std::uint32_t generation() const noexcept { return static_cast<std::uint32_t>(bits >> 32U); }
};

/// What a handle other than a request names. Owned by the table.
class Object {
 public:
  virtual ~Object() = default;
  /// Whose end is its end too; null: nobody's.
  const void* owner = nullptr;
};

/// What the library keeps of a thread that has called it: where it is inside, and its last failure.
struct ThreadNote {
  static constexpr std::size_t k_depth = 4;  // handles of one call, and of a call inside it
  std::array<std::atomic<std::uint64_t>, k_depth> inside{};
  std::uint32_t depth = 0;
  std::uint32_t callbacks = 0;  ///< of ours that this thread is running
  std::uint32_t cursor = 0;     ///< of the request ring
  const void* owner = nullptr;
  std::atomic<bool> taken{true};
  ThreadNote* next = nullptr;
  Error failure{};
  std::string text;
};

class HandleTable {
 public:
  explicit HandleTable(std::uint32_t epoch) : epoch_(epoch) {}
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  /// LIMIT_REACHED: there are four million.
  [[nodiscard]] Result<Handle> add(HandleKind kind, std::unique_ptr<Object> object);
  /// Null: no such handle. What it names stays until leave(), on the same thread.
  [[nodiscard]] Object* enter(ThreadNote& note, Handle handle, HandleKind kind) noexcept;
  static void leave(ThreadNote& note) noexcept { note.inside[--note.depth].store(0, std::memory_order_release); }
  enum class Taken : std::uint8_t {
    ended,  ///< nobody was inside any more, and it is destroyed
    late,   ///< the time was over first: nobody finds it, and it is destroyed by a later call, when all have left
    wrong,  ///< no such handle: somebody else was first
  };
  /// Takes it out, waits until nobody is inside, and destroys it.
  [[nodiscard]] Taken take(Handle handle, HandleKind kind, const Deadline& deadline);
  /// The same with everything that belongs to `owner`. Late: one of them was.
  [[nodiscard]] Taken take_all(const void* owner, const Deadline& deadline);

  /// This thread's; made with its first call.
  [[nodiscard]] ThreadNote& note();
  [[nodiscard]] std::uint32_t epoch() const noexcept { return epoch_; }

 private:
  static constexpr std::uint32_t k_chunk = 1024;
  struct Slot {
    std::atomic<std::uint64_t> handle{0};  // 0: names nothing
    std::unique_ptr<Object> object;
    std::uint32_t generation = 0;
  };
  using Chunk = std::array<Slot, k_chunk>;
  [[nodiscard]] Slot* find(std::uint32_t index) noexcept;
  [[nodiscard]] bool is_inside(Handle handle) const noexcept;
  void bury(std::vector<std::unique_ptr<Object>>& dead);
  [[nodiscard]] ThreadNote& new_note();

  const std::uint32_t epoch_;
  std::array<std::atomic<Chunk*>, (Handle::k_index_max + 1) / k_chunk> chunks_{};
  std::mutex mutex_;  // guards what is below, and what slots hold
  std::uint32_t fresh_ = 0;
  std::vector<std::uint32_t> free_;
  std::vector<Handle> late_;                 // taken out, but somebody was inside still
  std::atomic<ThreadNote*> notes_{nullptr};  // of all threads; never freed, used again
};

}  // namespace hixl::api
