// SPDX-License-Identifier: Apache-2.0
//
// The rendezvous store as an object of its own, for launchers that host it outside all ranks.
#pragma once

#include <memory>
#include <string>

#include <hixl/result.hpp>

namespace hixl {

/// Owner: the program. Serves from a thread of its own until destroyed. Thread-safe.
class Store {
 public:
  /// Listens on "tcp://host:port" (port 0 chooses a free one) or "unix:@name". Beyond loopback needs `insecure`.
  /// ADDRESS_IN_USE, ADDRESS_NOT_LOCAL, HOST_UNRESOLVED, SECURITY_REQUIRED, INVALID_ARGUMENT.
  [[nodiscard]] static Result<std::unique_ptr<Store>> create(const std::string& url, bool insecure = false);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  /// "tcp://127.0.0.1:41234", for HIXL_STORE.
  [[nodiscard]] const std::string& url() const noexcept;

 private:
  class State;
  explicit Store(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hixl
