// SPDX-License-Identifier: Apache-2.0
#include "fetch.hpp"

#include <utility>

namespace hixl::kv {

/// What the loop holds until the end.
struct Fetch::Posted {
  std::shared_ptr<Fetch> fetch;
  std::size_t size = 0;
};

Result<std::shared_ptr<Fetch>> Fetch::begin(const std::shared_ptr<DataDist::State>& home, const RemoteAddress& from,
                                            std::size_t size, Instant deadline) {
  const auto buffer = home->lend_buffer(size);
  if (!buffer) return fail(buffer.error());
  auto fetch = std::make_shared<Fetch>();
  fetch->home_ = home;
  fetch->buffer_ = *buffer;
  home->begin_errand();
  const auto post = [fetch, from, size, deadline] {
    Fetch& here = *fetch;
    auto posted = std::make_unique<Posted>(Posted{.fetch = fetch, .size = size});
    Result<Request> got = fail(here.home_->error_of(ErrorCode::cancelled, from.rank));
    {
      const std::lock_guard lock(here.mutex_);
      if (!here.given_up_) {
        got = here.home_->runtime.get(here.buffer_.data, from, size,
                                      {.timeout = DataDist::State::left(deadline), .callback = {on_end, posted.get()}});
      }
      if (got) here.request_ = *got;
    }
    if (got) {
      static_cast<void>(posted.release());
    } else if (got.error().code == ErrorCode::busy) {
      return false;
    } else {
      here.end(fail(got.error()));
    }
    return true;
  };
  if (!post()) home->retry(post);
  return fetch;
}

void Fetch::on_end(void* context, const Completion& completion) {
  const std::unique_ptr<Posted> posted(static_cast<Posted*>(context));
  Fetch& here = *posted->fetch;
  if (!completion.result) {
    here.end(fail(completion.result.error()));
    return;
  }
  Bytes bytes(posted->size);
  const auto copied = here.home_->runtime.copy_out(here.buffer_, 0, bytes.data(), bytes.size());
  here.end(copied ? Result<Bytes>(std::move(bytes)) : Result<Bytes>(fail(copied.error())));
}

void Fetch::end(Result<Bytes> result) {
  {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
  }
  home_->take_buffer_back(buffer_);
  home_->end_errand();
}

std::optional<Result<Bytes>> Fetch::look() {
  const std::lock_guard lock(mutex_);
  return result_;
}

void Fetch::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  static_cast<void>(request_.cancel());
}

}  // namespace hixl::kv
