// SPDX-License-Identifier: Apache-2.0
//
// Registrations: which regions of this rank a card may reach. Each is registered once a card, with the rights that it
// grants to peers and no more, by a worker thread, since pinning takes as long as the memory is large. It stays until
// the region is revoked; then as soon as nobody here uses it and no peer has its key any more.
//
//   registering ──▶ ready ──revoke, unused──▶ leaving ──▶ forgotten
//     ▲  └────────▶ failed ──revoke──▶ forgotten
//     └─want, later───┘
//
// Loop-bound, but for the work itself.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "links/roce/verbs.hpp"
#include "memory/region_table.hpp"

namespace hixl::links::roce {

class Registrations;

/// A number for maps: ids are reused, lives are not.
[[nodiscard]] constexpr std::uint64_t number_of(RegionKey key) noexcept {
  return std::uint64_t{key.generation} << 32U | key.id;
}

/// Hears that a registration for which it waited has come to an end, well or not.
class RegistrationUser {
 public:
  virtual void on_registered(RegionKey key) = 0;

 protected:
  ~RegistrationUser() = default;
};

class Registration final : private Job {
 public:
  enum class State : std::uint8_t { registering, ready, failed, leaving };
  Registration(Registrations& owner, const memory::RegionInfo& info);

  [[nodiscard]] State state() const noexcept { return state_; }
  /// Of a failed one.
  [[nodiscard]] const Error& error() const noexcept { return error_; }
  [[nodiscard]] RegionKey key() const noexcept { return key_; }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool holds(const std::byte* data, std::size_t size) const noexcept {
    return data >= data_ && size <= size_ && static_cast<std::size_t>(data - data_) <= size_ - size;
  }
  [[nodiscard]] const MemoryRegion& memory() const noexcept { return *memory_; }

 private:
  friend class Registrations;
  void work() override;
  void done() override;

  Registrations& owner_;
  const RegionKey key_;
  std::byte* const data_;
  const std::size_t size_;
  const int access_;
  State state_ = State::registering;
  std::unique_ptr<MemoryRegion> memory_;
  Error error_{};
  Instant failed_at_{};
  std::uint32_t uses_ = 0;  ///< requests under way here, and peers that have the key
  bool revoked_ = false;
  std::vector<RegistrationUser*> waiting_;
};

class Registrations {
 public:
  /// All outlive it. Destroyed when idle(): what is left then is deregistered at once.
  Registrations(Device& device, Worker& worker, runtime::Loop& loop) : device_(device), worker_(worker), loop_(loop) {}
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  /// The region's registration, begun if there is none, or anew if it failed some time ago. While it is registering,
  /// `user` will be told. Null: the region is revoked.
  [[nodiscard]] Registration* want(const memory::RegionInfo& info, RegistrationUser& user);
  /// Somebody who waited is gone.
  void forget(RegistrationUser& user) noexcept;
  /// A ready one is in use until drop(): it stays.
  void use(Registration& one) noexcept { one.uses_ += 1; }
  void drop(Registration& one);
  /// The region is closed. True: the card does not reach it any more. False: ask again.
  [[nodiscard]] bool revoke(RegionKey key);
  /// No work is under way.
  [[nodiscard]] bool idle() const noexcept { return jobs_ == 0; }

 private:
  friend class Registration;
  void begin(Registration& one);
  void run(Registration& one);
  void leave_if_unused(Registration& one);
  void on_done(Registration& one);

  Device& device_;
  Worker& worker_;
  runtime::Loop& loop_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Registration>> all_;
  std::vector<Registration*> registering_;
  std::size_t jobs_ = 0;
};

}  // namespace hixl::links::roce
