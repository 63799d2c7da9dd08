// SPDX-License-Identifier: Apache-2.0
//
// Makes pcie links: emulated by cross-memory attach. The kernel copies between the memory of two processes of one host,
// also such as cannot be mapped by a peer; so registered memory of any origin is reached.
#pragma once

#include <memory>

#include "links/copy_pool.hpp"
#include "links/link.hpp"

namespace hixl::links {

/// `pool`: copy engines, perhaps shared with other kinds. Loop-bound; destroy on the loop's thread after all links.
[[nodiscard]] std::unique_ptr<LinkFactory> make_pcie_factory(std::shared_ptr<CopyPool> pool);

}  // namespace hixl::links
