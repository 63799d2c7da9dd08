// SPDX-License-Identifier: Apache-2.0
//
// Rails: the ports by which this runtime reaches others, in the order in which links are numbered. Which they are is
// settled at the start; each is looked at anew for every connection, since ports go down and come up, and cards are
// taken away and put back.
//
// Loop-bound. Owner: the factory, which outlives all links.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "links/roce/adapter.hpp"
#include "links/roce/gid_choice.hpp"
#include "links/roce/setting.hpp"
#include "runtime/ticker.hpp"

namespace hixl::links::roce {

class Rails final : private AdapterOwner {
 public:
  /// At least one rail works. TRANSPORT_UNAVAILABLE (no device: ENODEV; its port is down: ENETDOWN; it has no RoCE v2
  /// address: EADDRNOTAVAIL; no permission: EACCES), MEMLOCK_LIMIT, INVALID_ARGUMENT (RdmaOptions::devices).
  [[nodiscard]] static Result<std::unique_ptr<Rails>> open(std::shared_ptr<Verbs> verbs, runtime::Loop& loop,
                                                           const RoceSetting& setting);
  Rails(std::shared_ptr<Verbs> verbs, runtime::Loop& loop, const RoceSetting& setting);
  ~Rails();

  [[nodiscard]] std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(rails_.size()); }
  /// Brings queue pairs up. Registrations are another worker's: memory that takes seconds to pin holds up no
  /// connection.
  [[nodiscard]] Worker& connector() noexcept { return *connector_; }
  [[nodiscard]] const RdmaOptions& options() const noexcept { return setting_.rdma; }

  /// A port that works now.
  struct Path {
    Adapter* adapter = nullptr;
    std::uint32_t port = 0;
    ibv_mtu mtu = IBV_MTU_1024;
    std::vector<Gid> gids;
    std::string name;  ///< "mlx5_0:1"
  };
  /// Of the rail of that index, over again when there are fewer. LINK_FAILED with why it does not work now (ENETDOWN,
  /// ENODEV, EADDRNOTAVAIL).
  [[nodiscard]] Result<Path> path(std::uint32_t index);
  /// The rail that is nearest to a peer which offers these addresses; of equals the one of that index. NO_ROUTE: none
  /// of the same address family; or why the rail of that index does not work.
  struct Answer {
    Path path;
    GidPair pair;
  };
  [[nodiscard]] Result<Answer> answer(std::uint32_t index, std::span<const wire::RoceGid> theirs);
  /// Whether path() is worth asking for: what is known to be down is looked at again now and then.
  [[nodiscard]] bool ready(std::uint32_t index);
  /// A region was closed: true when no card reaches it any more.
  [[nodiscard]] bool revoke(RegionKey key);
  /// A link has left an adapter: it may have been the last.
  void let_go() { loop_.start_after(reap_tick_, Duration{}); }

 private:
  struct Rail {
    std::string device;
    std::uint32_t port = 0;
    Adapter* adapter = nullptr;  ///< null: gone, opened again when it is there
    Instant next_look{};
    bool works = true;
  };
  [[nodiscard]] Result<Adapter*> adapter_of(const std::string& device);
  [[nodiscard]] Result<Path> look(Rail& rail);
  [[nodiscard]] Result<void> find_all();
  [[nodiscard]] Result<void> find_named(std::span<const RailName> names);
  [[nodiscard]] Result<void> add_ports(const std::string& device, const RailName& wanted);
  void on_reap();
  void on_lost() override { let_go(); }

  using Tick = runtime::Ticker<Rails>;
  std::shared_ptr<Verbs> verbs_;
  runtime::Loop& loop_;
  const RoceSetting setting_;
  std::unique_ptr<Worker> registrar_;
  std::unique_ptr<Worker> connector_;
  std::vector<std::unique_ptr<Adapter>> adapters_;
  std::vector<Rail> rails_;
  Tick reap_tick_{*this, &Rails::on_reap};
};

}  // namespace hixl::links::roce
