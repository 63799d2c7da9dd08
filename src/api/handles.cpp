// SPDX-License-Identifier: Apache-2.0
#include "api/handles.hpp"

#include <poll.h>

#include <thread>
#include <utility>

namespace hixl::api {

namespace {

/// So often one that waits for others to leave looks without a pause: some 100 us, longer than a call that does not
/// wait.
constexpr int k_quick_looks = 200;

// A pointer in static storage costs an instruction, even in a library that was loaded late.
__attribute__((tls_model("initial-exec"))) thread_local ThreadNote* this_note = nullptr;

/// Gives the note back when its thread ends.
struct NoteKeeper {
  NoteKeeper() = default;
  NoteKeeper(const NoteKeeper&) = delete;
  NoteKeeper& operator=(const NoteKeeper&) = delete;
  ~NoteKeeper() {
    if (ThreadNote* const note = std::exchange(this_note, nullptr); note != nullptr) {
      note->taken.store(false, std::memory_order_release);
    }
  }
};
thread_local NoteKeeper note_keeper;

}  // namespace

ThreadNote& HandleTable::note() {
  ThreadNote* const note = this_note;
  return note != nullptr && note->owner == this ? *note : new_note();
}

/// One that an ended thread left, or another one. In a forked child the parent's are not used again.
ThreadNote& HandleTable::new_note() {
  static_cast<void>(&note_keeper);  // makes it, so that it is there to be destroyed
  for (ThreadNote* note = notes_.load(std::memory_order_acquire); note != nullptr; note = note->next) {
    bool free = false;
    if (!note->taken.compare_exchange_strong(free, true, std::memory_order_acq_rel)) continue;
    note->failure = Error();
    note->callbacks = 0;
    this_note = note;
    return *note;
  }
  auto* const note = new ThreadNote();
  note->owner = this;
  note->next = notes_.load(std::memory_order_relaxed);
  while (!notes_.compare_exchange_weak(note->next, note, std::memory_order_acq_rel, std::memory_order_relaxed)) {
  }
  this_note = note;
  return *note;
}

HandleTable::Slot* HandleTable::find(std::uint32_t index) noexcept {
  Chunk* const chunk = chunks_[index / k_chunk].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : &(*chunk)[index % k_chunk];
}

Result<Handle> HandleTable::add(HandleKind kind, std::unique_ptr<Object> object) {
  std::vector<std::unique_ptr<Object>> dead;  // goes outside the lock
  const std::scoped_lock lock(mutex_);
  if (!late_.empty()) bury(dead);
  std::uint32_t index = fresh_;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (fresh_ > Handle::k_index_max) {
    return fail(ErrorCode::limit_reached, {.limit = Handle::k_index_max});
  } else {
    if (fresh_ % k_chunk == 0) chunks_[fresh_ / k_chunk].store(new Chunk(), std::memory_order_release);
    fresh_ += 1;
  }
  Slot& slot = *find(index);
  slot.object = std::move(object);
  slot.generation += 1;
  const Handle handle = Handle::make(kind, epoch_, index, slot.generation);
  slot.handle.store(handle.bits, std::memory_order_release);
  return handle;
}

Object* HandleTable::enter(ThreadNote& note, Handle handle, HandleKind kind) noexcept {
  if (handle.kind() != kind || note.depth == ThreadNote::k_depth) return nullptr;
  Slot* const slot = find(handle.index());
  if (slot == nullptr) return nullptr;
  std::atomic<std::uint64_t>& inside = note.inside[note.depth];
  // Both sequentially consistent, as are take() and is_inside(): either this sees that it is closed, or who
  // closes it sees us.
  inside.store(handle.bits, std::memory_order_seq_cst);
  if (slot->handle.load(std::memory_order_seq_cst) != handle.bits) {
    inside.store(0, std::memory_order_release);
    return nullptr;
  }
  note.depth += 1;
  return slot->object.get();
}

bool HandleTable::is_inside(Handle handle) const noexcept {
  for (const ThreadNote* note = notes_.load(std::memory_order_seq_cst); note != nullptr; note = note->next) {
    for (const auto& inside : note->inside) {
      if (inside.load(std::memory_order_seq_cst) == handle.bits) return true;
    }
  }
  return false;
}

/// Under the mutex: what was late and is left by now, to be destroyed outside.
void HandleTable::bury(std::vector<std::unique_ptr<Object>>& dead) {
  dead.reserve(dead.size() + late_.size());
  free_.reserve(free_.size() + late_.size());
  std::erase_if(late_, [&](Handle handle) {
    if (is_inside(handle)) return false;
    dead.push_back(std::move(find(handle.index())->object));
    free_.push_back(handle.index());
    return true;
  });
}

HandleTable::Taken HandleTable::take(Handle handle, HandleKind kind, const Deadline& deadline) {
  Slot* const slot = handle.kind() == kind ? find(handle.index()) : nullptr;
  std::uint64_t named = handle.bits;
  // From here on nobody finds it any more.
  if (slot == nullptr || !slot->handle.compare_exchange_strong(named, 0, std::memory_order_seq_cst)) {
    return Taken::wrong;
  }
  bool left = !is_inside(handle);
  for (int looks = 0; !left && !deadline.passed(); left = !is_inside(handle)) {
    // Mostly somebody is on the way out. Who waits for a peer takes longer, and nothing tells us when that is over.
    ++looks < k_quick_looks ? std::this_thread::yield() : static_cast<void>(::poll(nullptr, 0, 1));
  }
  std::vector<std::unique_ptr<Object>> dead;  // goes outside the lock
  const std::scoped_lock lock(mutex_);
  if (left) {
    dead.push_back(std::move(slot->object));
    free_.push_back(handle.index());
  } else {
    late_.push_back(handle);
  }
  bury(dead);
  return left ? Taken::ended : Taken::late;
}

HandleTable::Taken HandleTable::take_all(const void* owner, const Deadline& deadline) {
  std::vector<Handle> handles;
  {
    const std::scoped_lock lock(mutex_);
    for (std::uint32_t index = 0; index < fresh_; ++index) {
      const Slot& slot = *find(index);
      const Handle handle{slot.handle.load(std::memory_order_relaxed)};
      if (handle.bits != 0 && slot.object->owner == owner) handles.push_back(handle);
    }
  }
  Taken all = Taken::ended;
  for (const Handle handle : handles) {
    if (take(handle, handle.kind(), deadline) == Taken::late) all = Taken::late;
  }
  return all;
}

}  // namespace hixl::api
