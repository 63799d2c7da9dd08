// SPDX-License-Identifier: Apache-2.0
#include "group/rendezvous.hpp"

#include <climits>

#include "group/file_membership.hpp"
#include "group/membership.hpp"

namespace hixl::group {

Result<std::string> rendezvous_path(const std::string& url) {
  constexpr std::string_view k_scheme = "file://";
  if (!url.starts_with(k_scheme)) return std::string();
  std::string path = url.substr(k_scheme.size());
  // "file://host/path" would be a file of another host; a relative path would depend on who reads it.
  const bool good = path.size() > 1 && path.size() < PATH_MAX && path.front() == '/' && path.back() != '/' &&
                    path.find('\0') == std::string::npos;
  if (!good) return fail(ErrorCode::invalid_argument, {.stage = Stage::rendezvous, .length = path.size()});
  return path;
}

Result<std::unique_ptr<Rendezvous>> make_rendezvous(runtime::Loop& loop, const std::string& url,
                                                    MembershipEvents& events) {
  auto path = rendezvous_path(url);
  if (!path) return fail(path.error());
  if (!path->empty()) return std::make_unique<FileMembership>(loop, std::move(*path), events);
  auto address = runtime::Address::parse(url);
  if (!address) return fail(address.error());
  return std::make_unique<Membership>(loop, std::move(*address), events);
}

std::uint64_t job_number(const std::string& name) noexcept {
  if (name.empty()) return 0;
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash == 0 ? 1 : hash;
}

}  // namespace hixl::group
