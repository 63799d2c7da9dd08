// SPDX-License-Identifier: Apache-2.0
//
// Names, options and status numbers of Ascend's class in this library's terms.
#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "api/ascend/engine.hpp"
#include "api/world.hpp"

namespace hixl::api {

namespace {

constexpr std::string_view k_old_prefix = "adxl.";
/// Options that Ascend's class knows. What they choose does not exist here: relay buffers, traffic classes, fabric
/// memory, hand-written topologies.
constexpr std::array<std::string_view, 7> k_without_effect{
    "BufferPool",   "RdmaTrafficClass",     "RdmaServiceLevel", "EnableUseFabricMem",
    "LocalCommRes", "GlobalResourceConfig", "LocalCommResPath"};

tl::unexpected<Error> refuse(std::uint64_t length = 0) {
  return fail(ErrorCode::invalid_argument, {.stage = Stage::options, .length = length});
}

Result<bool> flag(std::string_view text) {
  if (text == "0" || text.empty()) return false;
  if (text == "1") return true;
  return refuse();
}

}  // namespace

Result<AscendOptions> ascend_options(const std::map<AscendString, AscendString>& options) {
  AscendOptions result;
  for (const auto& [key, value] : options) {
    std::string_view name = key.GetString();
    if (name.starts_with(k_old_prefix)) name.remove_prefix(k_old_prefix.size());
    if (name == "AutoConnect" || name == "Insecure") {
      const auto on = flag(value.GetString());
      if (!on) return fail(on.error());
      (name == "AutoConnect" ? result.auto_connect : result.insecure) = *on;
    } else if (std::ranges::find(k_without_effect, name) == k_without_effect.end()) {
      return refuse(name.size());
    }
  }
  return result;
}

Result<EngineName> engine_name(const AscendString& text) {
  std::string_view all = text.GetString();
  EngineName name;
  std::string_view port;
  if (all.starts_with('[')) {
    const std::size_t end = all.find(']');
    if (end == std::string_view::npos) return refuse(all.size());
    name.host = all.substr(1, end - 1);
    port = all.substr(end + 1);
    if (!port.empty() && !port.starts_with(':')) return refuse(all.size());
    if (!port.empty()) port.remove_prefix(1);
    if (port.empty() && end + 1 != all.size()) return refuse(all.size());
  } else if (const std::size_t colon = all.find(':'); colon != std::string_view::npos && colon == all.rfind(':')) {
    name.host = all.substr(0, colon);
    port = all.substr(colon + 1);
    if (port.empty()) return refuse(all.size());
  } else {
    name.host = all;
  }
  if (name.host.empty()) return refuse(all.size());
  if (port.empty()) return name;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), name.port);
  if (error != std::errc{} || end != port.data() + port.size() || name.port == 0) return refuse(all.size());
  return name;
}

std::string EngineName::bind() const { return host.find(':') == std::string::npos ? host : "[" + host + "]"; }
std::string EngineName::store_url() const { return "tcp://" + bind() + ":" + std::to_string(port); }

Status status_of(const Error& error) noexcept {
  switch (error.code) {
    case ErrorCode::ok:
      return SUCCESS;
    case ErrorCode::deadline_exceeded:
    case ErrorCode::connect_timeout:
    case ErrorCode::connect_refused:
    case ErrorCode::rendezvous_unreachable:
      return TIMEOUT;
    case ErrorCode::peer_lost:
    case ErrorCode::peer_gone:
    case ErrorCode::fenced:
    case ErrorCode::not_exchanged:
      return NOT_CONNECTED;
    case ErrorCode::unsupported:
      return UNSUPPORTED;
    case ErrorCode::busy:
    case ErrorCode::no_memory:
    case ErrorCode::no_space:
    case ErrorCode::fd_limit:
    case ErrorCode::limit_reached:
    case ErrorCode::memlock_limit:
      return RESOURCE_EXHAUSTED;
    default:
      return error.kind() == ErrorKind::fix_call || error.code == ErrorCode::stale ? PARAM_INVALID : FAILED;
  }
}

Status failed(const Error& error) noexcept { return failed(status_of(error), error); }

Status failed(Status status, const Error& error) noexcept {
  static_cast<void>(note_failure(error));
  return status;
}

}  // namespace hixl::api
