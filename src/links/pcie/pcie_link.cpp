// SPDX-License-Identifier: Apache-2.0
//
// Posts of the cross-memory link. Its set-up is in pcie_frames.cpp.
#include "links/pcie/pcie_link.hpp"

#include <algorithm>
#include <array>

#include "base/assert.hpp"
#include "links/remote_check.hpp"

namespace hixl::links {

const LinkCaps& pcie_caps() noexcept {
  static constexpr LinkCaps k_caps{.kind = LinkKind::pcie,
                                   .rank_of_choice = 20,  // behind windows, which small transfers reach by a store
                                   .chunk_bytes = memory::k_foreign_bytes_max,
                                   .needs_window = false,
                                   .target_passive = true,
                                   .same_host_only = true,
                                   .executed_by_initiator = true,
                                   .words = false,
                                   .host_memory_only = true};
  return k_caps;
}

PcieLink::PcieLink(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream, const LinkServices& services,
                   LinkEvents& events, CopyPool& pool)
    : HostLink(identity, std::move(stream), services, events, pool,
               {.offer = wire::FrameType::pcie_offer, .ready = wire::FrameType::pcie_ready}),
      words_{.question = services.loop.random().identity()} {
  begin();
}

PcieLink::~PcieLink() { let_go(); }

Answer PcieLink::post(const Post& post) {
  if (!up()) return Answer::busy;
  if (crowded()) return busy();
  if (post.verb != Verb::write && post.verb != Verb::read) return refuse(post, ErrorCode::unsupported);
  // All that the target would check, were it asked; the generation is looked at once more in the lane.
  const auto grant = check_remote(services_.remotes, post);
  if (!grant) return refuse(post, grant.error());
  const std::uint64_t bytes = total_bytes(post.segments);
  if (bytes <= k_short_bytes_max && take_turn_budget(bytes)) return post_short(post, grant->base, bytes);
  return post_long(post, grant->base);
}

Answer PcieLink::post_short(const Post& post, std::uint64_t base, std::uint64_t bytes) {
  using Direction = memory::ForeignMemory::Direction;
  std::array<memory::ForeignSegment, wire::k_segments_max> segments;
  HIXL_ASSERT(post.segments.size() <= segments.size());
  std::size_t count = 0;
  for (const Segment& segment : post.segments)
    segments[count++] = {segment.local, base + segment.offset, segment.bytes};
  const Direction direction = post.verb == Verb::write ? Direction::to_peer : Direction::from_peer;
  memory::ForeignMemory::Moved moved;
  const auto outcome = lane_->run(
      post.region, [&] { moved = foreign_->move(direction, post.device(), std::span(segments).first(count)); });
  if (outcome == memory::Lane::Outcome::crowded) return post_long(post, base);
  if (outcome != memory::Lane::Outcome::done) return refuse(post, code_of(outcome));
  if (moved.outcome != memory::ForeignMemory::Outcome::done) return refuse(post, error_of(moved, post.region));
  this->count(post.verb == Verb::write, bytes);
  return Answer::done;
}

Answer PcieLink::post_long(const Post& post, std::uint64_t base) {
  memory::CopyJob* const job = job_for(post);
  if (job == nullptr) return busy();
  job->foreign = &*foreign_;
  for (const Segment& segment : post.segments) {
    auto* const there = reinterpret_cast<std::byte*>(base + segment.offset);
    job->segments[job->segment_count++] = {segment.local, there, segment.bytes};
  }
  return submit(*job);
}

Error PcieLink::error_of(const memory::CopyJob& job) {
  if (job.outcome != memory::CopyJob::Outcome::foreign) return HostLink::error_of(job);
  return error_of(job.moved, job.region);
}

/// What a copy that went wrong means for its post. An unmapped range is the program's affair and harms nobody else;
/// when the kernel no longer lets us, or the process is gone, the link is over.
Error PcieLink::error_of(const memory::ForeignMemory::Moved& moved, RegionKey region) {
  using Outcome = memory::ForeignMemory::Outcome;
  ErrorDetail detail{.stage = Stage::transfer, .os_error = moved.os_error, .address = moved.address};
  switch (moved.outcome) {
    case Outcome::done:
      return Error();
    case Outcome::unmapped_there:
      detail.stage = Stage::remote_check;
      if (const auto grant = services_.remotes.grant(region)) {
        detail.nearest_base = grant->base;
        detail.nearest_length = grant->length;
        detail.length = grant->base + grant->length - moved.address;
      }
      return Error(ErrorCode::memory_unmapped, detail);
    case Outcome::unmapped_here:
      detail.stage = Stage::local_check;
      return Error(ErrorCode::memory_unmapped, detail);
    case Outcome::refused:
      break_down(Error(ErrorCode::transport_unavailable, detail));
      break;
    case Outcome::ended:
      break_down(Error(ErrorCode::link_failed, detail));
      break;
  }
  return Error(ErrorCode::link_failed, detail);
}

}  // namespace hixl::links
