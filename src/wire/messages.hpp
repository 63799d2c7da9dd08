// SPDX-License-Identifier: Apache-2.0
//
// Bodies of the control frames between two peers. Each has encode(message, writer) and decode(reader, message&):
// decode is false for bytes that are not this message, whole, within its limits; it then leaves no state behind.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "wire/frame.hpp"

namespace hixl::wire {

// Limits that decode() enforces; the same as the widest ranges of RuntimeOptions.
inline constexpr std::uint32_t k_world_size_max = 65'536;
inline constexpr std::uint32_t k_depth_max = 1'024;
inline constexpr std::uint32_t k_lease_ms_max = 60'000;
inline constexpr std::uint32_t k_regions_max = 1U << 20U;

/// Which sequenced frames of one link generation a target has executed: bit i stands for `highest - i`. A refused
/// or half-arrived frame is not executed. 1024 bits: the largest tx_depth.
struct ExecutedSet {
  LinkSeq highest = 0;
  std::array<std::uint64_t, 16> bits{};

  /// Notes that `seq` (higher than any before) arrived whole and whether it was executed. Numbers that were passed
  /// over count as not executed.
  void record(LinkSeq seq, bool executed) noexcept;
  /// False for 0, for anything above `highest`, for refused ones, and for anything 1024 or more below `highest`
  /// (those were acknowledged long ago and are never asked for).
  [[nodiscard]] bool contains(LinkSeq seq) const noexcept;
  friend bool operator==(const ExecutedSet&, const ExecutedSet&) = default;
};

/// First frame of the side that dials.
struct Hello {
  PeerId peer_id{};             ///< of the dialler
  Incarnation incarnation = 0;  ///< of the dialler
  Birth birth = 0;              ///< of the dialler: a rank's higher one is its newer life
  Rank rank = 0;
  std::uint32_t world_size = 0;
  PeerId target_peer_id{};  ///< whom it means to reach: a stranger on a reused port refuses
  Incarnation target_incarnation = 0;
  SessionId session = 0;  ///< the newest session that the dialler knows with the target; 0: none
  std::uint8_t join = 0;  ///< 1: joins that session; 0: asks for a new one
  LinkId link_id = 0;
  LinkKind kind = LinkKind::tcp;
  LinkGen link_gen = 0;        ///< the generation that this connection opens
  std::uint64_t features = 0;  ///< feature bits; none yet
  std::uint32_t lease_ms = 0;  ///< the lease by which the dialler wants to be judged
  std::uint32_t tx_depth = 0;
  std::uint32_t rx_depth = 0;
  ExecutedSet executed;      ///< what the dialler executed of the target's frames in the generation before
  LinkGen executed_gen = 0;  ///< … which generation that was; 0: none
  LinkGen opened_gen = 0;    ///< the newest generation that the dialler had opened when it said this
};

/// Answer: the connection stands.
struct Welcome {
  PeerId peer_id{};
  Incarnation incarnation = 0;
  Birth birth = 0;
  Rank rank = 0;
  SessionId session = 0;
  LinkGen link_gen = 0;
  std::uint64_t features = 0;
  std::uint32_t lease_ms = 0;
  std::uint32_t tx_depth = 0;
  std::uint32_t rx_depth = 0;
  ExecutedSet executed;  ///< what the acceptor executed of the dialler's frames in the generation before
  LinkGen executed_gen = 0;
};

/// Answer: no. The connection is closed after it.
enum class RejectReason : std::uint16_t {
  wrong_peer = 1,
  wrong_incarnation = 2,
  old_session = 3,
  old_generation = 4,
  duplicate_dial = 5,
  dead = 6,
  too_many = 7,
  shutting_down = 8,
  bad_rank = 9,
  kind_off = 10,
  not_joined = 11,  ///< its claim of the rank has not been answered yet: it does not know its own birth
};
struct Reject {
  RejectReason reason = RejectReason::wrong_peer;
  PeerId peer_id{};  ///< who answers
  Incarnation incarnation = 0;
  SessionId session = 0;  ///< the newest session that the answerer knows with this dialler
  LinkGen link_gen = 0;   ///< the newest generation of that link
};

struct WireSegment {
  std::uint64_t offset = 0;  ///< inside the region; an address never travels
  std::uint32_t bytes = 0;
};
/// Body of write (payload follows: the segments' bytes in order) and of read (read_data answers, same order).
struct Access {
  RegionKey region{};
  Token token{};
  std::uint32_t segment_count = 0;  ///< 1 … k_segments_max
  std::array<WireSegment, k_segments_max> segments;
  [[nodiscard]] std::uint64_t total_bytes() const noexcept;
};
/// Body of read_data: which read it answers. Its bulk payload is the data.
struct ReadData {
  LinkSeq read_seq = 0;
};
struct SignalBody {
  RegionKey region{};
  Token token{};
  std::uint64_t offset = 0;
  std::uint64_t value = 0;
  std::uint8_t add = 0;  ///< 0: set, 1: add
};
enum class AtomicOp : std::uint8_t { add = 0, swap = 1, compare_swap = 2 };
/// Changes one aligned 8-byte word, exactly once whatever happens to links: the target remembers the answer under
/// `number` until the initiator has got it. Answered by atomic_result, or by a nack: then it was not executed.
struct AtomicBody {
  RegionKey region{};
  Token token{};
  std::uint64_t offset = 0;
  AtomicSeq number = 0;      ///< of the initiator's incarnation, over all links and sessions
  AtomicSeq acked_upto = 0;  ///< the initiator asks for none of these any more; below `number`
  AtomicOp op = AtomicOp::add;
  std::uint64_t value = 0;     ///< addend, or the new value
  std::uint64_t expected = 0;  ///< of compare_swap; else 0
  std::uint8_t ask = 0;        ///< 1: only asks; if it was never executed it never will be (nack CANCELLED)
};
struct AtomicResult {
  LinkSeq seq = 0;          ///< which atomic it answers
  std::uint64_t value = 0;  ///< of the word before
};
/// All sequenced frames up to here have arrived whole, and were executed or refused by a nack sent earlier.
struct Ack {
  LinkSeq upto = 0;
};
struct Nack {
  LinkSeq seq = 0;
  std::uint16_t code = 0;  ///< ErrorCode
  std::uint64_t address = 0, length = 0, nearest_base = 0, nearest_length = 0, limit = 0;
};

struct FenceRequest {
  LinkId link_id = 0;
  LinkGen link_gen = 0;      ///< the generation to fence
  std::uint16_t reason = 0;  ///< ErrorCode, for the log
  ExecutedSet executed;      ///< the asker's own side of that generation, already closed
};
struct FenceAnswer {
  LinkId link_id = 0;
  LinkGen link_gen = 0;
  ExecutedSet executed;
};

struct RegionDescriptor {
  RegionKey key{};
  Token token{};
  std::uint64_t base = 0;
  std::uint64_t length = 0;
  Rights rights = Rights::none;
  std::uint32_t tag = 0;
  std::uint32_t window_id = 0;         ///< 0: not in a window
  std::uint64_t window_offset = 0;     ///< where `base` lies in the window
  MemoryKind kind = MemoryKind::host;  ///< whether the owner's CPU may touch it: no kind but host can be signalled
};
inline constexpr std::size_t k_descriptors_max = 1000;  ///< in one exchange frame
/// What an exchange of regions is for.
enum class ExchangeNote : std::uint8_t {
  exchange = 0,  ///< of a program that waits for the peer's; `group` names the group in which it is made, 0: in none
  told = 1,      ///< unasked, or once more after a lost session: answers nothing
  question = 2,  ///< of nothing: for all that the peer offers, as soon as it offers something of the tag in `group`
  answer = 3,    ///< to the question with the tag in `group`
};
struct Exchange {
  std::uint64_t number = 0;  ///< the sender's count of exchanges with this peer, from 1
  std::uint32_t first = 0;   ///< index of the first descriptor of this frame
  std::uint32_t total = 0;   ///< of the whole exchange
  ExchangeNote note = ExchangeNote::exchange;
  std::uint64_t group = 0;
  std::vector<RegionDescriptor> regions;
};
struct ExchangeAck {
  std::uint64_t number = 0;
};
/// A set of ranks: bit r % 64 of word r / 64.
inline constexpr std::size_t k_rank_words_max = k_world_size_max / 64;
/// What a barrier message says. The collector of a group is its lowest rank.
enum class BarrierNote : std::uint8_t {
  arrived = 0,   ///< to the collector: this life has entered `number`; 1: it is new to the group, and asks which it is
  ask = 1,       ///< the same, and an answer is wanted
  next = 2,      ///< from the collector: `number` is the one being collected, `ranks` have entered it
  released = 3,  ///< from the collector: everybody has entered `number`
  lost = 4,      ///< from the collector: calls up to `call` end with `code` and `rank`; to it: that life has ended
  poll = 5,      ///< which number have you entered?
  entered = 6,   ///< the answer to a poll
  gone = 7,      ///< the sender is not in that group, or no longer
};
struct Barrier {
  std::uint64_t group = 0;   ///< made groups: drawn at their creation, top bit set. Others: hash of the sorted ranks
  std::uint64_t number = 0;  ///< this group's barriers, from 1; 0: none
  std::uint64_t call = 0;    ///< the member's count of barrier calls in this group
  BarrierNote note = BarrierNote::arrived;
  Rank rank = 0;                     ///< of `lost`
  std::uint64_t incarnation = 0;     ///< of `lost`
  std::uint16_t code = 0;            ///< ErrorCode of `lost`
  std::uint8_t page = 0;             ///< of `released`: 1: from here on the group's barriers go by its page
  std::vector<std::uint64_t> ranks;  ///< of `next`
};

/// Members of a group that is made: an answer to all of them fits one frame.
inline constexpr std::size_t k_group_size_max = 4'096;
enum class JoinNote : std::uint8_t {
  join = 0,      ///< to the collector: the sender's create call is open; an answer is wanted
  withdraw = 1,  ///< to the collector: that call has ended
  probe = 2,     ///< to anybody: is such a call open at your side?
};
/// One member's wish to make a group. Members have to agree on all but `call`.
struct GroupJoin {
  JoinNote note = JoinNote::join;
  std::uint32_t tag = 0;      ///< tells creates apart that are open at once
  std::uint64_t call = 0;     ///< the sender's count of create calls
  std::uint64_t list = 0;     ///< hash of the ranks in their order
  std::uint64_t options = 0;  ///< hash of the options
};
struct GroupAnswer {
  std::uint32_t tag = 0;
  std::uint64_t call = 0;                   ///< of the receiver
  std::uint64_t group = 0;                  ///< name of the group that was made; 0: none
  std::uint16_t code = 0;                   ///< ErrorCode; BUSY: not yet, `ranks` are there
  Rank rank = 0;                            ///< whom the error is about
  std::vector<std::uint64_t> ranks;         ///< who is there
  std::vector<std::uint64_t> incarnations;  ///< of all members, in the group's order
  // Where the group's page is, for those on the collector's host; process 0: there is none.
  std::uint64_t page_process = 0;
  std::uint32_t page_descriptor = 0;
  std::uint64_t page_challenge = 0;
};
struct Bye {
  std::uint16_t code = 0;  ///< ErrorCode: ok for an ordered leave
};

/// hccs: what each side hands the other after the handshake, with file descriptors beside it, in this order:
/// board (read-only), lane page, signal page, pidfd.
struct HccsOffer {
  std::uint64_t challenge = 0;    ///< also written into the lane page by the sender: proves shared memory
  std::uint32_t regions_max = 0;  ///< entries of the board
};
struct HccsReady {
  std::uint64_t challenge = 0;  ///< what the receiver of the offer read from the page
};
struct WindowRequest {
  std::uint32_t window_id = 0;
};
/// With one file descriptor, or none and code != ok.
struct WindowBody {
  std::uint32_t window_id = 0;
  std::uint64_t bytes = 0;
  std::uint16_t code = 0;
};

/// pcie: the same with file descriptors for board (read-only), lane page and pidfd; and a place to try on.
struct PcieOffer {
  std::uint64_t challenge = 0;     ///< also written into the lane page by the sender
  std::uint32_t regions_max = 0;   ///< entries of the board
  std::uint64_t word_address = 0;  ///< in the sender: 8 bytes to read, then 8 bytes for their complement
};
struct PcieReady {
  std::uint64_t challenge = 0;  ///< what the receiver of the offer read from the page; the try may begin
};
/// What came of reading and writing the receiver's words.
struct PcieProof {
  std::uint16_t code = 0;  ///< ErrorCode
  std::uint32_t os_error = 0;
};

/// roce: an address of a port, in network order as it stands there.
struct RoceGid {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const RoceGid&, const RoceGid&) = default;
};
inline constexpr std::size_t k_roce_gids_max = 8;
inline constexpr std::size_t k_roce_name_max = 80;
/// The dialler's says what it has; the acceptor's answer what both use: one address of its own, and which of the
/// dialler's.
struct RoceOffer {
  std::uint32_t queue_pair = 0;     ///< 2 … 24 bits
  std::uint32_t packet_number = 0;  ///< 24 bits, random: of the first packet that the sender sends
  std::uint8_t mtu = 1;             ///< of its port: 1 (256 bytes) … 5 (4096 bytes)
  std::uint8_t reads_out = 0;       ///< RDMA reads that it would have open at once
  std::uint8_t reads_in = 0;        ///< … and that it answers at once
  std::uint8_t chosen = 0;          ///< of the answer: which of the dialler's addresses
  std::uint64_t page_address = 0;   ///< of the sender's page: progress word, challenge
  std::uint32_t page_key = 0;
  std::uint64_t challenge = 0;  ///< also written into the page: who reads it there has reached the sender
  std::string name;             ///< device and port, for logs
  std::vector<RoceGid> gids;    ///< 1 … k_roce_gids_max, none of them zero
};
/// The sender has read the receiver's page; or could not, and why.
struct RoceReady {
  std::uint16_t code = 0;      ///< ErrorCode
  std::uint32_t os_error = 0;  ///< errno, or the negative status of a work completion
};
/// By which key may this region be reached?
struct RoceAsk {
  RegionKey key{};
  Token token{};
};
struct RoceKey {
  RegionKey key{};
  std::uint16_t code = 0;  ///< ErrorCode; not ok: it cannot be reached by this link
  std::uint32_t os_error = 0;
  std::uint64_t limit = 0;
  std::uint32_t remote_key = 0;
  std::uint64_t address = 0;  ///< of its first byte
};
/// roce_drop: the region is closed, use its key no more. roce_dropped: it is not in use any more.
struct RoceDrop {
  RegionKey key{};
};

#define HIXL_WIRE_MESSAGES(X)                                                                                        \
  X(Hello)                                                                                                           \
  X(Welcome) X(Reject) X(Access) X(ReadData) X(SignalBody) X(Ack) X(Nack) X(FenceRequest) X(FenceAnswer) X(Exchange) \
      X(ExchangeAck) X(Barrier) X(GroupJoin) X(GroupAnswer) X(Bye) X(HccsOffer) X(HccsReady) X(WindowRequest)        \
          X(WindowBody) X(AtomicBody) X(AtomicResult)
#define HIXL_WIRE_PCIE_MESSAGES(X) X(PcieOffer) X(PcieReady) X(PcieProof)
#define HIXL_WIRE_ROCE_MESSAGES(X) X(RoceOffer) X(RoceReady) X(RoceAsk) X(RoceKey) X(RoceDrop)

#define HIXL_WIRE_DECLARE(Message)                               \
  void encode(const Message& message, ByteWriter& out) noexcept; \
  [[nodiscard]] bool decode(ByteReader& in, Message& message);
HIXL_WIRE_MESSAGES(HIXL_WIRE_DECLARE)
HIXL_WIRE_PCIE_MESSAGES(HIXL_WIRE_DECLARE)
HIXL_WIRE_ROCE_MESSAGES(HIXL_WIRE_DECLARE)
#undef HIXL_WIRE_DECLARE

/// Decodes a whole body; nothing may be left over.
template <class Message>
[[nodiscard]] bool decode_body(ConstBytes body, Message& message) {
  ByteReader reader(body);
  if (decode(reader, message) && reader.complete()) return true;
  message = Message{};
  return false;
}

}  // namespace hixl::wire
