// SPDX-License-Identifier: Apache-2.0
//
// Bytes: all of them, in their place, none beside it; signals after them.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "bytes.hpp"
#include "world.hpp"

using namespace conformance;

namespace {

/// Moves `size` bytes in chunks of the size that suits the link, all of them under way at once as far as credit goes.
void move(World& world, End& end, Verb verb, const Remote& remote, std::uint64_t offset, std::byte* local,
          std::size_t size) {
  std::vector<std::uint64_t> chunks;
  const std::size_t chunk = world.caps().chunk_bytes;
  for (std::size_t done = 0; done < size; done += chunk) {
    const auto bytes = static_cast<std::uint32_t>(std::min(chunk, size - done));
    chunks.push_back(world.post(end, verb, remote, {{local + done, offset + done, bytes}}));
  }
  world.wait_all(end);
  for (const std::uint64_t number : chunks) REQUIRE(end.code(number) == ErrorCode::ok);
}

/// `count` pieces of random size that lie apart from each other in `room` bytes, in random order.
std::vector<Segment> scatter(Random& random, std::size_t count, std::size_t room, std::byte* local) {
  std::vector<Segment> segments;
  const std::size_t cell = room / count;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bytes = static_cast<std::uint32_t>(random.between(1, cell - 1));
    segments.push_back({local, i * cell + random.below(cell - bytes), bytes});
  }
  for (std::size_t i = count; i > 1; --i) std::swap(segments[i - 1], segments[random.below(i)]);
  for (Segment& segment : segments) {
    segment.local = local;
    local += segment.bytes;
  }
  return segments;
}

}  // namespace

TEST_CASE_TEMPLATE("put and get carry every size whole and touch nothing beside it", Kind, Hccs, Pcie, Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  const std::uint64_t seed = base_seed();
  CAPTURE(seed);
  auto world = World::make(Kind::kind, seed);
  constexpr std::size_t k_largest = 4U << 20U;
  const Remote remote = world->share(k_largest + 2 * 4096);
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{4095}, std::size_t{4096},
                                 std::size_t{65536}, std::size_t{65537}, std::size_t{1} << 20U, k_largest}) {
    CAPTURE(size);
    const std::span all_of_it(remote.memory, remote.size);
    std::fill(all_of_it.begin(), all_of_it.end(), k_canary);
    const std::uint64_t offset = 4096 - 3;  // not aligned to anything
    Guarded source(size), back(size);
    fill(source.span(), seed + size);
    move(*world, world->a(), Verb::write, remote, offset, source.data(), size);
    CHECK(same(all_of_it.subspan(offset, size), source.span()));
    CHECK(all(all_of_it.first(offset), k_canary));
    CHECK(all(all_of_it.subspan(offset + size), k_canary));

    fill(all_of_it.subspan(offset, size), seed + size + 1);  // so that the get cannot live on what the put left
    const auto expected = noise(size, seed + size + 1);
    move(*world, world->a(), Verb::read, remote, offset, back.data(), size);
    CHECK(same(back.span(), expected));
    CHECK(back.intact());
    CHECK(source.intact());
    CHECK(same(all_of_it.subspan(offset, size), expected));
  }
  world->check_manners();
}

TEST_CASE_TEMPLATE("one post carries 1 to 32 scattered segments", Kind, Hccs, Pcie, Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  const std::uint64_t seed = base_seed() + 100;
  CAPTURE(seed);
  auto world = World::make(Kind::kind, seed);
  constexpr std::size_t k_room = 96U << 10U;
  const Remote remote = world->share(k_room);
  Random random(seed);
  for (std::size_t count = 1; count <= wire::k_segments_max; ++count) {
    CAPTURE(count);
    const std::span target(remote.memory, k_room);
    std::fill(target.begin(), target.end(), k_canary);
    std::vector<std::byte> expected(k_room, k_canary);
    Guarded source(k_room), back(k_room);
    fill(source.span(), seed + count);
    const auto segments = scatter(random, count, k_room, source.data());
    std::size_t total = 0;
    for (const Segment& segment : segments) {
      std::copy_n(segment.local, segment.bytes, expected.begin() + static_cast<std::ptrdiff_t>(segment.offset));
      total += segment.bytes;
    }
    REQUIRE(world->run(world->a(), Verb::write, remote, segments) == ErrorCode::ok);
    CHECK(same(target, expected));

    auto reads = segments;
    for (Segment& segment : reads) segment.local = back.data() + (segment.local - source.data());
    REQUIRE(world->run(world->a(), Verb::read, remote, reads) == ErrorCode::ok);
    CHECK(same(back.span().first(total), source.span().first(total)));
    CHECK(all(back.span().subspan(total), k_canary));
    CHECK(back.intact());
  }
  world->check_manners();
}

TEST_CASE_TEMPLATE("a signal that is posted after its data has completed is seen after it, set and add", Kind, Hccs,
                   Pcie, Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  const std::uint64_t seed = base_seed() + 200;
  CAPTURE(seed);
  auto world = World::make(Kind::kind, seed);
  if (!world->caps().words) {
    MESSAGE("skipped: this kind executes no signals; the peer sends them by another link");
    return;
  }
  constexpr std::size_t k_bytes = 100'000;
  constexpr std::uint64_t k_word = 131'072;  // offset of the signal word, aligned to 8
  const Remote remote = world->share(k_word + 4096);
  memory::Device& device = memory::host_device();
  const std::byte* word = remote.memory + k_word;
  std::uint64_t expected = 0;
  for (int round = 0; round < rounds(50); ++round) {
    CAPTURE(round);
    const auto data = noise(k_bytes, seed + static_cast<std::uint64_t>(round));
    std::vector<std::byte> source = data;
    REQUIRE(world->run(world->a(), Verb::write, remote, {{source.data(), 0, k_bytes}}) == ErrorCode::ok);
    const bool add = round % 2 == 0;
    const std::uint64_t operand = add ? 5 : 1'000'000 + static_cast<std::uint64_t>(round);
    expected = add ? expected + operand : operand;
    const auto number =
        world->post(world->a(), add ? Verb::signal_add : Verb::signal_set, remote, {{nullptr, k_word, 8}}, operand);
    world->until([&] { return memory::load_word(device, word) == expected; });
    CHECK(same({remote.memory, k_bytes}, data));
    world->until([&] { return world->a().ended(number); });
    CHECK(world->a().code(number) == ErrorCode::ok);
    CHECK(memory::load_word(device, word) == expected);
    CHECK(all({remote.memory + k_bytes, k_word - k_bytes}, std::byte{0}));
    CHECK(all({remote.memory + k_word + 8, 64}, std::byte{0}));
  }
  // Many at once: each counts once.
  for (int i = 0; i < 40; ++i) world->post(world->a(), Verb::signal_add, remote, {{nullptr, k_word, 8}}, 1);
  world->wait_all(world->a());
  CHECK(memory::load_word(device, word) == expected + 40);
  world->check_manners();
}

TEST_CASE_TEMPLATE("a word that is not aligned is refused and stays", Kind, Hccs, Pcie, Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  auto world = World::make(Kind::kind, base_seed());
  const Remote remote = world->share(4096);
  const ErrorCode expected = world->caps().words ? ErrorCode::unaligned : ErrorCode::unsupported;
  CHECK(world->run(world->a(), Verb::signal_set, remote, {{nullptr, 4, 8}}, ~0ULL) == expected);
  CHECK(all({remote.memory, remote.size}, std::byte{0}));
  world->check_manners();
}

namespace {

/// Random puts, gets and adds of one end to a region of the other, in slots; one operation a slot at a time, so that
/// each completion says exactly what the slot holds.
class Storm {
 public:
  Storm(World& world, End& from, End& to, std::uint64_t seed)
      : world_(world),
        from_(from),
        random_(seed),
        remote_(world.share(to, from, k_slots * k_slot_bytes, Rights::all)),
        slots_(k_slots) {
    for (Slot& slot : slots_) slot.expected.resize(k_slot_bytes);
  }
  /// Posts what it can; looks at what has ended.
  void turn() {
    for (std::size_t i = 0; i < k_slots; ++i) {
      if (slots_[i].number != 0 && from_.ended(slots_[i].number)) check(i);
      if (slots_[i].number == 0 && left > 0 && busy_at_ != from_.credits) start(i);
    }
  }
  [[nodiscard]] bool idle() const { return left == 0 && from_.under_way() == 0; }
  void check_all() {
    for (std::size_t i = 0; i < k_slots; ++i) {
      if (slots_[i].number != 0) check(i);
      CHECK(same(memory_of(i), slots_[i].expected));
    }
    CHECK(from_.link->traffic().bytes_out == bytes_put_);
    CHECK(from_.link->traffic().bytes_in == bytes_got_);
  }
  int left = 0;

 private:
  static constexpr std::size_t k_slots = 12;  // more than tx_depth
  static constexpr std::size_t k_slot_bytes = 160U << 10U;
  struct Slot {
    std::uint64_t number = 0;
    Verb verb{};
    std::vector<std::byte> buffer;
    std::size_t at = 0;
    std::vector<std::byte> expected;
  };
  [[nodiscard]] std::span<std::byte> memory_of(std::size_t i) const {
    return {remote_.memory + i * k_slot_bytes, k_slot_bytes};
  }

  void start(std::size_t i) {
    Slot& slot = slots_[i];
    const std::uint64_t bytes = random_.chance(500) ? random_.between(1, 300) : random_.between(1, k_slot_bytes);
    slot.at = random_.below(k_slot_bytes - bytes + 1);
    slot.verb = random_.chance(500) ? Verb::write : Verb::read;
    slot.buffer = noise(bytes, random_.next());
    const std::uint32_t first = static_cast<std::uint32_t>(random_.between(1, bytes));
    const auto rest = static_cast<std::uint32_t>(bytes - first);
    const std::uint64_t offset = i * k_slot_bytes + slot.at;
    std::vector<Segment> segments{{slot.buffer.data(), offset, first}};
    if (rest != 0) segments.push_back({slot.buffer.data() + first, offset + first, rest});
    slot.number = from_.post(slot.verb, remote_, std::move(segments));
    if (slot.number == 0) {
      busy_at_ = from_.credits;  // not before credit has come
      return;
    }
    --left;
    (slot.verb == Verb::write ? bytes_put_ : bytes_got_) += bytes;
  }
  void check(std::size_t i) {
    Slot& slot = slots_[i];
    REQUIRE(from_.code(slot.number) == ErrorCode::ok);
    const auto at = slot.expected.begin() + static_cast<std::ptrdiff_t>(slot.at);
    if (slot.verb == Verb::write) {
      std::copy(slot.buffer.begin(), slot.buffer.end(), at);
      REQUIRE(same(memory_of(i).subspan(slot.at, slot.buffer.size()), slot.buffer));
    } else {
      REQUIRE(std::equal(slot.buffer.begin(), slot.buffer.end(), at));
    }
    slot.number = 0;
  }

  World& world_;
  End& from_;
  Random random_;
  Remote remote_;
  std::vector<Slot> slots_;
  std::uint64_t bytes_put_ = 0, bytes_got_ = 0;
  int busy_at_ = -1;
};

}  // namespace

TEST_CASE_TEMPLATE("a storm of puts and gets both ways, with control frames among them", Kind, Hccs, Pcie, Tcp, Roce,
                   Sim) {
  if (World::skips(Kind::kind)) return;
  const std::uint64_t seed = base_seed() + 300;
  CAPTURE(seed);
  auto world = World::make(Kind::kind, seed);
  Storm to_b(*world, world->a(), world->b(), seed), to_a(*world, world->b(), world->a(), seed + 1);
  to_b.left = to_a.left = rounds(400);
  const int frames = rounds(200);
  int sent = 0;
  world->until([&] {
    to_b.turn();
    to_a.turn();
    const std::byte body[2] = {static_cast<std::byte>(sent), static_cast<std::byte>(sent >> 8)};
    if (sent < frames && world->a().send(wire::FrameType::exchange, body)) ++sent;
    return to_b.idle() && to_a.idle() && static_cast<int>(world->b().controls.size()) == frames;
  });
  to_b.check_all();
  to_a.check_all();
  for (int i = 0; i < frames; ++i) {
    const auto& body = world->b().controls[static_cast<std::size_t>(i)].second;
    REQUIRE(body.size() == 2);
    CHECK((static_cast<int>(body[0]) | static_cast<int>(body[1]) << 8) == i);
  }
  world->check_manners();
}

TEST_CASE_TEMPLATE("a put completes while the target's loop stands still, where the link says so", Kind, Hccs, Pcie,
                   Tcp, Roce, Sim) {
  if (World::skips(Kind::kind)) return;
  auto world = World::make(Kind::kind, base_seed());
  const Remote remote = world->share(2U << 20U);
  auto source = noise(1U << 20U, 5);
  if (!world->caps().target_passive) {
    MESSAGE("skipped: on this link the target's loop takes part in every put");
    return;
  }
  world->turn_b(false);
  CHECK(world->run(world->a(), Verb::write, remote, {{source.data(), 0, 1U << 20U}}) == ErrorCode::ok);
  CHECK(same({remote.memory, source.size()}, source));
  world->turn_b(true);
  world->check_manners();
}
