// SPDX-License-Identifier: Apache-2.0
//
// Steps at gates of other ranks are counted here as well, so that a word of which nobody knows what it counts, after a
// session was lost in the middle of a step, can be put right when the next one stands.
#include <utility>

#include "state.hpp"

namespace hixl::kv {

namespace {

constexpr std::chrono::seconds k_ask_time{5};

/// A gate that is being read, or exchanged. One errand.
struct Asking {
  std::shared_ptr<DataDist::State> home;
  GateBook::Question question;
  std::uint64_t word = 0;  // as it was read
};

void finish(const Asking& asking, bool right) {
  {
    const std::lock_guard lock(asking.home->mutex);
    asking.home->gates_there.settle(asking.question, right);
  }
  asking.home->end_errand();
}

void on_exchanged(void* context, const Completion& completion) {
  const std::unique_ptr<Asking> asking(static_cast<Asking*>(context));
  const bool right = completion.result && completion.value == asking->word;
  if (right) asking->home->ring_there(asking->question.gate.bell);  // its owner may wait for this
  finish(*asking, right);
}

void on_read(void* context, const Completion& completion) {
  std::unique_ptr<Asking> asking(static_cast<Asking*>(context));
  if (!completion.result) return finish(*asking, false);
  asking->word = completion.value;
  DataDist::State& home = *asking->home;
  std::optional<std::uint64_t> right;
  {
    const std::lock_guard lock(home.mutex);
    right = home.gates_there.heard(asking->question, asking->word);
  }
  if (!right) {
    home.end_errand();
    return;
  }
  // Whatever happens to the word first makes this fail.
  const auto posted = home.runtime.compare_swap(asking->question.gate.at, asking->word, *right,
                                                {.timeout = k_ask_time, .callback = {on_exchanged, asking.get()}});
  if (!posted) return finish(*asking, false);
  static_cast<void>(asking.release());
}

}  // namespace

void DataDist::State::begin_step(const GateThere& gate) {
  const std::lock_guard lock(mutex);
  gates_there.begin(gate);
}

void DataDist::State::end_step(const GateThere& gate, const GateBook::End& how) {
  {
    const std::lock_guard lock(mutex);
    gates_there.end(gate, how);
  }
  if (how.doubtful) wake_keeper();
}

void DataDist::State::ask_gate(const GateBook::Question& question) {
  begin_errand();
  auto asking = std::make_unique<Asking>(Asking{.home = shared_from_this(), .question = question});
  const auto posted =
      runtime.fetch_add(question.gate.at, 0, {.timeout = k_ask_time, .callback = {on_read, asking.get()}});
  if (!posted) return finish(*asking, false);  // the keeper asks again
  static_cast<void>(asking.release());
}

}  // namespace hixl::kv
