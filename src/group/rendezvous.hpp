// SPDX-License-Identifier: Apache-2.0
//
// Rendezvous: how the ranks of a job find each other. Whoever joins holds its rank for as long as it lives and tells
// how to reach it; whoever watches a rank hears of its lives. Each life gets a birth, above those of all earlier lives
// of its rank, and keeps it: what a rendezvous forgets, its claimers tell it again. Two kinds are built in: a store to
// talk to (Membership, tcp:// and unix:@) and a file that all ranks share (FileMembership, file://).
#pragma once

#include <memory>
#include <string>

#include <hixl/result.hpp>

#include "peer/address_book.hpp"
#include "runtime/loop.hpp"

namespace hixl::group {

class MembershipEvents {
 public:
  /// Once: the rank is claimed, or RANK_CONFLICT, RANK_OUT_OF_RANGE (limit: world size), INVALID_ARGUMENT (the others
  /// use another world size: limit), WRONG_JOB, LIMIT_REACHED, RENDEZVOUS_UNREACHABLE (with errno), HOST_UNRESOLVED,
  /// VERSION_MISMATCH, MALFORMED_FRAME, ACCESS_DENIED, NO_SPACE, UNSUPPORTED. Nothing is retried after an error. Never
  /// inside join().
  virtual void on_joined(const Result<void>& result) = 0;

 protected:
  ~MembershipEvents() = default;
};

/// Loop-bound. Destruction lets go at once, as death would; not from inside an event.
class Rendezvous : public peer::AddressBook {
 public:
  virtual ~Rendezvous() = default;
  /// Once. Tries until `deadline`: ranks and store may start in any order.
  virtual void join(const wire::StoreClaim& claim, Instant deadline) = 0;
  /// The birth that was given with the claim: from on_joined() on. 0: the rank was never claimed.
  [[nodiscard]] virtual Birth birth() const noexcept = 0;
  /// Says goodbye; nothing follows.
  virtual void leave() = 0;
};

/// By the scheme of `url`; INVALID_ARGUMENT for one that is not known.
[[nodiscard]] Result<std::unique_ptr<Rendezvous>> make_rendezvous(runtime::Loop& loop, const std::string& url,
                                                                  MembershipEvents& events);
/// The path of "file:///path"; empty for other schemes. INVALID_ARGUMENT for a file URL without an absolute path.
[[nodiscard]] Result<std::string> rendezvous_path(const std::string& url);
/// The number by which stores compare jobs; 0 for no name.
[[nodiscard]] std::uint64_t job_number(const std::string& name) noexcept;

}  // namespace hixl::group
