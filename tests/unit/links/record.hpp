// SPDX-License-Identifier: Apache-2.0
//
// What a link told its owner.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "links/link.hpp"

namespace hixl::test {

struct Record final : links::LinkEvents {
  int up = 0;
  int down = 0;
  int credit = 0;
  Error error{};
  std::vector<std::pair<RegionKey, Result<void>>> attached;
  std::vector<wire::FrameType> control;
  std::vector<links::Completion> completions;
  links::Link* link = nullptr;  ///< completions are fetched from it

  void on_up() override { ++up; }
  void on_completions() override {
    std::array<links::Completion, 8> some;
    for (std::size_t count = link->poll(some); count != 0; count = link->poll(some)) {
      completions.insert(completions.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
    }
  }
  void on_credit() override { ++credit; }
  void on_control(const wire::FrameHeader& header, ConstBytes) override { control.push_back(header.type); }
  void on_attached(RegionKey key, const Result<void>& result) override { attached.emplace_back(key, result); }
  void on_down(const Error& told) override {
    ++down;
    error = told;
  }
  [[nodiscard]] const links::Completion* completion(std::uint64_t cookie) const {
    const auto found = std::find_if(completions.begin(), completions.end(),
                                    [cookie](const auto& completion) { return completion.cookie == cookie; });
    return found == completions.end() ? nullptr : &*found;
  }
};

}  // namespace hixl::test
