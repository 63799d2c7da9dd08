// SPDX-License-Identifier: Apache-2.0
#include "shape.hpp"

namespace hixl::sim {

Shape Shape::draw(Random& random) {
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  // Half of the kinds are off in each seed; the others' rates are spread evenly over their sizes, so that rare and
  // frequent occur alike.
  const auto rate = [&](std::uint64_t most) {
    return random.chance(500) ? static_cast<std::uint32_t>(random.between(1, random.between(1, most))) : 0U;
  };
  Shape shape;
  shape.size = static_cast<std::uint32_t>(random.between(2, 4));
  shape.with_fabric = random.chance(650);
  shape.time = milliseconds(random.between(500, 8000));
  shape.operations_max = random.between(50, 1000);

  shape.look = microseconds(random.chance(500) ? random.between(200, 1000) : random.between(1000, 5000));
  shape.open_max = random.between(3, 40);
  shape.post_per_mille = static_cast<std::uint32_t>(random.between(5, random.chance(500) ? 50 : 900));
  shape.chain_per_mille = random.chance(600) ? static_cast<std::uint32_t>(random.between(100, 900)) : 0U;
  shape.get_per_mille = static_cast<std::uint32_t>(random.between(0, 600));
  shape.batch_per_mille = rate(500);
  shape.flush_per_mille = rate(150);
  shape.signal_per_mille = static_cast<std::uint32_t>(random.between(0, 800));
  shape.small_per_mille = static_cast<std::uint32_t>(random.between(0, 900));
  shape.hurry_per_mille = rate(900);
  shape.hurry_max = microseconds(random.between(100, random.chance(500) ? 5'000 : 100'000));

  shape.patient_per_mille = rate(500);

  // Looks of 0.2 … 5 ms: one in a thousand is one a fifth of a second to one in five.
  shape.kill_per_mille = rate(6);
  shape.leave_per_mille = rate(5);
  shape.replace_per_mille = rate(3);
  shape.restart_per_mille = static_cast<std::uint32_t>(random.between(1, 30));
  shape.pause_per_mille = rate(15);
  shape.clog_per_mille = rate(40);
  if (shape.clog_per_mille > 0 && random.chance(500)) {
    // Deadlines that are over while a connection stands still: what it carries must not come after the end.
    shape.hurry_per_mille = static_cast<std::uint32_t>(random.between(300, 900));
    shape.hurry_max = microseconds(random.between(1'000, 100'000));
  }
  shape.reset_per_mille = rate(40);
  shape.long_per_mille = static_cast<std::uint32_t>(random.between(0, 500));
  shape.turnover_per_mille = rate(20);
  shape.control = {.lost_per_mille = rate(400), .twice_per_mille = rate(400), .held_per_mille = rate(400)};
  shape.cancel_per_mille = rate(300);
  shape.misuse_per_mille = rate(100);
  shape.lie_per_mille = rate(30);
  shape.atomic_per_mille = rate(1000);
  shape.narrow_windows = random.chance(500);
  // Last, so that older seeds keep the rest of their shape.
  if (random.chance(600)) shape.barrier_per_mille = static_cast<std::uint32_t>(random.between(1, 100));
  return shape;
}

bool Shape::switch_off(std::string_view kind) {
  if (kind == "kill") return kill_per_mille = 0, true;
  if (kind == "leave") return leave_per_mille = 0, true;
  if (kind == "replace") return replace_per_mille = 0, true;
  if (kind == "pause") return pause_per_mille = 0, true;
  if (kind == "clog") return clog_per_mille = 0, true;
  if (kind == "reset") return reset_per_mille = 0, true;
  if (kind == "turnover") return turnover_per_mille = 0, true;
  if (kind == "cancel") return cancel_per_mille = 0, true;
  if (kind == "control") return control = {}, true;
  if (kind == "lie") return lie_per_mille = 0, true;
  return false;
}

}  // namespace hixl::sim
