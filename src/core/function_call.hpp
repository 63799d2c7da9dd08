// SPDX-License-Identifier: Apache-2.0
//
// What calls that run on the loop are made of: a call of two functions, and the way of an end through an actor to the
// program.
#pragma once

#include <memory>
#include <utility>

#include "core/core.hpp"

namespace hixl::core {

template <class Done>
[[nodiscard]] Result<void> check_done(Done* done) {
  if (done != nullptr) return {};
  return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
}

template <class Run, class Refuse>
class FunctionCall final : public LoopCall {
 public:
  FunctionCall(Run run, Refuse refuse) : run_(std::move(run)), refuse_(std::move(refuse)) {}
  void run() override { run_(); }
  void refuse() override { refuse_(); }

 private:
  Run run_;
  Refuse refuse_;
};

template <class Run, class Refuse>
std::unique_ptr<LoopCall> make_call(Run run, Refuse refuse) {
  return std::make_unique<FunctionCall<Run, Refuse>>(std::move(run), std::move(refuse));
}

/// What an actor is given as the end of a call: tells the program, once, and is gone with that.
template <class Value>
struct Core::Teller {
  static void end(void* at, const Value& value) {
    const std::unique_ptr<Teller> self(static_cast<Teller*>(at));
    self->core.tell([&] { self->done(self->context, value); });
  }
  Core& core;
  void (*done)(void*, const Value&);
  void* context;
};

}  // namespace hixl::core
