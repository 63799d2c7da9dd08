// SPDX-License-Identifier: Apache-2.0
#include "links/roce/system.hpp"

namespace hixl::links {

std::unique_ptr<LinkFactory> make_system_roce_factory(runtime::Loop&, const RoceSetting&) { return nullptr; }

}  // namespace hixl::links
