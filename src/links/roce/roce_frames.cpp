// SPDX-License-Identifier: Apache-2.0
//
// Frames of an RDMA link: those of its own, those of words, and those that it carries for others.
#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "links/roce/roce_link.hpp"

namespace hixl::links::roce {
namespace {

/// Frames of the link itself that wait for credit. A peer that keeps to its limits asks for each region once.
constexpr std::size_t k_orders_max = wire::k_regions_max;

tl::unexpected<Error> bad_frame(Stage stage = Stage::transfer) {
  return fail(ErrorCode::malformed_frame, {.stage = stage});
}

}  // namespace

// ---- outgoing ----

Result<void> RoceLink::order(const Order& order) {
  if (!alive()) return {};
  if (orders_.size() == k_orders_max) return fail(ErrorCode::limit_reached, {.limit = k_orders_max});
  orders_.push_back(order);
  send_orders();
  return {};
}

void RoceLink::send_orders() {
  while (!orders_.empty() && numbers_left() && send_order(orders_.front())) orders_.pop_front();
}

bool RoceLink::send_order(const Order& order) {
  const auto code = static_cast<std::uint16_t>(order.error.code);
  const auto os_error = static_cast<std::uint32_t>(order.error.detail.os_error);
  switch (order.type) {
    case wire::FrameType::roce_offer:
      return send_offer();
    case wire::FrameType::roce_ready:
      return send_own(order.type, wire::RoceReady{.code = code, .os_error = os_error});
    case wire::FrameType::roce_ask:
      return send_own(order.type, wire::RoceAsk{.key = order.region, .token = order.token});
    case wire::FrameType::roce_key:
      return send_own(order.type, wire::RoceKey{.key = order.region,
                                                .code = code,
                                                .os_error = os_error,
                                                .limit = order.error.detail.limit,
                                                .remote_key = order.key,
                                                .address = order.address});
    default:
      return send_own(order.type, wire::RoceDrop{.key = order.region});
  }
}

void RoceLink::on_sendable() {
  if (!alive()) return;
  send_orders();
  if (orders_.empty()) give_credit();
}

// ---- incoming ----

void RoceLink::on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>&) {
  if (!alive()) return;
  last_heard_ = services_.loop.now();
  // Nothing after a success: the owner may have destroyed this link while it dealt with it.
  if (const Result<void> handled = handle(header, body); !handled) break_down(handled.error());
}

void RoceLink::on_payload_start(const wire::FrameHeader& header, ConstBytes) {
  break_down(Error(ErrorCode::malformed_frame, {.stage = Stage::transfer, .length = header.payload_bytes}));
}

Result<void> RoceLink::handle(const wire::FrameHeader& header, ConstBytes body) {
  using wire::FrameType;
  if (const Result<void> accepted = sequencer_.accept(header); !accepted) return accepted;
  bool own = true;
  const Result<void> handled = handle_own(header, body, own);
  if (own) return handled;
  if (state_ != State::up) return bad_frame(Stage::handshake);
  switch (header.type) {
    case FrameType::signal:
      return words_target_.on_signal(header, body);
    case FrameType::atomic:
      return words_target_.on_atomic(header, body);
    case FrameType::atomic_result:
      return on_atomic_result(body);
    case FrameType::nack:
      return on_nack(body);
    case FrameType::write:
    case FrameType::read:
    case FrameType::read_data:
      return bad_frame();  // bytes do not come this way
    case FrameType::pong:
      break;
    default:
      // Recorded first, because the owner may close or destroy the link when it is told.
      sequencer_.executed(header.link_seq, true);
      break;
  }
  events_.on_control(header, body);
  return {};
}

Result<void> RoceLink::handle_own(const wire::FrameHeader& header, ConstBytes body, bool& own) {
  using wire::FrameType;
  const FrameType type = header.type;
  if (type == FrameType::ack) return on_ack(body);
  if (type == FrameType::ping) {
    // A peer that probes and does not read gets no more answers; it learns nothing from them either.
    static_cast<void>(stream_->send_answer(sequencer_.header(FrameType::pong), body));
    return {};
  }
  const bool set_up = type == FrameType::roce_offer || type == FrameType::roce_ready;
  const bool key = type == FrameType::roce_ask || type == FrameType::roce_key || type == FrameType::roce_drop ||
                   type == FrameType::roce_dropped;
  own = set_up || key;
  if (!own) return {};
  if ((set_up && state_ != State::setting_up) || (key && state_ != State::up)) return bad_frame(Stage::handshake);
  sequencer_.executed(header.link_seq, true);
  switch (type) {
    case FrameType::roce_offer:
      return on_offer(body);
    case FrameType::roce_ready:
      return on_peer_ready(body);
    case FrameType::roce_ask:
      return on_ask(body);
    case FrameType::roce_key:
      return on_key(body);
    case FrameType::roce_drop:
      return on_drop(body);
    default:
      return on_dropped(body);
  }
}

Result<void> RoceLink::on_ack(ConstBytes body) {
  wire::Ack ack;
  if (!decode_body(body, ack) || !sequencer_.on_ack(ack.upto)) return bad_frame();
  for (Attempt* attempt = words_.front(); attempt != nullptr && attempt->number <= ack.upto;) {
    Attempt* const next = words_.next(*attempt);
    if (is_signal(attempt->verb)) end(*attempt, Error());  // an atomic ends with its result
    attempt = next;
  }
  send_orders();
  if (orders_.empty()) give_credit();
  return {};
}

Result<void> RoceLink::on_nack(ConstBytes body) {
  wire::Nack nack;
  if (!decode_body(body, nack)) return bad_frame();
  for (Attempt* attempt = words_.front(); attempt != nullptr; attempt = words_.next(*attempt)) {
    if (attempt->number != nack.seq) continue;
    end(*attempt, Error(static_cast<ErrorCode>(nack.code), {.stage = Stage::remote_check,
                                                            .address = nack.address,
                                                            .length = nack.length,
                                                            .nearest_base = nack.nearest_base,
                                                            .nearest_length = nack.nearest_length,
                                                            .limit = nack.limit}));
    return {};
  }
  return bad_frame();
}

Result<void> RoceLink::on_atomic_result(ConstBytes body) {
  wire::AtomicResult result;
  if (!decode_body(body, result)) return bad_frame();
  for (Attempt* attempt = words_.front(); attempt != nullptr; attempt = words_.next(*attempt)) {
    if (attempt->number != result.seq || !is_atomic(attempt->verb)) continue;
    attempt->value = result.value;
    end(*attempt, Error());
    return {};
  }
  return bad_frame();
}

// ---- keys: ours, for the peer ----

Result<void> RoceLink::on_ask(ConstBytes body) {
  wire::RoceAsk ask;
  if (!decode_body(body, ask)) return bad_frame();
  const auto refuse = [&](const Error& error) {
    return order({.type = wire::FrameType::roce_key, .region = ask.key, .error = error});
  };
  const auto info = services_.regions.info(ask.key);
  if (!info) return refuse(Error(ErrorCode::stale));
  if (info->token != ask.token) return refuse(Error(ErrorCode::access_denied));
  if (!info->device->caps().cpu_addressable) return refuse(Error(ErrorCode::unsupported));
  Registration* const registration = adapter_->registrations().want(*info, *this);
  if (registration == nullptr) return refuse(Error(ErrorCode::stale));
  switch (registration->state()) {
    case Registration::State::registering:
      if (std::find(asked_.begin(), asked_.end(), ask.key) == asked_.end()) asked_.push_back(ask.key);
      return {};
    case Registration::State::ready:
      give_key(ask.key, *registration);
      return {};
    case Registration::State::failed:
      return refuse(registration->error());
    case Registration::State::leaving:
      break;
  }
  return refuse(Error(ErrorCode::stale));
}

void RoceLink::on_registered(RegionKey key) {
  flush_later();
  const auto asked = std::find(asked_.begin(), asked_.end(), key);
  if (asked == asked_.end()) return;
  asked_.erase(asked);
  const auto info = services_.regions.info(key);
  Registration* const registration = info ? adapter_->registrations().want(*info, *this) : nullptr;
  if (registration != nullptr && registration->state() == Registration::State::ready) {
    return give_key(key, *registration);
  }
  Error error(ErrorCode::stale);
  if (registration != nullptr && registration->state() == Registration::State::failed) error = registration->error();
  if (const Result<void> told = order({.type = wire::FrameType::roce_key, .region = key, .error = error}); !told) {
    break_down(told.error());
  }
}

void RoceLink::give_key(RegionKey region, Registration& registration) {
  const auto [given, fresh] = given_.try_emplace(number_of(region));
  if (fresh) {
    given->second.registration = &registration;
    adapter_->registrations().use(registration);
  }
  const Result<void> told = order({.type = wire::FrameType::roce_key,
                                   .region = region,
                                   .key = registration.memory().remote_key(),
                                   .address = reinterpret_cast<std::uint64_t>(registration.data())});
  if (!told) break_down(told.error());
}

Result<void> RoceLink::on_dropped(ConstBytes body) {
  wire::RoceDrop dropped;
  if (!decode_body(body, dropped)) return bad_frame();
  const auto given = given_.find(number_of(dropped.key));
  if (given == given_.end()) return {};  // it took its time
  if (!given->second.dropping) return bad_frame();
  Registration* const registration = given->second.registration;
  given_.erase(given);
  adapter_->registrations().drop(*registration);
  return {};
}

// ---- keys: the peer's, for us ----

Result<void> RoceLink::on_key(ConstBytes body) {
  wire::RoceKey key;
  if (!decode_body(body, key)) return bad_frame();
  RemoteKeyEntry* const entry = keys_.find(key.key);
  if (entry == nullptr || entry->state != RemoteKeyEntry::State::asked) return bad_frame();
  Result<void> result;
  if (const auto code = static_cast<ErrorCode>(key.code); code == ErrorCode::ok) {
    entry->state = RemoteKeyEntry::State::ready;
    entry->key = key.remote_key;
    entry->address = key.address;
  } else {
    entry->error = located(Error(
        code, {.stage = Stage::remote_check, .os_error = static_cast<std::int32_t>(key.os_error), .limit = key.limit}));
    const bool over = code == ErrorCode::stale;
    entry->state = over ? RemoteKeyEntry::State::dropped : RemoteKeyEntry::State::refused;
    result = over ? fail(ErrorCode::not_registered, entry->error.detail) : tl::unexpected<Error>(entry->error);
  }
  if (entry->attaching) attached_.push_back({key.key, result});
  entry->attaching = false;
  if (entry->state == RemoteKeyEntry::State::dropped) keys_.erase(key.key);
  flush_later();
  schedule_events();
  return {};
}

Result<void> RoceLink::on_drop(ConstBytes body) {
  wire::RoceDrop drop;
  if (!decode_body(body, drop)) return bad_frame();
  RemoteKeyEntry* const entry = keys_.find(drop.key);
  if (entry == nullptr || entry->state != RemoteKeyEntry::State::ready) return bad_frame();
  entry->state = RemoteKeyEntry::State::dropped;
  attached_.push_back({drop.key, fail(ErrorCode::stale, {.stage = Stage::remote_check})});
  flush_later();
  schedule_events();
  if (entry->uses == 0) forget_key(*entry);
  return {};
}

}  // namespace hixl::links::roce
