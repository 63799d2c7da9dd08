// SPDX-License-Identifier: Apache-2.0
//
// Makes tcp links. They need nothing but the stream of the handshake.
#pragma once

#include <memory>

#include "links/link.hpp"

namespace hixl::links {

[[nodiscard]] std::unique_ptr<LinkFactory> make_tcp_factory();

}  // namespace hixl::links
