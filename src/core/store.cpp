// SPDX-License-Identifier: Apache-2.0
//
// hixl::Store: a StoreServer on a loop and a thread of its own.
#include <hixl/store.hpp>

#include <utility>

#include "base/assert.hpp"
#include "core/addresses.hpp"
#include "group/store_server.hpp"
#include "runtime/drivers.hpp"
#include "runtime/loop.hpp"

namespace hixl {

namespace {

/// The one message that this loop ever gets is the one that ends it.
constexpr std::size_t k_mail_capacity = 16;
/// The store draws nothing at random; its loop wants a seed all the same.
constexpr std::uint64_t k_seed = 1;

}  // namespace

class Store::State final : public runtime::MailTarget {
 public:
  explicit State(std::unique_ptr<runtime::Driver> made)
      : driver(std::move(made)), loop(driver->port(), k_seed, k_mail_capacity) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ~State() {
    if (!started) return;
    const bool posted = loop.mailbox().post({.target = this});
    HIXL_ASSERT(posted);
    driver->join();
  }

  /// On the loop: sockets are closed where they are used.
  void on_mail(const runtime::Mail&) override {
    server.reset();
    driver->stop([] {});
  }

  std::unique_ptr<runtime::Driver> driver;
  runtime::Loop loop;
  std::unique_ptr<group::StoreServer> server;
  bool started = false;
  std::string url;
};

Result<std::unique_ptr<Store>> Store::create(const std::string& url, bool insecure) {
  auto driver = runtime::make_thread_driver();
  if (!driver) return fail(driver.error());
  auto state = std::make_unique<State>(std::move(*driver));
  auto server = core::host_store(state->loop, url, insecure);
  if (!server) return fail(server.error());
  state->server = std::move(*server);
  const runtime::Address& bound = state->server->address();
  const bool local = bound.family == runtime::Address::Family::unix_abstract;
  state->url = (local ? "" : "tcp://") + bound.text();
  // A store sleeps most of its life: it never spins.
  if (const auto started = state->driver->start(state->loop, {.poll = PollMode::event}); !started) {
    return fail(started.error());
  }
  state->started = true;
  return std::unique_ptr<Store>(new Store(std::move(state)));
}

Store::Store(std::unique_ptr<State> state) : state_(std::move(state)) {}

/// A forked child has no thread to end and no connection to close: its copy stays until it ends.
Store::~Store() {
  if (state_->loop.thread()->forked()) static_cast<void>(state_.release());
}

const std::string& Store::url() const noexcept { return state_->url; }

}  // namespace hixl
