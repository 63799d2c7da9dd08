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
  home->post_or_retry({.post = [fetch, from, size, deadline] { return fetch->post(fetch, from, size, deadline); },
                       .lost = [fetch](const Error& why) { fetch->end(fail(why)); }});
  return fetch;
}

Result<void> Fetch::post(const std::shared_ptr<Fetch>& self, const RemoteAddress& from, std::size_t size,
                         Instant deadline) {
  auto posted = std::make_unique<Posted>(Posted{.fetch = self, .size = size});
  const std::lock_guard lock(mutex_);
  if (given_up_) return fail(home_->error_of(ErrorCode::cancelled, from.rank));
  const auto got = home_->runtime.get(buffer_.data, from, size,
                                      {.timeout = DataDist::State::left(deadline), .callback = {on_end, posted.get()}});
  if (!got) return fail(got.error());
  request_ = *got;
  static_cast<void>(posted.release());
  return {};
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
