// SPDX-License-Identifier: Apache-2.0
//
// What is behind a hixl::Group.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include <hixl/group.hpp>

#include "base/fork_mark.hpp"
#include "memory/barrier_page.hpp"

namespace hixl {

namespace core {
class Core;
}

class Group::State {
 public:
  /// The core, if the group may still be used.
  [[nodiscard]] Result<core::Core*> enter() const;
  [[nodiscard]] Result<void> check_member(Rank rank) const;
  [[nodiscard]] Timeout timeout_of(Timeout timeout) const noexcept;
  [[nodiscard]] Result<LinkSet> links_of(LinkSet wanted) const;
  template <class Post>
  [[nodiscard]] static Result<Request> post(const State* state, Rank rank, const OpOptions& options, Post&& run);
  [[nodiscard]] static Result<Request> post_entries(const State* state, std::span<const BatchEntry> entries,
                                                    const Signal* signal, const OpOptions& options);
  [[nodiscard]] static Result<void> transfer(const State* state, TransferVerb verb, const void* local,
                                             const RemoteAddress& remote, std::uint64_t size, Timeout timeout);

  std::shared_ptr<const ForkMark> mark;
  std::shared_ptr<const std::atomic<core::Core*>> door;
  std::uint64_t name = 0;
  std::shared_ptr<memory::BarrierPage> page;  ///< null: barriers go by messages
  std::vector<Rank> ranks;
  std::vector<Rank> sorted;
  Rank place = 0;
  GroupOptions options{};
  std::atomic<bool> closed{false};  // release by who closes, acquire by who calls
};

}  // namespace hixl
