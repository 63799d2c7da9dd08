// SPDX-License-Identifier: Apache-2.0
#include "shape.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <type_traits>

namespace hixl::sim {

namespace {

/// Of seeds: a storm that certain states need, in which half of the kinds being off is half of the seeds wasted.
constexpr std::uint32_t k_storm_per_mille = 300;

/// Of seeds: with RDMA cards.
constexpr std::uint32_t k_rails_per_mille = 350;

void storm(Shape& shape, Choices& choices) {
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  const auto rate = [&](std::uint64_t low, std::uint64_t high) {
    return static_cast<std::uint32_t>(choices.between(low, high));
  };
  const auto hurry = [&](std::uint64_t most_us) {
    shape.hurry_per_mille = rate(300, 900);
    shape.hurry_max = microseconds(choices.between(50, most_us));
  };
  switch (choices.below(5)) {
    case 0:  // reads that are given up and refused, with hardly a place for any
      shape.with_fabric = false;
      shape.get_per_mille = rate(600, 950);
      shape.depth_max = rate(1, 2);
      shape.lie_per_mille = rate(20, 200);
      shape.batch_per_mille = shape.atomic_per_mille = shape.reset_per_mille = 0;
      shape.net.reset_per_mille = 0;
      shape.net.delay_max = milliseconds(choices.between(1, 3));
      return hurry(4'000);
    case 1:  // regions that go while much is under way, to and from them
      shape.turnover_per_mille = rate(20, 150);
      shape.get_per_mille = rate(200, 800);
      shape.open_max = rate(15, 40);
      shape.card.delay_max = milliseconds(choices.between(1, 20));
      shape.card.hesitate_per_mille = rate(200, 800);
      shape.net.pipe_bytes = choices.between(256, 16'384);
      return;
    case 2:  // fences that cross, come late and come again
      shape.with_fabric = true;
      shape.control = {
          .lost_per_mille = rate(0, 400), .twice_per_mille = rate(0, 500), .held_per_mille = rate(300, 900)};
      shape.card.break_per_mille = rate(20, 100);
      shape.card.one_sided_per_mille = rate(300, 900);
      shape.card.delay_max = milliseconds(choices.between(1, 20));
      shape.net.one_sided_per_mille = rate(300, 900);
      shape.net.long_delay_per_mille = rate(0, 30);
      shape.net.reset_per_mille = rate(0, 15);
      return;
    case 3:  // silence in the middle of a transfer, until the lease is over
      shape.clog_per_mille = rate(20, 80);
      shape.long_per_mille = rate(500, 1000);
      shape.card.late_per_mille = rate(50, 300);
      return hurry(100'000);
    default:  // lives that come and go under load
      shape.kill_per_mille = rate(5, 30);
      shape.leave_per_mille = rate(5, 30);
      shape.restart_per_mille = rate(50, 300);
      shape.card.delay_max = milliseconds(choices.between(1, 20));
      return;
  }
}

/// Half of those seeds have no other link but tcp: what RDMA carries, nothing else does.
void draw_rails(Shape& shape, Choices& choices) {
  const auto rate = [&](std::uint64_t most) {
    return choices.chance(500) ? static_cast<std::uint32_t>(choices.between(1, choices.between(1, most))) : 0U;
  };
  shape.rails = static_cast<std::uint32_t>(choices.between(1, 2));
  if (choices.chance(500)) shape.with_fabric = false;
  shape.flap_per_mille = rate(30);
  shape.pull_per_mille = rate(10);
  shape.rdma = links::RdmaPlan::draw(choices);
}

}  // namespace

Shape Shape::draw(Choices& choices) {
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  // Half of the kinds are off in each seed; the others' rates are spread evenly over their sizes, so that rare and
  // frequent occur alike.
  const auto rate = [&](std::uint64_t most) {
    return choices.chance(500) ? static_cast<std::uint32_t>(choices.between(1, choices.between(1, most))) : 0U;
  };
  Shape shape;
  shape.size = static_cast<std::uint32_t>(choices.between(2, 4));
  shape.with_fabric = choices.chance(650);
  // One link of a kind in half of the seeds: what happens to that one happens to all.
  if (choices.chance(500)) {
    shape.card_links = static_cast<std::uint32_t>(choices.between(1, 3));
    shape.tcp_links = static_cast<std::uint32_t>(choices.between(1, 4));
  }
  shape.stall_ms = static_cast<std::uint32_t>(choices.between(10, choices.chance(500) ? 100 : 1000));
  shape.limited_per_mille = rate(500);
  shape.payload_check = choices.chance(300);
  shape.time = milliseconds(choices.between(500, 8000));
  shape.operations_max = choices.between(50, 1000);

  shape.look = microseconds(choices.chance(500) ? choices.between(200, 1000) : choices.between(1000, 5000));
  shape.open_max = choices.between(3, 40);
  shape.post_per_mille = static_cast<std::uint32_t>(choices.between(5, choices.chance(500) ? 50 : 900));
  shape.chain_per_mille = choices.chance(600) ? static_cast<std::uint32_t>(choices.between(100, 900)) : 0U;
  shape.get_per_mille = static_cast<std::uint32_t>(choices.between(0, 600));
  shape.batch_per_mille = rate(500);
  shape.flush_per_mille = rate(150);
  shape.signal_per_mille = static_cast<std::uint32_t>(choices.between(0, 800));
  shape.small_per_mille = static_cast<std::uint32_t>(choices.between(0, 900));
  shape.hurry_per_mille = rate(900);
  shape.hurry_max = microseconds(choices.between(100, choices.chance(500) ? 5'000 : 100'000));

  shape.patient_per_mille = rate(500);

  // Looks of 0.2 … 5 ms: one in a thousand is one a fifth of a second to one in five.
  shape.kill_per_mille = rate(6);
  shape.leave_per_mille = rate(5);
  shape.replace_per_mille = rate(3);
  shape.restart_per_mille = static_cast<std::uint32_t>(choices.between(1, 30));
  shape.pause_per_mille = rate(15);
  shape.clog_per_mille = rate(40);
  if (shape.clog_per_mille > 0 && choices.chance(500)) {
    // Deadlines that are over while a connection stands still: what it carries must not come after the end.
    shape.hurry_per_mille = static_cast<std::uint32_t>(choices.between(300, 900));
    shape.hurry_max = microseconds(choices.between(1'000, 100'000));
  }
  shape.reset_per_mille = rate(40);
  shape.long_per_mille = static_cast<std::uint32_t>(choices.between(0, 500));
  shape.turnover_per_mille = rate(20);
  shape.control = {.lost_per_mille = rate(400), .twice_per_mille = rate(400), .held_per_mille = rate(400)};
  shape.cancel_per_mille = rate(300);
  shape.misuse_per_mille = rate(100);
  shape.lie_per_mille = rate(30);
  shape.atomic_per_mille = rate(1000);
  shape.narrow_windows = choices.chance(500);
  if (choices.chance(600)) shape.barrier_per_mille = static_cast<std::uint32_t>(choices.between(1, 100));
  shape.squeeze_per_mille = rate(40);
  shape.flip_per_mille = rate(5);
  shape.inherit_per_mille = rate(1000);
  shape.stop_in_callback_per_mille = rate(10);
  shape.net = runtime::FaultPlan::draw(choices);
  shape.card = links::SimPlan::draw(choices);
  if (choices.chance(k_storm_per_mille)) storm(shape, choices);
  if (choices.chance(k_rails_per_mille)) draw_rails(shape, choices);
  return shape;
}

namespace {

template <class Value>
std::uint64_t number_of(const Value& value) {
  if constexpr (std::is_same_v<Value, Duration>) {
    return static_cast<std::uint64_t>(value / std::chrono::microseconds(1));
  } else {
    return static_cast<std::uint64_t>(value);
  }
}

template <class Value>
void turn(Value& value, std::uint64_t number) {
  if constexpr (std::is_same_v<Value, Duration>) {
    value = std::chrono::microseconds(number);
  } else {
    value = static_cast<Value>(number);
  }
}

// name, kind, calm value, member. Durations in microseconds.
#define HIXL_SIM_KNOBS(X)                                     \
  X(ranks, size, 2, size)                                     \
  X(operations, size, 1, operations_max)                      \
  X(card_links, size, 1, card_links)                          \
  X(tcp_links, size, 1, tcp_links)                            \
  X(rails, size, 0, rails)                                    \
  X(open, size, 1, open_max)                                  \
  X(depth, size, 1, depth_max)                                \
  X(time_us, size, 1000, time)                                \
  X(card, load, 0, with_fabric)                               \
  X(stall_ms, load, 200, stall_ms)                            \
  X(limited, load, 0, limited_per_mille)                      \
  X(payload_check, load, 0, payload_check)                    \
  X(chain, load, 0, chain_per_mille)                          \
  X(get, load, 0, get_per_mille)                              \
  X(batch, load, 0, batch_per_mille)                          \
  X(flush, load, 0, flush_per_mille)                          \
  X(atomic, load, 0, atomic_per_mille)                        \
  X(narrow, load, 0, narrow_windows)                          \
  X(signal, load, 0, signal_per_mille)                        \
  X(small, load, 1000, small_per_mille)                       \
  X(hurry, load, 0, hurry_per_mille)                          \
  X(cancel, load, 0, cancel_per_mille)                        \
  X(patient, load, 0, patient_per_mille)                      \
  X(barrier, load, 0, barrier_per_mille)                      \
  X(kill, trouble, 0, kill_per_mille)                         \
  X(leave, trouble, 0, leave_per_mille)                       \
  X(replace, trouble, 0, replace_per_mille)                   \
  X(pause, trouble, 0, pause_per_mille)                       \
  X(clog, trouble, 0, clog_per_mille)                         \
  X(reset, trouble, 0, reset_per_mille)                       \
  X(long, trouble, 0, long_per_mille)                         \
  X(turnover, trouble, 0, turnover_per_mille)                 \
  X(control_lost, trouble, 0, control.lost_per_mille)         \
  X(control_twice, trouble, 0, control.twice_per_mille)       \
  X(control_held, trouble, 0, control.held_per_mille)         \
  X(misuse, trouble, 0, misuse_per_mille)                     \
  X(squeeze, trouble, 0, squeeze_per_mille)                   \
  X(flip, trouble, 0, flip_per_mille)                         \
  X(inherit, trouble, 0, inherit_per_mille)                   \
  X(stop_in_callback, trouble, 0, stop_in_callback_per_mille) \
  X(net_truncate, trouble, 0, net.truncate_per_mille)         \
  X(net_squeeze, trouble, 0, net.squeeze_per_mille)           \
  X(net_fd_limit, trouble, 0, net.fd_limit_per_mille)         \
  X(net_port_again, trouble, 0, net.port_again_per_mille)     \
  X(net_late_timer, trouble, 0, net.late_timer_per_mille)     \
  X(net_slow_reader, trouble, 0, net.slow_reader_per_mille)   \
  X(lie, trouble, 0, lie_per_mille)                           \
  X(net_delay, trouble, 10, net.delay_max)                    \
  X(net_long_delay, trouble, 0, net.long_delay_per_mille)     \
  X(net_short_read, trouble, 0, net.short_read_per_mille)     \
  X(net_short_write, trouble, 0, net.short_write_per_mille)   \
  X(net_no_room, trouble, 0, net.no_room_per_mille)           \
  X(net_reset, trouble, 0, net.reset_per_mille)               \
  X(net_one_sided, trouble, 0, net.one_sided_per_mille)       \
  X(net_half_close, trouble, 0, net.half_close_per_mille)     \
  X(net_clog, trouble, 0, net.clog_per_mille)                 \
  X(net_abort, trouble, 0, net.abort_per_mille)               \
  X(net_refuse, trouble, 0, net.refuse_per_mille)             \
  X(net_connect_lost, trouble, 0, net.connect_lost_per_mille) \
  X(net_pipe_bytes, trouble, 256U << 10U, net.pipe_bytes)     \
  X(net_turn, trouble, 1, net.turn_max)                       \
  X(net_stall, trouble, 0, net.stall_per_mille)               \
  X(card_delay, trouble, 50, card.delay_max)                  \
  X(card_twice, trouble, 0, card.twice_per_mille)             \
  X(card_stall, trouble, 0, card.stall_per_mille)             \
  X(card_late, trouble, 0, card.late_per_mille)               \
  X(card_busy, trouble, 0, card.busy_per_mille)               \
  X(card_break, trouble, 0, card.break_per_mille)             \
  X(card_one_sided, trouble, 0, card.one_sided_per_mille)     \
  X(card_hesitate, trouble, 0, card.hesitate_per_mille)       \
  X(flap, trouble, 0, flap_per_mille)                         \
  X(pull, trouble, 0, pull_per_mille)                         \
  X(rdma_delay, trouble, 20, rdma.delay_max)                  \
  X(rdma_hidden, trouble, 0, rdma.hidden_per_mille)           \
  X(rdma_whim, trouble, 0, rdma.whim_per_mille)               \
  X(rdma_work, trouble, 1, rdma.work_max)                     \
  X(rdma_late, trouble, 0, rdma.late_per_mille)               \
  X(rdma_path, trouble, 0, rdma.path_per_mille)               \
  X(rdma_rnr, trouble, 0, rdma.rnr_per_mille)                 \
  X(rdma_remote, trouble, 0, rdma.remote_per_mille)           \
  X(rdma_local, trouble, 0, rdma.local_per_mille)             \
  X(rdma_overrun, trouble, 0, rdma.overrun_per_mille)         \
  X(rdma_open, trouble, 0, rdma.open_per_mille)               \
  X(rdma_create, trouble, 0, rdma.create_per_mille)           \
  X(rdma_register, trouble, 0, rdma.register_per_mille)       \
  X(rdma_mtu, trouble, 0, rdma.mtu_per_mille)                 \
  X(rdma_overtake, trouble, 0, rdma.overtake_per_mille)

constexpr Knob k_knobs[] = {
#define HIXL_SIM_KNOB(name, kind, calm, member)                                               \
  {#name, Knob::Kind::kind, calm, [](const Shape& shape) { return number_of(shape.member); }, \
   [](Shape& shape, std::uint64_t to) { turn(shape.member, to); }},
    HIXL_SIM_KNOBS(HIXL_SIM_KNOB)
#undef HIXL_SIM_KNOB
};

}  // namespace

std::span<const Knob> knobs() noexcept { return k_knobs; }

std::string text_of(const Shape& shape, Knob::Kind kind) {
  std::string text;
  for (const Knob& knob : k_knobs) {
    const std::uint64_t value = knob.get(shape);
    if (knob.kind != kind || (value == knob.calm && kind != Knob::Kind::size)) continue;
    if (!text.empty()) text += ' ';
    text += fmt::format("{}={}", knob.name, value);
  }
  return text;
}

Result<void> Shape::set(std::string_view setting) {
  const std::size_t sign = setting.find('=');
  const std::string_view name = setting.substr(0, sign);
  const Knob* const knob =
      std::find_if(std::begin(k_knobs), std::end(k_knobs), [name](const Knob& one) { return one.name == name; });
  if (knob == std::end(k_knobs)) return fail(ErrorCode::invalid_argument);
  std::uint64_t value = knob->calm;
  if (sign != std::string_view::npos) {
    const std::string_view digits = setting.substr(sign + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) return fail(ErrorCode::invalid_argument);
  }
  knob->set(*this, value);
  return {};
}

}  // namespace hixl::sim
