// SPDX-License-Identifier: Apache-2.0
//
// EngineTable: the runtimes of this process, one a rank. Views (hixl_ctx_t) of one rank share its runtime.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <hixl/context.h>
#include <hixl/runtime.hpp>

#include "api/handles.hpp"
#include "api/told_ranges.hpp"

namespace hixl::api {

/// One rank of this process.
class Engine {
 public:
  Engine(std::unique_ptr<Runtime> r, const RuntimeOptions& o) : runtime(std::move(r)), options(o) {}
  /// Milliseconds of the C interface.
  [[nodiscard]] Timeout time_of(int timeout_ms) const noexcept {
    return timeout_ms == HIXL_TIMEOUT_DEFAULT ? options.default_timeout : std::chrono::milliseconds(timeout_ms);
  }
  const std::unique_ptr<Runtime> runtime;
  const RuntimeOptions options;
  ToldRanges told{*runtime};
  std::mutex numbering;       ///< one buffer at a time gets its number; held while the loop is told of it
  std::uint32_t buffers = 0;  ///< that HIXL_RegisterBuffer() has numbered
};

/// Where a rank's runtime is, or was. Whoever makes or ends it holds the mutex, and others wait for that.
struct EnginePlace {
  RuntimeOptions key{};  // rank, world_size, store, job
  std::mutex mutex;      // guards what is below
  std::shared_ptr<Engine> engine;
  std::uint32_t views = 0;
};

class EngineTable {
 public:
  /// The place of that rank of that job, made if there is none.
  [[nodiscard]] std::shared_ptr<EnginePlace> place_of(const RuntimeOptions& options);
  /// Tells every runtime to leave, without waiting: the process ends.
  void stop_all() noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<EnginePlace>> places_;
};

/// hixl_ctx_t.
class View final : public Object {
 public:
  static constexpr HandleKind k_kind = HandleKind::view;
  explicit View(std::shared_ptr<EnginePlace> p) : place(std::move(p)), engine(place->engine) { owner = engine.get(); }
  [[nodiscard]] Runtime& runtime() const noexcept { return *engine->runtime; }
  const std::shared_ptr<EnginePlace> place;
  const std::shared_ptr<Engine> engine;
};

/// What the caller's options say, over what the environment says. `size`: of the caller's struct.
[[nodiscard]] Result<RuntimeOptions> options_of(const hixl_init_info_t* info, std::size_t size);
[[nodiscard]] Result<std::vector<LinkKind>> links_of(hixl_transport_t transport);
/// A new view, and the rank if this process does not have it yet.
[[nodiscard]] Result<hixl_ctx_t> open_view(const RuntimeOptions& options);
[[nodiscard]] Result<void> close_view(hixl_ctx_t ctx, int timeout_ms);

}  // namespace hixl::api
