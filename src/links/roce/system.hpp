// SPDX-License-Identifier: Apache-2.0
//
// Links over this host's own cards. In every build; one without rdma-core has none of them.
#pragma once

#include <memory>

#include "links/link.hpp"
#include "links/roce/setting.hpp"

namespace hixl::links {

/// Null: this build has no such links. Otherwise as make_roce_factory().
[[nodiscard]] std::unique_ptr<LinkFactory> make_system_roce_factory(runtime::Loop& loop, const RoceSetting& setting);

}  // namespace hixl::links
