// SPDX-License-Identifier: Apache-2.0
//
// What the options mean for the rooms below: which link kinds, in which order, with which times.
#pragma once

#include <memory>
#include <vector>

#include <hixl/options.hpp>
#include <hixl/result.hpp>

#include "links/link.hpp"
#include "peer/services.hpp"

namespace hixl::core {

struct Factories {
  std::vector<std::unique_ptr<links::LinkFactory>> used;  ///< best first
  std::vector<peer::LinkKindOff> off;                     ///< all other kinds, and why
};
/// The kinds that may be used. TRANSPORT_UNAVAILABLE when one kind is forced and this machine or build lacks it.
[[nodiscard]] Result<Factories> make_factories(const RuntimeOptions& options, runtime::Loop& loop);
/// The links to each peer, best first. Their ids are such that both sides agree without talking: kind << 8 | index.
/// A factory that occurs twice makes two links; tcp makes as many as the options say.
[[nodiscard]] std::vector<peer::LinkChoice> number_links(
    const std::vector<std::unique_ptr<links::LinkFactory>>& factories, const RuntimeOptions& options);
[[nodiscard]] peer::Timing timing_of(const RuntimeOptions& options, bool hosted);

}  // namespace hixl::core
