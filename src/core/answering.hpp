// SPDX-License-Identifier: Apache-2.0
//
// Answering: the thread of a Diagnosis that answers questions about a runtime. It sleeps on the bell, and asks that
// runtime's loop without ever depending on it: a loop that does not turn delays an answer, not the end.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <hixl/diagnosis.hpp>

#include "core/core.hpp"

namespace hixl::core {

/// Owner: a Diagnosis. Threads: close() by one, once, while `rank` still lives; then destruction.
class Answering {
 public:
  /// `rank` is the answering one, `region` what it offers, `about` whom questions are about.
  Answering(Runtime& rank, const Region& region, Core& about);
  ~Answering();
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

  [[nodiscard]] Result<void> start();
  /// Stops `rank`, which ends the wait for the bell, and waits for the thread.
  void close();

 private:
  class Asked;
  struct Facts;  // what the loop of `about` has told
  struct Kept {  // an answer that its caller may still read
    std::uint64_t question = 0;
    Region region{};
  };

  void run();
  void look_at_questions();
  [[nodiscard]] Result<std::string> answer_to(Diagnosis::Subject subject);
  [[nodiscard]] Result<Region> offer(std::uint32_t tag, const Result<std::string>& answer);
  [[nodiscard]] Result<Facts> ask();
  [[nodiscard]] static Result<Facts> look(Core& core);

  Runtime& rank_;
  const Region region_;
  std::array<Kept, k_diagnosis_callers> kept_;  // the thread's own
  std::mutex mutex_;                            // what follows
  Core* about_;                                 // null: closing
  std::shared_ptr<Asked> asked_;                // the last question to it
  std::thread thread_;
};

}  // namespace hixl::core
