// SPDX-License-Identifier: Apache-2.0
//
// Arrivals: puts operations that arrive by mail into the order in which they were posted, as far as fences and flushes
// need it. A thread that posts after it has heard of another thread's post may be overtaken by its mail; but both mails
// are in the mailbox by then, so looking through all of it once tells.
//
// Loop-bound.
#pragma once

#include <cstdint>
#include <utility>

#include "memory/posting_order.hpp"
#include "peer/operation.hpp"
#include "runtime/mailbox.hpp"

namespace hixl::peer {

class Arrivals {
 public:
  Arrivals(const memory::PostingOrder& order, runtime::Mailbox& mailbox) : order_(order), mailbox_(mailbox) {}

  /// Puts the operation in its place among those that are open. False: something that was posted before it may still
  /// be on its way; it must not begin, nor end well, before settle().
  [[nodiscard]] bool add(List<Operation, OpenTag>& open, Operation& operation) {
    Operation* before = open.back();
    while (before != nullptr && before->place > operation.place) before = open.previous(*before);
    before == nullptr ? open.push_front(operation) : open.insert_after(*before, operation);
    if (!operation.is_order() && operation.place <= 2 * known_) return true;
    due_ = true;
    return false;
  }
  [[nodiscard]] bool due() const noexcept { return due_; }
  /// Takes in all mail, which may add more operations. Afterwards everything that was posted before one that had
  /// arrived is here. Not from on_mail(). Bounded: an operation occupies its request slot until its end, and none ends
  /// here.
  void settle() {
    while (std::exchange(due_, false)) {
      const std::uint64_t sent = order_.all_sent(known_);
      mailbox_.drain(SIZE_MAX);
      known_ = sent;
    }
  }

 private:
  const memory::PostingOrder& order_;
  runtime::Mailbox& mailbox_;
  std::uint64_t known_ = 0;  // fences and flushes of which each has arrived, up to this number
  bool due_ = false;
};

}  // namespace hixl::peer
