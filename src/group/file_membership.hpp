// SPDX-License-Identifier: Apache-2.0
//
// FileMembership: the rendezvous by a file that all ranks share. Nobody hosts anything: ranks on one host, or on hosts
// with a common file system, only need to agree on a path.
//
// Changes are noticed at once by inotify where the kernel tells of them, and by reading again every 250 ms while a rank
// that is watched is missing (2 s otherwise). If the file is removed or spoilt while ranks use it, each of them makes
// it anew and claims its rank again; connected peers do not notice.
//
// What it asks of the file system: byte-range locks. A network file system (NFS 4) has them, but shows changes late and
// lets go of a lost host's locks only when its own lease ends (90 s), until when that rank is a RANK_CONFLICT; while
// its server does not answer, the calls of this actor block the loop. The file belongs to one user. A child that the
// program forked without exec keeps its parent's lock until it ends.
#pragma once

#include <memory>
#include <string>

#include "group/rendezvous.hpp"

namespace hixl::group {

/// Loop-bound.
class FileMembership final : public Rendezvous {
 public:
  FileMembership(runtime::Loop& loop, std::string path, MembershipEvents& events);
  ~FileMembership() override;
  void join(const wire::StoreClaim& claim, Instant deadline) override;
  void watch(Rank rank, peer::AddressWatcher& watcher) override;
  /// Removes the file if nobody else uses it.
  void leave() override;
  [[nodiscard]] Birth birth() const noexcept override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hixl::group
