// SPDX-License-Identifier: Apache-2.0
//
// Post: the options that every asynchronous call takes, `timeout, callback, queue, user_data, links`, and what becomes
// of the booked callback when the library refuses the post.
#pragma once

#include <hixl/result.hpp>
#include <hixl/transfer.hpp>

#include "abi.hpp"

namespace hixl::python {

#define HIXL_POST_PARAMETERS "timeout", "callback", "queue", "user_data", "links"
inline constexpr std::size_t k_post_parameters = 5;

class Post {
 public:
  /// `tail`: the values of HIXL_POST_PARAMETERS.
  [[nodiscard]] bool read(PyObject* const* tail);
  [[nodiscard]] const OpOptions& options() const noexcept { return options_; }
  /// The Request as an object, or the exception.
  [[nodiscard]] PyObject* finish(Result<Request>&& request);

 private:
  OpOptions options_{};
  PyObject* booked_ = nullptr;  // (queue, ticket) of a callback
};

}  // namespace hixl::python
