// SPDX-License-Identifier: Apache-2.0
//
// hixl/comm.h: messages with one rank.
#include <hixl/comm.h>

#include <map>
#include <mutex>

#include <hixl/channel.hpp>

#include "api/world.hpp"

using namespace hixl;
using namespace hixl::api;

namespace {

/// hixl_conn_t.
class Connection final : public Object {
 public:
  static constexpr HandleKind k_kind = HandleKind::connection;
  Connection(std::shared_ptr<Engine> e, std::unique_ptr<Channel> c) : engine(std::move(e)), channel(std::move(c)) {
    owner = engine.get();
  }
  const std::shared_ptr<Engine> engine;  // before the channel, which must not outlive its runtime
  const std::unique_ptr<Channel> channel;
  std::mutex mutex;                           // guards what is below
  std::map<const void*, std::uint64_t> held;  // messages that were given, and their numbers
};

Result<void> connect(hixl_ctx_t ctx, int rank, std::size_t buffer_bytes, int timeout_ms, hixl_conn_t* conn) {
  if (conn == nullptr) return missing_argument(Stage::connect);
  *conn = nullptr;
  const Inside<View> view(ctx);
  if (!view) return view.error();
  if (const auto allowed = may_wait(view.note()); !allowed) return allowed;
  auto channel = Channel::connect(view->runtime(), rank_of(rank), {.bytes = buffer_bytes}, timeout_of(timeout_ms));
  if (!channel) return fail(channel.error());
  const auto handle =
      view.world().handles.add(HandleKind::connection, std::make_unique<Connection>(view->engine, std::move(*channel)));
  if (!handle) return fail(handle.error());
  *conn = handle->as<hixl_conn_t>();
  return {};
}

}  // namespace

hixl_status_t hixl_connect(hixl_ctx_t ctx, int rank, int timeout_ms, hixl_conn_t* conn) {
  return guarded([&] { return connect(ctx, rank, RingShape{}.bytes, timeout_ms, conn); });
}

hixl_status_t hixl_connect_sized(hixl_ctx_t ctx, int rank, size_t buffer_bytes, int timeout_ms, hixl_conn_t* conn) {
  return guarded([&] { return connect(ctx, rank, buffer_bytes, timeout_ms, conn); });
}

hixl_status_t hixl_disconnect(hixl_conn_t conn) {
  return guarded([&]() -> Result<void> {
    return close_handle<Connection>(conn, [](Connection& closed) { closed.channel->close(); });
  });
}

hixl_status_t hixl_send_timeout(hixl_conn_t conn, const void* data, size_t size, int timeout_ms) {
  return guarded([&]() -> Result<void> {
    const Inside<Connection> inside(conn);
    if (!inside) return inside.error();
    if (const auto allowed = may_wait(inside.note()); !allowed) return allowed;
    return inside->channel->sender().send(data, size, timeout_of(timeout_ms));
  });
}

hixl_status_t hixl_send(hixl_conn_t conn, const void* data, size_t size) {
  return hixl_send_timeout(conn, data, size, HIXL_TIMEOUT_DEFAULT);
}

hixl_status_t hixl_recv(hixl_conn_t conn, const void** data, size_t* size, int timeout_ms) {
  return guarded([&]() -> Result<void> {
    if (data != nullptr) *data = nullptr;
    if (size != nullptr) *size = 0;
    if (data == nullptr || size == nullptr) return missing_argument(Stage::transfer);
    const Inside<Connection> inside(conn);
    if (!inside) return inside.error();
    const auto allowed = timeout_ms == 0 ? Result<void>() : may_wait(inside.note());
    if (!allowed) return allowed;
    const auto message = inside->channel->receiver().receive(timeout_of(timeout_ms));
    if (!message) return fail(message.error());
    {
      const std::scoped_lock lock(inside->mutex);
      inside->held[message->data] = message->number;
    }
    *data = message->data;
    *size = message->size;
    return {};
  });
}

hixl_status_t hixl_recv_release(hixl_conn_t conn, const void* data) {
  return guarded([&]() -> Result<void> {
    const Inside<Connection> inside(conn);
    if (!inside) return inside.error();
    const std::scoped_lock lock(inside->mutex);
    const auto held = inside->held.find(data);
    if (held == inside->held.end()) {
      return fail(ErrorCode::invalid_argument,
                  {.stage = Stage::transfer, .address = reinterpret_cast<std::uint64_t>(data)});
    }
    const auto released = inside->channel->receiver().release(held->second);
    if (released) inside->held.erase(held);
    return released;
  });
}
