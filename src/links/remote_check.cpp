// SPDX-License-Identifier: Apache-2.0
#include "links/remote_check.hpp"

#include <algorithm>

namespace hixl::links {

Result<memory::RemoteGrant> check_remote(const memory::RemoteTable& remotes, const Post& post) {
  const auto grant = remotes.grant(post.region);
  if (!grant) return fail(ErrorCode::stale, {.stage = Stage::remote_check});
  ErrorDetail detail{.stage = Stage::remote_check,
                     .address = grant->base,
                     .nearest_base = grant->base,
                     .nearest_length = grant->length};
  const Rights need = post.verb == Verb::write ? Rights::write : Rights::read;
  if (post.token != grant->token || !includes(grant->rights, need)) return fail(ErrorCode::access_denied, detail);
  for (const Segment& segment : post.segments) {
    if (segment.offset <= grant->length && segment.bytes <= grant->length - segment.offset) continue;
    detail.address = grant->base + segment.offset;
    detail.length = segment.bytes;
    detail.limit = grant->length - std::min(segment.offset, grant->length);
    return fail(ErrorCode::out_of_range, detail);
  }
  return *grant;
}

}  // namespace hixl::links
