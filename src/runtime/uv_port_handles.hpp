// SPDX-License-Identifier: Apache-2.0
//
// Owners of libuv handles. libuv wants a handle's memory until its close callback; our objects end at once. So the
// memory is a body of its own, kept by the set of its port, and an object holds only a reference that either side can
// cut. Private to uv_port*.cpp. Loop-bound.
//
// Close: destroying an owner stops its events at once. UvHandles::close() does the same for all owners that are left
// (they become inert), and tells when libuv has let go of the last body.
#pragma once

#include <uv.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <hixl/result.hpp>

#include "base/fork_mark.hpp"
#include "base/list.hpp"
#include "base/time.hpp"

namespace hixl::runtime {

/// The clock of the port: CLOCK_BOOTTIME, monotonic, and it goes on while the machine sleeps.
[[nodiscard]] Instant boot_time() noexcept;

/// Told before the first of a batch of events is delivered, to end the loop's sleep in time. It may close handles, that
/// of the event too.
class EventHook {
 public:
  virtual void before_event() = 0;

 protected:
  ~EventHook() = default;
};

class UvHandles;
class UvOwner;
struct UvBodyTag;

/// What libuv has a pointer to.
struct UvBody : ListNode<UvBodyTag> {
  UvBody(UvHandles& handles, UvOwner& holder);
  virtual ~UvBody() = default;
  /// Asks libuv to let go; it says so by freed().
  virtual void abandon() noexcept = 0;
  void freed() noexcept;
  /// Cuts the reference in both directions: no event reaches the owner any more.
  void detach() noexcept;

  UvHandles* set;  ///< null when the port is gone first
  UvOwner* owner;  ///< null when no events are wanted any more
};

/// The part of an owner that all kinds share.
class UvOwner {
 public:
  UvOwner() = default;
  ~UvOwner() { close(); }
  UvOwner(const UvOwner&) = delete;
  UvOwner& operator=(const UvOwner&) = delete;
  void close() noexcept;
  [[nodiscard]] bool open() const noexcept { return body_ != nullptr; }

  /// For code that calls out and must know afterwards whether the owner was destroyed meanwhile. Valid until control
  /// returns to libuv, since bodies are freed only from there.
  class Witness {
   public:
    explicit Witness(const UvOwner& owner) noexcept : body_(owner.body_) {}
    [[nodiscard]] bool alive() const noexcept { return body_ != nullptr && body_->owner != nullptr; }

   private:
    const UvBody* body_;
  };

 protected:
  friend struct UvBody;
  UvBody* body_ = nullptr;
};

/// All bodies of one port, and what its events have in common.
class UvHandles {
 public:
  UvHandles(uv_loop_t* loop, std::shared_ptr<const ForkMark> mark) : loop_(loop), mark_(std::move(mark)) {}
  ~UvHandles();
  UvHandles(const UvHandles&) = delete;
  UvHandles& operator=(const UvHandles&) = delete;

  [[nodiscard]] uv_loop_t* loop() const noexcept { return loop_; }
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  /// In a forked child no event is delivered, and no socket read or written: they are the parent's.
  [[nodiscard]] bool forked() const noexcept { return mark_->forked(); }
  [[nodiscard]] const std::shared_ptr<const ForkMark>& fork_mark() const noexcept { return mark_; }
  void set_hook(EventHook* hook) noexcept { hook_ = hook; }
  /// Counts the event and tells the hook.
  void before_event();
  [[nodiscard]] std::uint64_t events() const noexcept { return events_; }
  /// Closes everything; nothing can be opened afterwards. `drained` comes from libuv's loop, last of all: the set may
  /// be destroyed in it. With nothing open it comes at once.
  void close(std::function<void()> drained);

 private:
  friend struct UvBody;
  void abandon_all() noexcept;
  uv_loop_t* loop_;
  std::shared_ptr<const ForkMark> mark_;
  EventHook* hook_ = nullptr;
  std::uint64_t events_ = 0;
  bool closed_ = false;
  std::function<void()> drained_;
  List<UvBody, UvBodyTag> bodies_;
};

// Every open() below answers 0 or a libuv error number (the negative of an errno).

class PollTarget {
 public:
  /// UV_READABLE and UV_WRITABLE; both after an error of the descriptor, which the next read or write will tell.
  virtual void on_poll(int events) = 0;

 protected:
  ~PollTarget() = default;
};

/// Readiness of a descriptor, level-triggered. The descriptor may be closed right after close().
class UvPoll final : public UvOwner {
 public:
  [[nodiscard]] int open(UvHandles& handles, int fd, PollTarget& target);
  /// Which events are wanted; no system call when that is nothing new.
  void arm(int events);
};

class TimerTarget {
 public:
  virtual void on_timeout() = 0;

 protected:
  ~TimerTarget() = default;
};

/// Fires once, never inline. Resolution 1 ms; may be up to 1 ms early, as libuv's clock counts whole milliseconds.
class UvTimer final : public UvOwner {
 public:
  [[nodiscard]] int open(UvHandles& handles, TimerTarget& target);
  void start(Duration delay);
  void stop();
};

class LookupTarget {
 public:
  /// 0 and a list (valid during the call), or a libuv error number.
  virtual void on_looked_up(int error, const addrinfo* list) = 0;

 protected:
  ~LookupTarget() = default;
};

/// One name look-up in libuv's threads. One that is already being made cannot be stopped; its answer is thrown away.
class UvLookup final : public UvOwner {
 public:
  [[nodiscard]] int start(UvHandles& handles, const std::string& host, std::uint16_t port, LookupTarget& target);
};

class PhaseTarget {
 public:
  virtual void on_before_poll() = 0;
  virtual void on_after_poll() = 0;

 protected:
  ~PhaseTarget() = default;
};

/// Calls around the poll of a loop (uv_prepare, uv_check).
class UvBeforePoll final : public UvOwner {
 public:
  [[nodiscard]] int open(UvHandles& handles, PhaseTarget& target);
};
class UvAfterPoll final : public UvOwner {
 public:
  [[nodiscard]] int open(UvHandles& handles, PhaseTarget& target);
};

/// While on, the loop polls without sleeping (uv_idle).
class UvNoSleep final : public UvOwner {
 public:
  [[nodiscard]] int open(UvHandles& handles);
  void set(bool on);
};

}  // namespace hixl::runtime
