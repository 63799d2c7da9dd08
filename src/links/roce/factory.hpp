// SPDX-License-Identifier: Apache-2.0
//
// Makes roce links: RDMA over Ethernet, on rdma-core's verbs.
#pragma once

#include <memory>

#include "links/link.hpp"
#include "links/roce/setting.hpp"
#include "links/roce/verbs.hpp"

namespace hixl::links {

/// Opens the cards; available() says how that went. Loop-bound; destroy on the loop's thread after all links.
[[nodiscard]] std::unique_ptr<LinkFactory> make_roce_factory(std::shared_ptr<roce::Verbs> verbs, runtime::Loop& loop,
                                                             const RoceSetting& setting);

}  // namespace hixl::links
