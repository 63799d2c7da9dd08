// SPDX-License-Identifier: Apache-2.0
//
// Posts and regions of a window link. Its frames are in hccs_frames.cpp.
#include "links/hccs/hccs_link.hpp"

#include <algorithm>

namespace hixl::links {

namespace {

/// Blocks up to this size are copied by the loop also when a post of several has more than k_short_bytes_max in all: to
/// wake an engine takes longer than their copy (58 µs for a post of 24 blocks of 4 KiB on a 2-core virtual machine; the
/// copy takes 5). Above it an engine's head start counts: 32 blocks of 16 KiB are 25 µs of copying.
constexpr std::uint64_t k_block_bytes_max = 16U << 10U;

bool small_blocks(std::span<const Segment> segments) noexcept {
  return std::all_of(segments.begin(), segments.end(),
                     [](const Segment& segment) { return segment.bytes <= k_block_bytes_max; });
}

/// How many of the first segments make one stay in the lane: at least one.
std::size_t stay_of(std::span<const Segment> segments) noexcept {
  std::uint64_t bytes = segments.front().bytes;
  std::size_t count = 1;
  while (count < segments.size() && bytes + segments[count].bytes <= k_short_bytes_max) {
    bytes += segments[count++].bytes;
  }
  return count;
}

}  // namespace

const LinkCaps& hccs_caps() noexcept {
  static constexpr LinkCaps k_caps{.kind = LinkKind::hccs,
                                   .rank_of_choice = 10,
                                   .chunk_bytes = 1U << 20U,
                                   .needs_window = true,
                                   .target_passive = true,
                                   .same_host_only = true,
                                   .executed_by_initiator = true,
                                   .attaches = true};
  return k_caps;
}

HccsLink::HccsLink(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream, const LinkServices& services,
                   LinkEvents& events, CopyPool& pool)
    : HostLink(identity, std::move(stream), services, events, pool,
               {.offer = wire::FrameType::hccs_offer, .ready = wire::FrameType::hccs_ready}),
      windows_(services.remotes) {
  begin();
}

HccsLink::~HccsLink() { let_go(); }

// ---- posts ----

Answer HccsLink::post(const Post& post) {
  if (!up()) return Answer::busy;
  if (crowded()) return busy();
  std::byte* const mapped = services_.remotes.mapping(post.region);
  if (mapped == nullptr) return refuse(post, ErrorCode::stale);
  if (is_signal(post.verb) || is_atomic(post.verb)) return post_word(post, mapped);
  const std::uint64_t bytes = total_bytes(post.segments);
  if ((bytes <= k_short_bytes_max || small_blocks(post.segments)) && take_turn_budget(bytes)) {
    return post_short(post, mapped, bytes);
  }
  return post_long(post, mapped);
}

Answer HccsLink::post_word(const Post& post, std::byte* mapped) {
  std::byte* const word = mapped + post.segments.front().offset;
  if (reinterpret_cast<std::uintptr_t>(word) % sizeof(std::uint64_t) != 0) return refuse(post, ErrorCode::unaligned);
  std::uint64_t before = 0;
  const auto outcome = lane_->run(post.region, [&] {
    if (is_atomic(post.verb)) {
      before = apply_atomic(atomic_op(post.verb), memory::host_device(), word, post.value, post.atomic.expected);
    } else if (post.verb == Verb::signal_set) {
      memory::store_word(memory::host_device(), word, post.value);
    } else {
      memory::add_word(memory::host_device(), word, post.value);
    }
  });
  if (outcome == memory::Lane::Outcome::crowded) return busy();
  if (outcome != memory::Lane::Outcome::done) return refuse(post, code_of(outcome));
  bell_->ring();
  if (is_signal(post.verb)) return Answer::done;
  complete(post.cookie, Error(), before);
  return Answer::posted;
}

Answer HccsLink::post_short(const Post& post, std::byte* mapped, std::uint64_t bytes) {
  memory::Device& local = post.device();
  // A revoke waits for a stay in the lane, so each is as short as that of one short post.
  for (std::span<const Segment> left = post.segments; !left.empty();) {
    const std::span<const Segment> stay = left.first(stay_of(left));
    left = left.subspan(stay.size());
    const auto outcome = lane_->run(post.region, [&] {
      for (const Segment& segment : stay) {
        std::byte* const there = mapped + segment.offset;
        if (post.verb == Verb::write) {
          memory::copy(memory::host_device(), there, local, segment.local, segment.bytes);
        } else {
          memory::copy(local, segment.local, memory::host_device(), there, segment.bytes);
        }
      }
    });
    if (outcome == memory::Lane::Outcome::crowded) return post_long(post, mapped);
    if (outcome != memory::Lane::Outcome::done) return refuse(post, code_of(outcome));
  }
  count(post.verb == Verb::write, bytes);
  return Answer::done;
}

Answer HccsLink::post_long(const Post& post, std::byte* mapped) {
  memory::CopyJob* const job = job_for(post);
  if (job == nullptr) return busy();
  for (const Segment& segment : post.segments) {
    job->segments[job->segment_count++] = {segment.local, mapped + segment.offset, segment.bytes};
  }
  return submit(*job);
}

// ---- regions ----

Answer HccsLink::attach(const wire::RegionDescriptor& region) {
  if (region.window_id == 0) return Answer::done;  // not in a window: stays unmapped, other links serve it
  const auto step = windows_.attach(region);
  if (step && *step == PeerWindows::Step::mapped) return Answer::done;
  Result<void> asked{};
  if (!step) asked = fail(step.error());
  if (step && *step == PeerWindows::Step::request) asked = order(wire::FrameType::window_request, region.window_id);
  if (!asked) {
    attached_.push_back({region.key, asked});
    schedule_events();
  }
  return Answer::posted;
}

void HccsLink::drop_window(std::uint32_t window_id) {
  if (const Result<void> told = order(wire::FrameType::window_drop, window_id); !told) break_down(told.error());
}

}  // namespace hixl::links
