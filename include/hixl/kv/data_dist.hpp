// SPDX-License-Identifier: Apache-2.0
//
// DataDist (LLM-DataDist): KV caches between ranks. Knows how they lie, so that a program says "layers 0 to 32 of these
// tokens" and not addresses. Stands on one Runtime and uses its public interface only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <hixl/kv/cache.hpp>
#include <hixl/kv/lease.hpp>
#include <hixl/kv/transfer.hpp>
#include <hixl/result.hpp>
#include <hixl/runtime.hpp>

namespace hixl::kv {

/// What a rank does with KV: a prefill's caches are pulled, and it pushes; a decode pulls, and is pushed to.
enum class Role : std::uint8_t { prefill = 1, decode = 2, both = 3 };

enum class LinkState : std::uint8_t {
  none,           ///< no link was made, or this rank has unlinked
  linked,         ///< both have
  peer_unlinked,  ///< the other one has unlinked
  peer_lost,      ///< that life of the other rank, or the session with it, is over
};

/// Bounds of what this rank keeps for others to see: about 1 MiB with these defaults.
struct DataDistOptions {
  Role role = Role::both;
  std::chrono::milliseconds default_timeout{30'000};  ///< 1 ms … 1 h, for calls that name none; as the runtime's own
  std::uint32_t caches_max = 32;                      ///< 1 … 4 096 registered at a time
  std::uint32_t tensors_max = 512;                    ///< 1 … 65 536 tensors of one cache: 2 × 128 layers and room
  std::uint32_t links_max = 64;                       ///< 1 … 4 096 ranks linked in this life
  std::uint32_t leases_max = 256;                     ///< 1 … 65 536 open to each linked rank
  std::uint32_t arrivals_max = 64;                    ///< 0 … 4 096 leases with layer arrivals
  std::uint32_t sequences_max = 65'536;  ///< 1 … 16 777 216 remembered; the one used longest ago gives way
};

/// Owner: the program; one to a runtime, which must outlive close(). Thread-safe. Calls with a timeout block, and
/// answer WOULD_DEADLOCK on the loop thread; push, pull, grant, end_lease, release and all queries do not block.
/// Callbacks run on the loop thread. It keeps one thread, which sleeps but for leases, deadlines and what found no
/// room. Close: close(), or destruction (at most 5 s). In a forked child everything answers FORKED.
class DataDist {
 public:
  /// BUSY: the runtime has one. INVALID_ARGUMENT: an option outside its range (length: which one, counted from 0).
  /// Errors of Runtime::allocate().
  [[nodiscard]] static Result<std::unique_ptr<DataDist>> open(Runtime& runtime, const DataDistOptions& options = {});
  ~DataDist();
  DataDist(const DataDist&) = delete;
  DataDist& operator=(const DataDist&) = delete;
  /// Unlinks all, ends leases, open transfers and what other threads wait for (STOPPED); returns when no other rank
  /// touches anything any more and no thread is inside a call, or with DEADLINE_EXCEEDED: then the directory may stay
  /// with the runtime, which has to outlive those calls too. A second call gives the first one's answer.
  [[nodiscard]] Result<void> close(Timeout timeout = std::chrono::seconds(5));

  // ---- caches ----
  /// Names memory of this rank a cache, and tells the linked ranks; one that stands still hears of it later. `tensors`:
  /// each, layer by layer, K before V; or one place from which all follow each other. The memory stays the program's,
  /// and must stay registered until unregister_cache(). ALREADY_EXISTS, LIMIT_REACHED, INVALID_ARGUMENT (layout, shard,
  /// number of tensors; entry: which one), OUT_OF_RANGE (a tensor beyond its region), DEADLINE_EXCEEDED.
  [[nodiscard]] Result<CacheId> register_cache(const CacheDesc& desc, std::span<const TensorPlace> tensors,
                                               Timeout timeout = k_default_timeout);
  /// After success nobody reads or writes it any more, by this registration. What begins later gets CACHE_STALE at
  /// once; what is under way ends first. DEADLINE_EXCEEDED: it still does; call again. CACHE_STALE: was over before.
  [[nodiscard]] Result<void> unregister_cache(const CacheId& cache, Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<CacheDesc> describe(const CacheId& cache) const;

  // ---- links ----
  /// Each rank that wants to be linked names the other; no order is needed. One answer a rank. A life that ended, or a
  /// rank that unlinked, is linked anew by both. Linked already: success.
  [[nodiscard]] std::vector<Result<void>> link(std::span<const Rank> ranks, Timeout timeout = k_default_timeout);
  /// Begins nothing new with that rank, either way (NOT_LINKED); what is under way may end until the timeout, then ours
  /// is cancelled. Leases to it end. DEADLINE_EXCEEDED: a transfer of theirs is still under way; call again.
  [[nodiscard]] Result<void> unlink(Rank rank, Timeout timeout = k_default_timeout);
  [[nodiscard]] LinkState link_state(Rank rank) const;

  [[nodiscard]] Role role() const noexcept;
  /// New transfers are judged by the new role at once, here and at peers (WRONG_ROLE); those that it forbids and are
  /// under way end first. DEADLINE_EXCEEDED: some have not, and the role is switched none the less.
  [[nodiscard]] Result<void> switch_role(Role role, Timeout timeout = k_default_timeout);

  /// The registration that stands now; waits for word of its regions. CACHE_UNKNOWN, NOT_LINKED, PEER_LOST, …
  [[nodiscard]] Result<RemoteCache> find(Rank rank, const CacheKey& key, Timeout timeout = k_default_timeout);

  // ---- moving ----
  /// From a cache of this rank into another's, and the other way round. All is checked before a byte moves:
  /// LAYOUT_MISMATCH (numbers of another size, other head_dim, MLA or not, another model's layers or heads; the text
  /// shows both), OUT_OF_RANGE (blocks: address the block, entry its place; layers, heads, tokens), INVALID_ARGUMENT (a
  /// block twice; nothing to do with `layers` or `heads`), CACHE_STALE, NOT_LINKED, WRONG_ROLE, LEASE_ENDED. No bytes
  /// are staged. BUSY: no room now, or another transfer of the same sequence is open.
  [[nodiscard]] Result<Transfer> push(const CacheId& from, const RemoteCache& to, const Slice& slice,
                                      const TransferOptions& options = {});
  [[nodiscard]] Result<Transfer> pull(const CacheId& to, const RemoteCache& from, const Slice& slice,
                                      const TransferOptions& options = {});
  /// The sequence has only so many tokens left (a draft was rejected): what comes after them moves again.
  void rewind(std::uint64_t sequence, std::uint32_t tokens);

  // ---- leases, owner's side ----
  /// NOT_LINKED, PEER_LOST, CACHE_STALE, WRONG_ROLE, LIMIT_REACHED, INVALID_ARGUMENT, OUT_OF_RANGE (a block).
  [[nodiscard]] Result<Lease> grant(const CacheId& cache, const LeaseOptions& options);
  [[nodiscard]] Result<void> extend(const LeaseId& lease, std::chrono::milliseconds time);  ///< from now. LEASE_ENDED
  [[nodiscard]] Result<void> end_lease(const LeaseId& lease);  ///< LeaseHook tells when. LEASE_ENDED: did before
  [[nodiscard]] LeaseState lease_state(const LeaseId& lease) const;
  /// Whether all bytes of that layer (the model's number) are here, and waiting for it; also after the lease has ended,
  /// until end_lease() or until its place is needed. LEASE_ENDED when it has ended without that layer; INVALID_ARGUMENT
  /// without layer_arrivals; OUT_OF_RANGE.
  [[nodiscard]] Result<bool> layer_arrived(const LeaseId& lease, std::uint32_t layer) const;
  [[nodiscard]] Result<void> wait_layer(const LeaseId& lease, std::uint32_t layer, Timeout timeout = k_default_timeout);
  // ---- holder's side ----
  /// Gives the lease back; the owner frees the blocks when what this rank has under way in them has ended. Never
  /// blocks; what finds no room is sent later.
  [[nodiscard]] Result<void> release(const LeaseTicket& ticket);

  class State;

 private:
  explicit DataDist(std::shared_ptr<State> state) noexcept;
  std::shared_ptr<State> state_;
};

}  // namespace hixl::kv
