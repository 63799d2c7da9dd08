// SPDX-License-Identifier: Apache-2.0
//
// Small messages between ranks, through hixl itself: a ring in the receiver's registered memory for every sender. A
// message is one put_with_signal: its bytes go into the next slot, and the slot's own word then shows its number. One
// word a slot, because puts are unordered: the word of a later message may rise before that of an earlier one. The
// receiver gives credit back by adding to a word at the sender.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include <hixl/runtime.hpp>

namespace pd {

enum class Subject : std::uint32_t {
  reserve = 1,  ///< Prefill → Decode: values are the names of the request's blocks; number: tokens to decode
  granted = 2,  ///< Decode → Prefill: values are places, with k_reused_bit on those that are not to be sent
  layer = 3,    ///< Prefill → Decode: every block of layer `number` is there
  abort = 4,    ///< Prefill → Decode: nothing more comes for this request
};
/// How a rank tells its regions apart for others.
inline constexpr std::uint32_t k_tag_control = 1;
inline constexpr std::uint32_t k_tag_pool = 2;

inline constexpr std::uint64_t k_reused_bit = std::uint64_t{1} << 63U;

struct Message {
  Subject subject = Subject::reserve;
  std::uint32_t request = 0;
  std::uint32_t number = 0;
  std::vector<std::uint64_t> values;
};

/// A rank's rings to and from all its counterparts (the ranks of the other role).
class Mailroom {
 public:
  /// Called on the receiving threads, one a counterpart.
  using Deliver = std::function<void(hixl::Rank from, Message&& message)>;

  Mailroom(hixl::Runtime& runtime, std::vector<hixl::Rank> counterparts, std::uint32_t own_index);
  ~Mailroom();
  Mailroom(const Mailroom&) = delete;
  Mailroom& operator=(const Mailroom&) = delete;

  /// Allocates the control region, to be exchanged.
  [[nodiscard]] hixl::Result<hixl::Region> open();
  /// With every counterpart's control region, in order: starts to receive.
  void start(std::vector<hixl::RemoteRegion> remotes, Deliver deliver);
  /// Any thread. Waits for credit, but not for the message to arrive; an earlier failure of this pair is told here.
  [[nodiscard]] hixl::Result<void> send(hixl::Rank to, const Message& message);
  /// The counterpart is known to be dead: nothing is sent to it any more, and nobody waits for its credit.
  void forget(hixl::Rank rank);
  /// Ends the receiving threads.
  void stop();

 private:
  struct Pair;
  [[nodiscard]] Pair& pair_of(hixl::Rank rank);
  static void on_sent(void* context, const hixl::Completion& completion);
  void receive(Pair& pair);

  hixl::Runtime& runtime_;
  std::uint32_t own_index_;
  hixl::Region region_{};
  std::vector<std::unique_ptr<Pair>> pairs_;
  Deliver deliver_;
  std::atomic<bool> stopping_{false};
};

}  // namespace pd
