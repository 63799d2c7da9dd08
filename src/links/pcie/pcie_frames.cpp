// SPDX-License-Identifier: Apache-2.0
//
// Set-up of the cross-memory link: who the peer is, and whether its memory can really be reached.
#include <array>
#include <cerrno>

#include "base/log.hpp"
#include "links/pcie/pcie_link.hpp"
#include "links/pidfd.hpp"

namespace hixl::links {
namespace {

/// Board, lane page, process.
constexpr std::size_t k_pcie_offer_fds = 3;

/// What usually stands behind a refusal, for whoever reads the log.
const char* hint(std::int32_t os_error) noexcept {
  switch (os_error) {
    case EPERM:
      return "another user, a process that is not dumpable, or kernel.yama.ptrace_scope";
    case ENOSYS:
      return "the kernel or a seccomp filter lacks the call";
    case ESRCH:
      return "the peer is in another pid namespace";
    default:
      return "see the error number";
  }
}

}  // namespace

bool PcieLink::send_order(const Order& order) {
  switch (order.type) {
    case wire::FrameType::pcie_offer: {
      memory::Board& board = services_.regions.board();
      const std::array<int, k_pcie_offer_fds> fds{board.window().read_only_fd(), door_->window().fd(),
                                                  own_process_.get()};
      const auto address = reinterpret_cast<std::uint64_t>(&words_);
      return send_own(order.type, wire::PcieOffer{challenge_, board.regions_max(), address}, fds);
    }
    case wire::FrameType::pcie_ready:
      return send_own(order.type, wire::PcieReady{lane_->challenge()});
    default: {
      const ErrorCode code = refusal_ == 0 ? ErrorCode::ok : ErrorCode::transport_unavailable;
      return send_own(order.type,
                      wire::PcieProof{static_cast<std::uint16_t>(code), static_cast<std::uint32_t>(refusal_)});
    }
  }
}

Result<void> PcieLink::on_offer(ConstBytes body, std::vector<runtime::Fd>& fds) {
  wire::PcieOffer offer;
  if (!decode_body(body, offer) || fds.size() != k_pcie_offer_fds) return malformed(Stage::handshake);
  auto lane = open_lane({offer.challenge, offer.regions_max, fds[0], fds[1], fds[2]});
  if (!lane) return fail(lane.error());
  if (const Result<void> found = find_process(fds[2].get()); !found) return found;
  their_words_ = offer.word_address;
  accept_peer(std::move(*lane), std::move(fds[2]));
  return order(wire::FrameType::pcie_ready, 0);
}

/// The pidfd must mean the process at the other end of the socket: one that has more rights than its peer would else
/// write, on the peer's word, into a third process.
Result<void> PcieLink::find_process(int pidfd) {
  const std::int32_t pid = pid_of(pidfd);
  const std::int32_t connected = stream_->stream().credentials().pid;
  if (pid == 0 || connected == 0) {
    if (process_ended(pidfd)) return fail(ErrorCode::link_failed, {.stage = Stage::handshake, .os_error = ESRCH});
    refusal_ = ESRCH;
  } else if (pid != connected) {
    return fail(ErrorCode::access_denied, {.stage = Stage::handshake});
  }
  foreign_.emplace(pid, pidfd);
  return {};
}

/// The peer knows our process and has opened its gate: the try may begin.
Result<void> PcieLink::on_ready(ConstBytes body) {
  wire::PcieReady ready;
  if (!decode_body(body, ready) || lane_ == nullptr) return malformed(Stage::handshake);
  if (const Result<void> seen = check_answer(ready.challenge); !seen) return seen;
  if (refusal_ == 0) {
    const Result<bool> tried = try_words();
    if (!tried) return fail(tried.error());
    if (!*tried) return {};
  }
  if (const Result<void> told = order(wire::FrameType::pcie_proof, 0); !told) return told;
  if (refusal_ == 0) {
    proof_given_ = true;
    return {};
  }
  stream_->flush();  // so that the peer hears the reason, and not only that we left
  services_.loop.log().info({"cross-memory attach refused to rank", identity_.rank},
                            "link {} to rank {}: its memory cannot be reached by cross-memory attach, error {} ({})",
                            identity_.link_id, identity_.rank, refusal_, hint(refusal_));
  return fail(ErrorCode::transport_unavailable, {.stage = Stage::handshake, .os_error = refusal_});
}

/// Reads the question and writes its complement behind it. Gives an error only for a peer that lies or dies; a refusal
/// of the system is noted. False: the peer has closed its gate, so it is leaving, and its reason is on the way.
Result<bool> PcieLink::try_words() {
  using memory::ForeignMemory;
  std::uint64_t word = 0;
  auto* const bytes = reinterpret_cast<std::byte*>(&word);
  ForeignMemory::Moved moved;
  const auto outcome = lane_->run_unbound([&] {
    const memory::ForeignSegment question{bytes, their_words_, sizeof word};
    moved = foreign_->move(ForeignMemory::Direction::from_peer, memory::host_device(), {&question, 1});
    if (moved.outcome != ForeignMemory::Outcome::done) return;
    word = ~word;
    const memory::ForeignSegment answer{bytes, their_words_ + sizeof word, sizeof word};
    moved = foreign_->move(ForeignMemory::Direction::to_peer, memory::host_device(), {&answer, 1});
  });
  if (outcome != memory::Lane::Outcome::done) return false;
  switch (moved.outcome) {
    case ForeignMemory::Outcome::done:
      return true;
    case ForeignMemory::Outcome::refused:
      refusal_ = moved.os_error;
      return true;
    case ForeignMemory::Outcome::ended:
      if (!process_ended(pidfd())) {  // the pid means nobody here
        refusal_ = ESRCH;
        return true;
      }
      return fail(ErrorCode::link_failed, {.stage = Stage::handshake, .os_error = ESRCH});
    case ForeignMemory::Outcome::unmapped_there:
    case ForeignMemory::Outcome::unmapped_here:
      break;
  }
  return fail(ErrorCode::access_denied,
              {.stage = Stage::handshake, .os_error = moved.os_error, .address = their_words_});
}

Result<void> PcieLink::on_proof(ConstBytes body) {
  wire::PcieProof proof;
  if (up() || proof_seen_ || !answered_ || !decode_body(body, proof)) return malformed(Stage::handshake);
  const auto code = static_cast<ErrorCode>(proof.code);
  if (code != ErrorCode::ok) {
    const auto os_error = static_cast<std::int32_t>(proof.os_error);
    services_.loop.log().info({"cross-memory attach refused of rank", identity_.rank},
                              "link {} to rank {}: it cannot reach this process by cross-memory attach, error {} ({})",
                              identity_.link_id, identity_.rank, os_error, hint(os_error));
    return fail(ErrorCode::transport_unavailable, {.stage = Stage::handshake, .os_error = os_error});
  }
  // Written by the kernel for another process, which the compiler cannot know of.
  if (static_cast<volatile std::uint64_t&>(words_.answer) != ~words_.question) {
    return fail(ErrorCode::access_denied, {.stage = Stage::handshake});
  }
  proof_seen_ = true;
  finish_set_up();
  return {};
}

std::optional<Result<void>> PcieLink::handle_own(wire::FrameType type, ConstBytes body, std::vector<runtime::Fd>&) {
  if (type != wire::FrameType::pcie_proof) return std::nullopt;
  return on_proof(body);
}

}  // namespace hixl::links
