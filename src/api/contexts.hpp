// SPDX-License-Identifier: Apache-2.0
//
// What HIXL_Context_t names: some ranks that an engine talks to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <hixl/engine.h>

#include "api/engine_table.hpp"

namespace hixl::api {

/// Buffer n of a rank is told with this tag plus n.
inline constexpr std::uint32_t k_buffer_tag = 0x4200'0000;
inline constexpr std::uint32_t k_buffers_max = 1U << 24U;

class Context final : public Object {
 public:
  static constexpr HandleKind k_kind = HandleKind::context;
  Context(std::shared_ptr<Engine> e, std::vector<Rank> p) : engine(std::move(e)), peers(std::move(p)) {
    owner = engine.get();
  }
  [[nodiscard]] Runtime& runtime() const noexcept { return *engine->runtime; }
  /// A peer's buffer; the first time the peer is asked, and waited for.
  [[nodiscard]] Result<RemoteRegion> buffer(Rank rank, std::uint32_t id);
  void forget(Rank rank, std::uint32_t id);
  /// INVALID_ARGUMENT: none of this context's.
  [[nodiscard]] Result<void> check_peer(Rank rank) const;
  [[nodiscard]] Result<RemoteAddress> place_of(const HIXL_Addr_t& place) const;

  const std::shared_ptr<Engine> engine;
  const std::vector<Rank> peers;

 private:
  std::mutex mutex_;  // guards known_
  std::map<std::pair<Rank, std::uint32_t>, RemoteRegion> known_;
};

}  // namespace hixl::api
