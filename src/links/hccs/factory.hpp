// SPDX-License-Identifier: Apache-2.0
//
// Makes hccs links: emulated over shared memory. A rank maps the windows of its peer on the same host and copies
// straight into them; short posts at once, long ones by copy engines that all links of a runtime share.
#pragma once

#include <cstdint>
#include <memory>

#include "links/copy_pool.hpp"
#include "links/link.hpp"
#include "runtime/loop.hpp"

namespace hixl::links {

/// `pool`: copy engines, perhaps shared with other kinds. Loop-bound; destroy on the loop's thread after all links.
[[nodiscard]] std::unique_ptr<LinkFactory> make_hccs_factory(std::shared_ptr<CopyPool> pool);
/// With a pool of its own of that many engines.
[[nodiscard]] std::unique_ptr<LinkFactory> make_hccs_factory(runtime::Loop& loop, std::uint32_t engines);

}  // namespace hixl::links
