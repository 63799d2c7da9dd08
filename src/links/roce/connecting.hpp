// SPDX-License-Identifier: Apache-2.0
//
// Connecting: a queue pair on its way to its peer, in the hands of a worker thread. Owns itself until done(); the link
// may be gone by then.
#pragma once

#include <memory>
#include <utility>

#include "links/roce/roce_link.hpp"

namespace hixl::links::roce {

struct RoceLink::Connecting final : Job {
  Connecting(RoceLink& one, std::unique_ptr<Endpoint> its, const Endpoint::Peer& there)
      : link(&one), rails(one.rails_), adapter(*one.adapter_), endpoint(std::move(its)), peer(there) {
    adapter.hold();
  }
  void work() override { result = endpoint->connect(peer); }
  void done() override {
    const std::unique_ptr<Connecting> self(this);
    if (link != nullptr) link->on_connected(std::move(endpoint), result);
    endpoint.reset();
    adapter.let_go();
    rails.let_go();
  }

  RoceLink* link;  ///< null: gone
  Rails& rails;
  Adapter& adapter;
  std::unique_ptr<Endpoint> endpoint;
  const Endpoint::Peer peer;
  Result<void> result{};
};

}  // namespace hixl::links::roce
