// SPDX-License-Identifier: Apache-2.0
//
// What a target would check of a post, checked by its initiator, for kinds whose target is not asked: the region's
// life, token, rights and range as the peer published them.
#pragma once

#include <hixl/result.hpp>

#include "links/link.hpp"

namespace hixl::links {

/// STALE, ACCESS_DENIED, OUT_OF_RANGE (no arithmetic wrap; with region and limit), or the grant.
[[nodiscard]] Result<memory::RemoteGrant> check_remote(const memory::RemoteTable& remotes, const Post& post);

}  // namespace hixl::links
