// SPDX-License-Identifier: Apache-2.0
//
// Owners of libuv handles.
#include "runtime/uv_port_handles.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <utility>

namespace hixl::runtime {
namespace {

/// A body around one handle of libuv's type `Raw`.
template <class Raw, class Target>
struct Body final : UvBody {
  Body(UvHandles& handles, UvOwner& holder, Target* to) : UvBody(handles, holder), target(to) { raw.data = this; }
  void abandon() noexcept override {
    uv_close(reinterpret_cast<uv_handle_t*>(&raw),
             [](uv_handle_t* handle) { static_cast<Body*>(handle->data)->freed(); });
  }
  Raw raw{};
  Target* target;
  int armed = 0;
};

struct Nobody {};  // what an idle handle tells
using PollBody = Body<uv_poll_t, PollTarget>;
using TimerBody = Body<uv_timer_t, TimerTarget>;
using BeforeBody = Body<uv_prepare_t, PhaseTarget>;
using AfterBody = Body<uv_check_t, PhaseTarget>;
using IdleBody = Body<uv_idle_t, Nobody>;

struct LookupBody final : UvBody {
  LookupBody(UvHandles& handles, UvOwner& holder, LookupTarget* to) : UvBody(handles, holder), target(to) {
    request.data = this;
  }
  void abandon() noexcept override { uv_cancel(reinterpret_cast<uv_req_t*>(&request)); }
  uv_getaddrinfo_t request{};
  LookupTarget* target;
};

template <class BodyType, class Handle>
BodyType& body_of(Handle* raw) {
  return *static_cast<BodyType*>(raw->data);
}

/// Makes a body and lets `init` give its handle to libuv; the body stays only if libuv took it.
template <class BodyType, class Target, class Init>
int open_body(UvHandles& handles, UvOwner& owner, UvBody*& slot, Target* target, Init init) {
  if (handles.closed()) return UV_ECANCELED;
  auto body = std::make_unique<BodyType>(handles, owner, target);
  if (const int error = init(*body); error != 0) return error;
  slot = body.release();
  return 0;
}

void on_poll(uv_poll_t* raw, int status, int events) {
  auto& body = body_of<PollBody>(raw);
  if (status < 0) {
    // An error of the descriptor: libuv has stopped the handle. Whoever wanted anything finds out by trying.
    events = std::exchange(body.armed, 0);
  }
  if (body.set->forked()) return;
  body.set->before_event();
  if (body.owner != nullptr) body.target->on_poll(events);  // the hook may close anything
}

void on_timer(uv_timer_t* raw) {
  auto& body = body_of<TimerBody>(raw);
  if (body.set->forked()) return;
  body.set->before_event();
  if (body.owner != nullptr) body.target->on_timeout();
}

void on_looked_up(uv_getaddrinfo_t* raw, int error, addrinfo* list) {
  auto& body = body_of<LookupBody>(raw);
  const std::unique_ptr<addrinfo, decltype(&uv_freeaddrinfo)> freed_later(list, &uv_freeaddrinfo);
  if (body.owner != nullptr) body.set->before_event();
  if (body.owner != nullptr) {
    body.detach();  // the request has ended: there is nothing to cancel, and the owner may start another
    body.target->on_looked_up(error, list);
  }
  body.freed();
}

}  // namespace

Instant boot_time() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return Instant(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

UvBody::UvBody(UvHandles& handles, UvOwner& holder) : set(&handles), owner(&holder) {
  handles.bodies_.push_back(*this);
}

void UvBody::detach() noexcept {
  owner->body_ = nullptr;
  owner = nullptr;
}

void UvBody::freed() noexcept {
  UvHandles* const handles = set;
  delete this;
  if (handles == nullptr || !handles->closed_ || !handles->bodies_.empty()) return;
  if (const auto drained = std::exchange(handles->drained_, nullptr)) drained();
}

void UvOwner::close() noexcept {
  UvBody* const body = body_;
  if (body == nullptr) return;
  body->detach();
  body->abandon();
}

UvHandles::~UvHandles() {
  abandon_all();
  while (UvBody* body = bodies_.pop_front()) body->set = nullptr;
}

void UvHandles::before_event() {
  ++events_;
  if (hook_ != nullptr) hook_->before_event();
}

void UvHandles::abandon_all() noexcept {
  for (UvBody* body = bodies_.front(); body != nullptr; body = bodies_.next(*body)) {
    if (body->owner != nullptr) body->owner->close();
  }
}

void UvHandles::close(std::function<void()> drained) {
  closed_ = true;
  drained_ = std::move(drained);
  abandon_all();
  if (bodies_.empty() && drained_) std::exchange(drained_, nullptr)();
}

int UvPoll::open(UvHandles& handles, int fd, PollTarget& target) {
  return open_body<PollBody>(handles, *this, body_, &target,
                             [&](PollBody& body) { return uv_poll_init(handles.loop(), &body.raw, fd); });
}

void UvPoll::arm(int events) {
  auto* body = static_cast<PollBody*>(body_);
  if (body == nullptr || body->armed == events) return;
  // Fails only for a descriptor that another handle of this loop watches, which open() has ruled out.
  if (uv_poll_start(&body->raw, events, on_poll) == 0) body->armed = events;
}

int UvTimer::open(UvHandles& handles, TimerTarget& target) {
  return open_body<TimerBody>(handles, *this, body_, &target,
                              [&](TimerBody& body) { return uv_timer_init(handles.loop(), &body.raw); });
}

void UvTimer::start(Duration delay) {
  auto* body = static_cast<TimerBody*>(body_);
  if (body == nullptr) return;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::max(delay, Duration(0)));
  uv_update_time(body->raw.loop);  // libuv counts from its cached time, which is old after a long turn
  uv_timer_start(&body->raw, on_timer, static_cast<std::uint64_t>(wait.count()), 0);
}

void UvTimer::stop() {
  if (auto* body = static_cast<TimerBody*>(body_)) uv_timer_stop(&body->raw);
}

int UvLookup::start(UvHandles& handles, const std::string& host, std::uint16_t port, LookupTarget& target) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICSERV;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const std::string service = std::to_string(port);
  return open_body<LookupBody>(handles, *this, body_, &target, [&](LookupBody& body) {
    return uv_getaddrinfo(handles.loop(), &body.request, on_looked_up, host.c_str(), service.c_str(), &hints);
  });
}

int UvBeforePoll::open(UvHandles& handles, PhaseTarget& target) {
  return open_body<BeforeBody>(handles, *this, body_, &target, [&](BeforeBody& body) {
    uv_prepare_init(handles.loop(), &body.raw);
    return uv_prepare_start(&body.raw, [](uv_prepare_t* raw) { body_of<BeforeBody>(raw).target->on_before_poll(); });
  });
}

int UvAfterPoll::open(UvHandles& handles, PhaseTarget& target) {
  return open_body<AfterBody>(handles, *this, body_, &target, [&](AfterBody& body) {
    uv_check_init(handles.loop(), &body.raw);
    return uv_check_start(&body.raw, [](uv_check_t* raw) { body_of<AfterBody>(raw).target->on_after_poll(); });
  });
}

int UvNoSleep::open(UvHandles& handles) {
  return open_body<IdleBody>(handles, *this, body_, static_cast<Nobody*>(nullptr),
                             [&](IdleBody& body) { return uv_idle_init(handles.loop(), &body.raw); });
}

void UvNoSleep::set(bool on) {
  auto* body = static_cast<IdleBody*>(body_);
  if (body == nullptr) return;
  if (on) uv_idle_start(&body->raw, [](uv_idle_t*) {});
  if (!on) uv_idle_stop(&body->raw);
}

}  // namespace hixl::runtime
