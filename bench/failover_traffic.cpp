// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <thread>

#include "failover.hpp"
#include "measure.hpp"

namespace hixl::bench {
namespace {

// Far above what any step takes; a bench that hangs shall end.
constexpr std::chrono::seconds k_patience{20};

// Between two looks: the ends carry their own stamps, and whoever looks without a pause takes a core from the links.
constexpr std::chrono::microseconds k_pause{50};

/// The ports that this process listens on now and did not before.
std::vector<std::uint16_t> new_ports(const std::vector<std::uint16_t>& before) {
  std::vector<std::uint16_t> ports = listening_ports();
  std::erase_if(ports,
                [&](std::uint16_t port) { return std::find(before.begin(), before.end(), port) != before.end(); });
  return ports;
}

}  // namespace

TwoLinks::TwoLinks(const Settings& settings) : kind_(settings.kind), store_(need(Store::create("tcp://127.0.0.1:0"))) {
  if (settings.relayed) relay_ = std::make_unique<Relay>();
  for (Rank rank = 0; rank < 2; ++rank) {
    RuntimeOptions options;
    options.rank = rank;
    options.world_size = 2;
    options.store = store_->url();
    options.links = {settings.kind};
    options.tcp_links = 2;
    options.max_bandwidth = settings.bandwidth;
    options.stall = settings.stall;
    options.requests_max = 256;
    options.seed = rank + 1;
    // Whoever dials whom meets the relay.
    const std::uint16_t door = relay_ != nullptr ? relay_->open_door() : std::uint16_t{0};
    if (relay_ != nullptr) options.advertise = "127.0.0.1:" + std::to_string(door);
    const std::vector<std::uint16_t> before = listening_ports();
    ranks_[rank] = need(Runtime::create(options));
    if (relay_ != nullptr) {
      const std::vector<std::uint16_t> ports = new_ports(before);
      if (ports.size() != 1) give_up("a rank listens on " + std::to_string(ports.size()) + " ports instead of one");
      relay_->lead(door, ports.front());
    }
    regions_[rank] = need(ranks_[rank]->allocate(settings.bytes));
  }
  std::thread other([this] {
    const Rank zero[] = {0};
    need(ranks_[1]->exchange(std::span(&regions_[1], 1), zero, k_patience).front().result);
  });
  const Rank one[] = {1};
  auto answers = ranks_[0]->exchange(std::span(&regions_[0], 1), one, k_patience);
  other.join();
  need(answers.front().result);
  remote_ = answers.front().regions.front();
  need(ranks_[0]->prewarm(one, k_patience));
  const std::uint64_t until = now_ns() + std::chrono::nanoseconds(k_patience).count();
  while (links_up() < 2) {
    if (now_ns() > until) give_up("the two links did not come up");
    std::this_thread::yield();
  }
}

std::size_t TwoLinks::links_up() {
  const std::vector<LinkInfo> links = ranks_[0]->links();
  return static_cast<std::size_t>(std::count_if(links.begin(), links.end(), [this](const LinkInfo& link) {
    return link.rank == 1 && link.kind == kind_ && link.up;
  }));
}

struct Traffic::Slot {
  std::size_t at = 0;
  std::uint64_t seed = 0;
  bool open = false;
  bool marked = false;
  std::uint64_t marked_end = 0;
  Result<void> result{};                   // before `ended_at`
  std::atomic<std::uint64_t> ended_at{0};  ///< stored last by the callback, released; 0: under way
};

Traffic::Traffic(TwoLinks& pair, std::size_t slots, std::size_t slot_bytes) : pair_(pair), slot_bytes_(slot_bytes) {
  for (std::size_t i = 0; i < slots; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->at = i * slot_bytes;
  }
  ends_.reserve(1U << 20U);
}

Traffic::~Traffic() { drain(); }

void Traffic::post(Slot& slot) {
  slot.seed = ++seed_;
  slot.open = true;
  slot.ended_at.store(0, std::memory_order_relaxed);
  fill(pair_.local() + slot.at, slot_bytes_, slot.seed);
  const Callback callback{[](void* context, const Completion& completion) {
                            auto& ended = *static_cast<Slot*>(context);
                            ended.result = completion.result;
                            ended.ended_at.store(now_ns(), std::memory_order_release);
                          },
                          &slot};
  static_cast<void>(need(pair_.initiator().put(pair_.local() + slot.at, pair_.remote().at(slot.at), slot_bytes_,
                                               {.timeout = k_patience, .callback = callback})));
}

std::size_t Traffic::turn() {
  const std::size_t before = ends_.size();
  for (const auto& slot : slots_) {
    if (slot->open) {
      const std::uint64_t ended_at = slot->ended_at.load(std::memory_order_acquire);
      if (ended_at == 0) continue;
      need(slot->result);
      if (!verify(pair_.target() + slot->at, slot_bytes_, slot->seed)) {
        give_up("the bytes at the target are not the bytes that were put");
      }
      slot->open = false;
      if (slot->marked && slot->marked_end == 0) slot->marked_end = ended_at;
      ends_.push_back(ended_at);
    }
    if (!draining_) post(*slot);
  }
  return ends_.size() - before;
}

void Traffic::run(std::size_t ended) {
  const std::uint64_t goal = ends_.size() + ended;
  while (ends_.size() < goal) {
    if (turn() == 0) std::this_thread::sleep_for(k_pause);
  }
}

void Traffic::drain() {
  draining_ = true;
  const auto open = [](const auto& slot) { return slot->open; };
  while (std::any_of(slots_.begin(), slots_.end(), open)) {
    if (turn() == 0) std::this_thread::sleep_for(k_pause);
  }
  draining_ = false;
}

void Traffic::mark() {
  for (const auto& slot : slots_) {
    slot->marked = slot->open && slot->ended_at.load(std::memory_order_acquire) == 0;
    slot->marked_end = 0;
  }
}

std::uint64_t Traffic::marked_end() const {
  std::uint64_t last = 1;
  for (const auto& slot : slots_) {
    if (!slot->marked) continue;
    if (slot->marked_end == 0) return 0;
    last = std::max(last, slot->marked_end);
  }
  return last;
}

}  // namespace hixl::bench
