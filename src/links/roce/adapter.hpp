// SPDX-License-Identifier: Apache-2.0
//
// Adapter: one opened card of this runtime, with what its links share: registrations, buffers through which memory
// passes that the card cannot reach, and the news of the card itself. Owner: Rails, which destroys it when nobody uses
// it any more.
//
// Loop-bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/list.hpp"
#include "links/roce/registrations.hpp"
#include "links/roce/verbs.hpp"
#include "memory/private_pages.hpp"
#include "runtime/loop.hpp"
#include "runtime/ticker.hpp"

namespace hixl::links::roce {

struct AdapterUserTag;
/// A link on a card. No call destroys it, or another one, from inside.
class AdapterUser : public ListNode<AdapterUserTag>, public RegistrationUser {
 public:
  [[nodiscard]] virtual std::uint32_t port_number() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t queue_pair_number() const noexcept = 0;  ///< 0: none
  /// Its port, its queue pair or the card is no more.
  virtual void on_adapter_error(const Error& error) = 0;
  /// The addresses of its port have changed.
  virtual void on_gids(std::span<const Gid> gids) = 0;
  /// A buffer is free again.
  virtual void on_buffer() = 0;

 protected:
  ~AdapterUser() = default;
};

/// Destroys it.
class AdapterOwner {
 public:
  /// It is lost(): to be destroyed as soon as it is idle.
  virtual void on_lost() = 0;

 protected:
  ~AdapterOwner() = default;
};

class Adapter final : private runtime::WatchEvents {
 public:
  /// Opens the card and registers its buffers, `buffer_bytes` each. Errors of Verbs::open() and register_memory().
  [[nodiscard]] static Result<std::unique_ptr<Adapter>> open(Verbs& verbs, const std::string& name, Worker& worker,
                                                             runtime::Loop& loop, std::size_t buffer_bytes,
                                                             AdapterOwner& owner);
  Adapter(std::unique_ptr<Device> device, Worker& worker, runtime::Loop& loop, AdapterOwner& owner);
  ~Adapter();

  [[nodiscard]] Device& device() noexcept { return *device_; }
  [[nodiscard]] Registrations& registrations() noexcept { return registrations_; }
  /// The card is gone, or does not work any more: for good.
  [[nodiscard]] bool lost() const noexcept { return lost_; }
  /// May be destroyed.
  [[nodiscard]] bool idle() noexcept { return users_.empty() && held_ == 0 && registrations_.idle(); }
  /// Something of it is in the hands of a worker.
  void hold() noexcept { held_ += 1; }
  void let_go() noexcept { held_ -= 1; }

  void add(AdapterUser& user);
  void remove(AdapterUser& user) noexcept;

  /// Host memory that the card reaches. Taken by one post, given back when the card has let go of it.
  struct Buffer {
    std::span<std::byte> bytes;
    std::uint32_t local_key = 0;
    bool taken = false;
  };
  /// Null: all are taken; on_buffer() follows to all users.
  [[nodiscard]] Buffer* take_buffer() noexcept;
  void give_buffer(Buffer& buffer);
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return buffers_[0].bytes.size(); }

 private:
  using Tick = runtime::Ticker<Adapter>;
  void on_ready() override;
  void on_event(const DeviceEvent& event);
  void on_look();
  void lose(int os_error);
  template <class Concerns>
  void fail_users(Concerns&& concerns, int os_error);
  [[nodiscard]] Result<void> prepare(std::size_t buffer_bytes);

  runtime::Loop& loop_;
  AdapterOwner& owner_;
  std::unique_ptr<Device> device_;
  Registrations registrations_;
  std::unique_ptr<runtime::Watch> watch_;
  List<AdapterUser, AdapterUserTag> users_;
  // Four: two posts under way and two being filled keep a card busy, and 4 MiB are below every usual limit of locked
  // memory, so that a card whose limit is too low shows it here and not in the middle of a transfer.
  static constexpr std::size_t k_buffers = 4;
  memory::PrivatePages pages_;
  std::unique_ptr<MemoryRegion> memory_;
  std::array<Buffer, k_buffers> buffers_;
  bool buffer_wanted_ = false;
  bool lost_ = false;
  std::uint32_t held_ = 0;
  Tick look_tick_{*this, &Adapter::on_look};
};

}  // namespace hixl::links::roce
