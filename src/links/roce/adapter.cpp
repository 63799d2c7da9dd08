// SPDX-License-Identifier: Apache-2.0
#include "links/roce/adapter.hpp"

#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "base/log.hpp"

namespace hixl::links::roce {
namespace {

/// Some drivers say nothing when their device is taken away, and have whoever does that wait until all have closed it.
constexpr std::chrono::seconds k_look_period{1};
/// Events of one turn; more of them come with the next.
constexpr int k_events_a_turn = 64;

}  // namespace

Result<std::unique_ptr<Adapter>> Adapter::open(Verbs& verbs, const std::string& name, Worker& worker,
                                               runtime::Loop& loop, std::size_t buffer_bytes, AdapterOwner& owner) {
  auto device = verbs.open(name);
  if (!device) return fail(device.error());
  auto adapter = std::make_unique<Adapter>(std::move(*device), worker, loop, owner);
  if (const Result<void> ready = adapter->prepare(buffer_bytes); !ready) return fail(ready.error());
  return adapter;
}

Adapter::Adapter(std::unique_ptr<Device> device, Worker& worker, runtime::Loop& loop, AdapterOwner& owner)
    : loop_(loop), owner_(owner), device_(std::move(device)), registrations_(*device_, worker, loop) {}

Adapter::~Adapter() { HIXL_ASSERT(users_.empty()); }

Result<void> Adapter::prepare(std::size_t buffer_bytes) {
  pages_ = memory::PrivatePages(k_buffers * buffer_bytes);
  if (pages_.size() == 0) return fail(ErrorCode::no_memory, {.length = k_buffers * buffer_bytes});
  auto memory = device_->register_memory(pages_.data(), pages_.size(), IBV_ACCESS_LOCAL_WRITE);
  if (!memory) return fail(memory.error());
  memory_ = std::move(*memory);
  for (std::size_t i = 0; i < k_buffers; ++i) {
    buffers_[i] = {.bytes = {pages_.data() + i * buffer_bytes, buffer_bytes}, .local_key = memory_->local_key()};
  }
  auto watch = device_->watch_events(loop_.port(), static_cast<runtime::WatchEvents&>(*this));
  if (!watch) return fail(watch.error());
  watch_ = std::move(*watch);
  loop_.start_after(look_tick_, k_look_period);
  return {};
}

void Adapter::add(AdapterUser& user) { users_.push_back(user); }

void Adapter::remove(AdapterUser& user) noexcept {
  registrations_.forget(user);
  static_cast<ListNode<AdapterUserTag>&>(user).unlink();
}

// ---- buffers ----

Adapter::Buffer* Adapter::take_buffer() noexcept {
  for (Buffer& buffer : buffers_) {
    if (std::exchange(buffer.taken, true)) continue;
    return &buffer;
  }
  buffer_wanted_ = true;
  return nullptr;
}

void Adapter::give_buffer(Buffer& buffer) {
  buffer.taken = false;
  if (!std::exchange(buffer_wanted_, false)) return;
  for (AdapterUser* user = users_.front(); user != nullptr; user = users_.next(*user)) user->on_buffer();
}

// ---- news ----

template <class Concerns>
void Adapter::fail_users(Concerns&& concerns, int os_error) {
  const Error error(ErrorCode::link_failed, {.stage = Stage::transfer, .os_error = os_error});
  for (AdapterUser* user = users_.front(); user != nullptr; user = users_.next(*user)) {
    if (concerns(*user)) user->on_adapter_error(error);
  }
}

void Adapter::lose(int os_error) {
  if (std::exchange(lost_, true)) return;
  log::warn("RDMA device {} is gone; links over it break", device_->name());
  fail_users([](const AdapterUser&) { return true; }, os_error);
  owner_.on_lost();
}

void Adapter::on_look() {
  if (device_->gone()) return lose(ENODEV);
  loop_.start_after(look_tick_, k_look_period);
}

void Adapter::on_ready() {
  for (int i = 0; i < k_events_a_turn; ++i) {
    const auto event = device_->next_event();
    if (!event) return;
    on_event(*event);
  }
}

void Adapter::on_event(const DeviceEvent& event) {
  const auto on_port = [&](const AdapterUser& user) { return user.port_number() == event.port; };
  switch (event.type) {
    case IBV_EVENT_DEVICE_FATAL:
      return lose(ENODEV);
    case IBV_EVENT_PORT_ERR:
      loop_.log().warn({"RDMA ports that went down"}, "RDMA device {}: port {} is down; links over it break",
                       device_->name(), event.port);
      return fail_users(on_port, ENETDOWN);
    case IBV_EVENT_PORT_ACTIVE:
      loop_.log().info({"RDMA ports that came up"}, "RDMA device {}: port {} is up", device_->name(), event.port);
      [[fallthrough]];
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER: {
      const auto gids = device_->gids(event.port);
      if (!gids) return;
      for (AdapterUser* user = users_.front(); user != nullptr; user = users_.next(*user)) {
        if (on_port(*user)) user->on_gids(*gids);
      }
      return;
    }
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      return fail_users([&](const AdapterUser& user) { return user.queue_pair_number() == event.queue_pair; },
                        event.type == IBV_EVENT_QP_ACCESS_ERR ? EACCES : EIO);
    default:  // an overrun of a completion queue is seen where that is polled
      return;
  }
}

}  // namespace hixl::links::roce
