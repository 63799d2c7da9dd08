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

/// The request of what never began has ended with its error, so that the wait which follows a post tells it again.
inline tl::unexpected<Error> failed_post(hixl_request_t* req, const tl::unexpected<Error>& error) noexcept {
  if (req != nullptr) *req = RequestRing::failed(error.value()).as<hixl_request_t>();
  return error;
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
  if (!place) return failed_post(req, tl::unexpected<Error>(place.error()));
  OpOptions options;
  if (told.function != nullptr) options.callback = place->call(told.function, told.user_data);
  auto posted = post(options);
  if (!posted) return failed_post(req, tl::unexpected<Error>(posted.error()));
  const Handle handle = place->fill(std::move(*posted));
  if (req != nullptr) *req = handle.as<hixl_request_t>();
  return {};
}

}  // namespace hixl::api
