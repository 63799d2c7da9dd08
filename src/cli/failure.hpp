// SPDX-License-Identifier: Apache-2.0
//
// Why a call did not get through: at which stage, by the names that people use for it, and what to do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <hixl/error.hpp>

namespace hixl::cli {

using Json = nlohmann::ordered_json;

/// The numbers are the exit codes of hixl_diag; docs/diag.md lists them. 0: nothing failed; 2: a wrong command line.
enum class Step : std::uint8_t {
  none = 0,
  transfer = 1,         ///< puts failed, or their bytes were not there
  resolve = 10,         ///< the name has no address
  no_route = 11,        ///< the network does not lead there
  refused = 12,         ///< the host is there, and nobody listens at the port
  filtered = 13,        ///< packets are swallowed: no answer in the time allowed
  handshake = 14,       ///< something listens that does not answer as hixl_diag does
  version = 15,         ///< it speaks another version
  authentication = 16,  ///< it serves another job, or asks for a key
  link = 17,            ///< a link that was asked for is not to be had
  busy = 18,            ///< all places of callers are taken
  local = 19,           ///< this host's own limits or options
};
[[nodiscard]] std::string_view name(Step step) noexcept;  ///< "no_route"

struct Failure {
  Step step = Step::none;
  std::string message;  ///< one sentence: what, where
  std::string remedy;
};

/// Of an error of the library. An error of the rendezvous without more is a handshake, because a plain connection to
/// the same port stood just before; `place` is what was called.
[[nodiscard]] Failure failure_of(const Error& error, const std::string& place);
/// Of an errno of connect(). `host` is a literal: the advice on routes names it.
[[nodiscard]] Failure failure_of_connect(int os_error, const std::string& host, const std::string& place);
/// {"ok": false, "stage": "refused", "message": …, "remedy": …}
[[nodiscard]] Json to_json(const Failure& failure);
/// Bytes of a command line or a file that are no UTF-8 become U+FFFD: what is printed is JSON whatever came in.
[[nodiscard]] std::string to_text(const Json& json);

}  // namespace hixl::cli
