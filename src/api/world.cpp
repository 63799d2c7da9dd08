// SPDX-License-Identifier: Apache-2.0
#include "api/world.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace hixl::api {

namespace {

/// A world and the process that it belongs to. The mark is in a page that the kernel wipes in a forked child; where it
/// cannot, children are not told from their parent.
struct Life {
  explicit Life(std::uint32_t number) : epoch(number), world(number) {
    const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (::madvise(page, bytes, MADV_WIPEONFORK) != 0) {
      ::munmap(page, bytes);
      return;
    }
    mark = static_cast<volatile std::uint32_t*>(page);
    *mark = 1;
  }
  [[nodiscard]] bool here() const noexcept { return *mark != 0; }

  std::uint32_t epoch;
  std::uint32_t always = 1;
  volatile std::uint32_t* mark = &always;
  World world;
  const Life* before = nullptr;  // the parent's: kept, since nobody can say what of it is in use
};

std::atomic<Life*> life{nullptr};

/// Peers are told that we leave; nothing is freed, since threads may still be inside.
void at_exit() {
  if (Life* const now = life.load(std::memory_order_acquire); now != nullptr && now->here()) {
    now->world.engines.stop_all();
  }
}

World& begin_life(Life* before) {
  auto* const next = new Life(before == nullptr ? 1 : before->epoch + 1);
  next->before = before;
  Life* expected = before;
  if (!life.compare_exchange_strong(expected, next, std::memory_order_acq_rel, std::memory_order_acquire)) {
    delete next;  // another thread was first
    return expected->world;
  }
  // A child has inherited its parent's.
  if (before == nullptr) static_cast<void>(std::atexit(at_exit));
  return next->world;
}

}  // namespace

World& World::get() {
  Life* const now = life.load(std::memory_order_acquire);
  return now != nullptr && now->here() ? now->world : begin_life(now);
}

tl::unexpected<Error> World::wrong(Handle handle) const {
  const bool parents = handle.bits != 0 && handle.epoch() != (handles.epoch() & 0x3fU) &&
                       handle.kind() >= HandleKind::request && handle.kind() <= HandleKind::batch &&
                       handle.epoch() != 0 && handle.epoch() < handles.epoch();
  return fail(parents ? ErrorCode::forked : ErrorCode::invalid_handle);
}

hixl_status_t note_failure(const Error& error) noexcept {
  try {
    World::get().note().failure = error;
  } catch (...) {
    // No memory for a note: the number alone has to do.
  }
  return static_cast<hixl_status_t>(error.code);
}

}  // namespace hixl::api
