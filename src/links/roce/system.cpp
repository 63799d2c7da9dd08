// SPDX-License-Identifier: Apache-2.0
#include "links/roce/system.hpp"

#include "links/roce/factory.hpp"
#include "links/roce/ibv_verbs.hpp"

namespace hixl::links {

std::unique_ptr<LinkFactory> make_system_roce_factory(runtime::Loop& loop, const RoceSetting& setting) {
  return make_roce_factory(roce::make_ibv_verbs(), loop, setting);
}

}  // namespace hixl::links
