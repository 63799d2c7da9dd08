// SPDX-License-Identifier: Apache-2.0
//
// How a post of the core becomes a request of a C program.
#pragma once

#include <utility>

#include <hixl/transfer.h>
#include <hixl/transfer.hpp>

#include "api/world.hpp"

namespace hixl::api {

/// Whom a program wants told.
struct Told {
  hixl_callback_t function = nullptr;
  void* user_data = nullptr;
};

/// A call that posts; `req` may be null. The request of what never began has ended with its error, however it failed,
/// so that the wait which follows a post tells it again.
template <class Call>
hixl_status_t guarded_post(hixl_request_t* req, Call&& call) noexcept {
  const hixl_status_t status = guarded(std::forward<Call>(call));
  if (status != HIXL_OK && req != nullptr) {
    *req = RequestRing::failed(static_cast<ErrorCode>(status)).as<hixl_request_t>();
  }
  return status;
}

/// `post(options)` is the core's call. `req` may be null: then nobody waits for it.
template <class Post>
[[nodiscard]] Result<void> post_request(World& world, ThreadNote& note, hixl_request_t* req, const Told& told,
                                        Post&& post) {
  if (req == nullptr && told.function == nullptr) {
    const auto posted = post(OpOptions{});
    if (!posted) return fail(posted.error());
    return {};
  }
  auto place = world.requests.take(note);
  if (!place) return fail(place.error());
  OpOptions options;
  if (told.function != nullptr) options.callback = place->call(told.function, told.user_data);
  auto posted = post(options);
  if (!posted) return fail(posted.error());
  const Handle handle = place->fill(std::move(*posted));
  if (req != nullptr) *req = handle.as<hixl_request_t>();
  return {};
}

}  // namespace hixl::api
