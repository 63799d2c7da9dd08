// SPDX-License-Identifier: Apache-2.0
//
// Fetch: bytes of another rank's directory on their way here. Any number at a time, so that a rank which does not
// answer holds up nobody but who asks it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>

#include <hixl/request.hpp>
#include <hixl/result.hpp>

#include "directory.hpp"
#include "state.hpp"

namespace hixl::kv {

/// Owner: who asks, and the loop until the end. Thread-safe. Whoever waits for it is rung.
class Fetch {
 public:
  /// Errors of allocate().
  [[nodiscard]] static Result<std::shared_ptr<Fetch>> begin(const std::shared_ptr<DataDist::State>& home,
                                                            const RemoteAddress& from, std::size_t size,
                                                            Instant deadline);
  /// Nothing: still under way.
  [[nodiscard]] std::optional<Result<Bytes>> look();
  /// Nobody waits for it any more.
  void give_up();

 private:
  struct Posted;
  /// `self` is this one, which the loop holds until the end.
  [[nodiscard]] Result<void> post(const std::shared_ptr<Fetch>& self, const RemoteAddress& from, std::size_t size,
                                  Instant deadline);
  static void on_end(void* context, const Completion& completion);
  void end(Result<Bytes> result);

  std::shared_ptr<DataDist::State> home_;
  Region buffer_{};
  std::mutex mutex_;
  Request request_;
  bool given_up_ = false;
  std::optional<Result<Bytes>> result_;
};

}  // namespace hixl::kv
