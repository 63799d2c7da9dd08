// SPDX-License-Identifier: Apache-2.0
#include "links/roce/registrations.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/assert.hpp"

namespace hixl::links::roce {
namespace {

/// Other memory may have been freed since, or the limit raised. A limit that stays costs the posts that want the region
/// one try a second, some 50 µs: the kernel looks at it before it pins anything.
constexpr std::chrono::seconds k_try_again{1};

/// What the card may do there. Requests of this rank read everything and write where the process itself may. Ordering
/// stays strict (no IBV_ACCESS_RELAXED_ORDERING): the progress word has to come after the data.
int access_of(const memory::RegionInfo& info) noexcept {
  int access = 0;
  if (info.writable) access |= IBV_ACCESS_LOCAL_WRITE;
  if (includes(info.rights, Rights::read)) access |= IBV_ACCESS_REMOTE_READ;
  if (includes(info.rights, Rights::write) && info.writable) access |= IBV_ACCESS_REMOTE_WRITE;
  return access;
}

}  // namespace

Registration::Registration(Registrations& owner, const memory::RegionInfo& info)
    : owner_(owner), key_(info.key), data_(info.data), size_(info.size), access_(access_of(info)) {}

void Registration::work() {
  if (state_ == State::leaving) return memory_.reset();
  auto made = owner_.device_.register_memory(data_, size_, access_);
  if (made) {
    memory_ = std::move(*made);
  } else {
    error_ = made.error();
  }
}

void Registration::done() { owner_.on_done(*this); }

Registration* Registrations::want(const memory::RegionInfo& info, RegistrationUser& user) {
  const auto [place, fresh] = all_.try_emplace(number_of(info.key));
  if (fresh) {
    place->second = std::make_unique<Registration>(*this, info);
    begin(*place->second);
  }
  Registration& one = *place->second;
  if (one.revoked_) return nullptr;
  if (one.state_ == Registration::State::failed && loop_.now() - one.failed_at_ >= k_try_again) begin(one);
  if (one.state_ == Registration::State::registering &&
      std::find(one.waiting_.begin(), one.waiting_.end(), &user) == one.waiting_.end()) {
    one.waiting_.push_back(&user);
  }
  return &one;
}

void Registrations::begin(Registration& one) {
  one.state_ = Registration::State::registering;
  registering_.push_back(&one);
  run(one);
}

void Registrations::run(Registration& one) {
  jobs_ += 1;
  worker_.run(one);
}

void Registrations::forget(RegistrationUser& user) noexcept {
  for (Registration* one : registering_) std::erase(one->waiting_, &user);
}

void Registrations::drop(Registration& one) {
  HIXL_ASSERT(one.uses_ > 0);
  one.uses_ -= 1;
  leave_if_unused(one);
}

bool Registrations::revoke(RegionKey key) {
  const auto found = all_.find(number_of(key));
  if (found == all_.end()) return true;
  Registration& one = *found->second;
  one.revoked_ = true;
  if (one.state_ == Registration::State::failed) {
    all_.erase(found);
    return true;
  }
  leave_if_unused(one);
  return false;
}

void Registrations::leave_if_unused(Registration& one) {
  if (!one.revoked_ || one.uses_ != 0 || one.state_ != Registration::State::ready) return;
  one.state_ = Registration::State::leaving;
  run(one);
}

void Registrations::on_done(Registration& one) {
  jobs_ -= 1;
  if (one.state_ == Registration::State::leaving) {
    all_.erase(number_of(one.key_));
    return;
  }
  std::erase(registering_, &one);
  one.state_ = one.memory_ != nullptr ? Registration::State::ready : Registration::State::failed;
  one.failed_at_ = loop_.now();  // if it has
  const RegionKey key = one.key_;
  const std::vector<RegistrationUser*> waiting = std::exchange(one.waiting_, {});
  if (one.revoked_ && one.state_ == Registration::State::failed) {
    all_.erase(number_of(key));
  } else {
    leave_if_unused(one);
  }
  for (RegistrationUser* user : waiting) user->on_registered(key);
}

}  // namespace hixl::links::roce
