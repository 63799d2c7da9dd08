// SPDX-License-Identifier: Apache-2.0
#include "mailroom.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "trace.hpp"

namespace pd {

namespace {

using namespace std::chrono_literals;

/// Messages on their way to one receiver. A Prefill is at most one request ahead of its Decode: one message a layer.
constexpr std::uint64_t k_slots = 64;
/// Credit is given back for so many messages at once.
constexpr std::uint64_t k_credit_step = 16;
/// How long a receiver may keep a sender without credit before the pair counts as broken.
constexpr auto k_credit_wait = 20s;
/// How often a waiting thread looks whether it still has something to wait for.
constexpr auto k_look = 500ms;

/// One cache line a word, so that writers of one do not disturb waiters of another.
struct alignas(64) Word {
  std::uint64_t value;
};

struct Slot {
  std::uint32_t subject;
  std::uint32_t request;
  std::uint32_t number;
  std::uint32_t count;
  std::uint64_t values[k_request_blocks_max];

  static constexpr std::size_t bytes_for(std::size_t count) {
    return offsetof(Slot, values) + count * sizeof(std::uint64_t);
  }
};

/// What one pair of ranks keeps at each side.
struct Shelf {
  Word arrived[k_slots];  // written by the counterpart: number of the message in the slot, from 1
  Word credit;            // added to by the counterpart: how many of ours it has taken
  Slot in[k_slots];       // written by the counterpart
  Slot out[k_slots];      // what we send, kept until it has been taken
};

constexpr std::size_t offset_of(std::uint32_t index) { return index * sizeof(Shelf); }

}  // namespace

struct Mailroom::Pair {
  hixl::Rank rank = 0;
  Shelf* shelf = nullptr;
  hixl::RemoteRegion remote;
  std::uint64_t remote_shelf = 0;  // offset of our shelf there
  std::mutex sending;
  std::uint64_t sent = 0;
  void break_with(const hixl::Error& why);
  std::atomic<bool> failing{false};  // the first failure stays
  std::atomic<bool> broken{false};
  hixl::Error error;  // written before `broken` is set
  std::thread receiver;
};

Mailroom::Mailroom(hixl::Runtime& runtime, std::vector<hixl::Rank> counterparts, std::uint32_t own_index)
    : runtime_(runtime), own_index_(own_index) {
  for (const hixl::Rank rank : counterparts) {
    pairs_.push_back(std::make_unique<Pair>());
    pairs_.back()->rank = rank;
  }
}

Mailroom::~Mailroom() { stop(); }

hixl::Result<hixl::Region> Mailroom::open() {
  auto region = runtime_.allocate(sizeof(Shelf) * pairs_.size(),
                                  {.rights = hixl::Rights::all, .tag = k_tag_control, .zero_on_release = false});
  if (!region) return region;
  region_ = *region;
  for (std::uint32_t i = 0; i < pairs_.size(); ++i) {
    pairs_[i]->shelf = reinterpret_cast<Shelf*>(region_.data + offset_of(i));
  }
  return region;
}

void Mailroom::start(std::vector<hixl::RemoteRegion> remotes, Deliver deliver) {
  deliver_ = std::move(deliver);
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    Pair& pair = *pairs_[i];
    pair.remote = remotes[i];
    pair.remote_shelf = offset_of(own_index_);
    pair.receiver = std::thread([this, &pair] { receive(pair); });
  }
}

Mailroom::Pair& Mailroom::pair_of(hixl::Rank rank) {
  return **std::find_if(pairs_.begin(), pairs_.end(), [&](const auto& pair) { return pair->rank == rank; });
}

void Mailroom::Pair::break_with(const hixl::Error& why) {
  if (failing.exchange(true, std::memory_order_relaxed)) return;
  error = why;
  broken.store(true, std::memory_order_release);
}

void Mailroom::forget(hixl::Rank rank) {
  pair_of(rank).break_with(hixl::Error(hixl::ErrorCode::peer_lost, {.rank = rank}));
}

void Mailroom::on_sent(void* context, const hixl::Completion& completion) {
  auto& pair = *static_cast<Pair*>(context);
  if (!completion.result) pair.break_with(completion.result.error());
}

hixl::Result<void> Mailroom::send(hixl::Rank to, const Message& message) {
  Pair& pair = pair_of(to);
  const std::lock_guard lock(pair.sending);
  if (pair.broken.load(std::memory_order_acquire)) return hixl::fail(pair.error);
  const auto deadline = std::chrono::steady_clock::now() + k_credit_wait;
  while (pair.sent >= k_slots) {
    const std::uint64_t wanted = pair.sent - k_slots + 1;
    const auto credit = runtime_.wait_signal(&pair.shelf->credit, hixl::Compare::greater_equal, wanted, k_look);
    if (credit) break;
    if (pair.broken.load(std::memory_order_acquire)) return hixl::fail(pair.error);
    const bool in_time = std::chrono::steady_clock::now() < deadline;
    if (credit.error().code != hixl::ErrorCode::deadline_exceeded || !in_time) return hixl::fail(credit.error());
  }
  const std::uint64_t index = pair.sent % k_slots;
  Slot& slot = pair.shelf->out[index];
  slot.subject = static_cast<std::uint32_t>(message.subject);
  slot.request = message.request;
  slot.number = message.number;
  slot.count = static_cast<std::uint32_t>(message.values.size());
  std::copy(message.values.begin(), message.values.end(), slot.values);

  const hixl::Signal signal{.word = pair.remote.at(pair.remote_shelf + offsetof(Shelf, arrived) + index * sizeof(Word)),
                            .value = pair.sent + 1,
                            .op = hixl::SignalOp::set};
  const auto posted = runtime_.put_with_signal(
      &slot, pair.remote.at(pair.remote_shelf + offsetof(Shelf, in) + index * sizeof(Slot)),
      Slot::bytes_for(message.values.size()), signal, {.callback = {&Mailroom::on_sent, &pair}, .user_data = 0});
  if (!posted) return hixl::fail(posted.error());
  ++pair.sent;
  return {};
}

void Mailroom::receive(Pair& pair) {
  std::uint64_t taken = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    const std::uint64_t index = taken % k_slots;
    const auto seen =
        runtime_.wait_signal(&pair.shelf->arrived[index], hixl::Compare::greater_equal, taken + 1, k_look);
    if (!seen) {
      if (seen.error().code == hixl::ErrorCode::deadline_exceeded) continue;
      return;  // the runtime has stopped
    }
    const Slot& slot = pair.shelf->in[index];
    const std::size_t count = std::min<std::size_t>(slot.count, k_request_blocks_max);
    deliver_(pair.rank,
             {static_cast<Subject>(slot.subject), slot.request, slot.number, {slot.values, slot.values + count}});
    ++taken;
    if (taken % k_credit_step != 0) continue;
    const hixl::Signal credit{.word = pair.remote.at(pair.remote_shelf + offsetof(Shelf, credit)),
                              .value = k_credit_step,
                              .op = hixl::SignalOp::add};
    const auto posted = runtime_.put_with_signal(nullptr, pair.remote.at(pair.remote_shelf), 0, credit,
                                                 {.callback = {&Mailroom::on_sent, &pair}, .user_data = 0});
    if (!posted) return;
  }
}

void Mailroom::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  for (auto& pair : pairs_) {
    if (pair->receiver.joinable()) pair->receiver.join();
  }
}

}  // namespace pd
