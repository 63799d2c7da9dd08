// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <utility>

namespace hixl::cli {

namespace {

/// What a runtime with a link of each kind and the call itself open, measured, and some more.
constexpr std::size_t k_descriptors = 32;

}  // namespace

tl::expected<std::vector<LinkKind>, Failure> kinds_of(const std::string& text) {
  std::vector<LinkKind> kinds;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "auto") continue;
    std::size_t kind = 0;
    while (kind < k_link_kinds && name(static_cast<LinkKind>(kind)) != word) ++kind;
    if (kind == k_link_kinds) {
      return tl::make_unexpected(Failure{Step::local, "--links names \"" + word + "\", which is no kind of link",
                                         "the kinds are hccs, pcie, roce, ub, tcp, or auto"});
    }
    kinds.push_back(static_cast<LinkKind>(kind));
  }
  return kinds;
}

std::optional<Failure> few_descriptors() {
  std::array<int, k_descriptors> taken{};
  taken.fill(-1);
  for (int& fd : taken) fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool few = taken.back() < 0;
  for (const int fd : taken) {
    if (fd >= 0) ::close(fd);
  }
  if (!few) return {};
  return Failure{Step::local,
                 "FD_LIMIT: fewer than " + std::to_string(k_descriptors) + " file descriptors are left to this process",
                 std::string(remedy(ErrorCode::fd_limit))};
}

tl::expected<RuntimeOptions, Failure> settings_with(const std::string& links) {
  if (auto few = few_descriptors()) return tl::make_unexpected(std::move(*few));
  auto options = RuntimeOptions::from_environment();
  if (!options) {
    return tl::make_unexpected(
        Failure{Step::local, "the environment: " + options.error().message(), "see the line of the log before this"});
  }
  options->diagnosis.clear();  // meant for programs, not for the tool that asks them
  if (links.empty()) return std::move(*options);
  auto kinds = kinds_of(links);
  if (!kinds) return tl::make_unexpected(kinds.error());
  options->links = std::move(*kinds);
  return std::move(*options);
}

}  // namespace hixl::cli
