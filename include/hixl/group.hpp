// SPDX-License-Identifier: Apache-2.0
//
// Group: some ranks that work together (a communicator), with a barrier of their own and, if wanted, a link choice of
// their own. Made by Runtime::create_group().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <hixl/memory.hpp>
#include <hixl/request.hpp>
#include <hixl/result.hpp>
#include <hixl/transfer.hpp>
#include <hixl/types.hpp>

namespace hixl {

/// All members have to give the same ones.
struct GroupOptions {
  /// Link kinds that the group's transfers may take, among those of the runtime. Empty: all of them.
  LinkSet links{};
  /// Deadline of the group's calls that name none; 1 ms … 1 h. 0: as the runtime.
  std::chrono::milliseconds default_timeout{0};
  /// Tells groups apart that are being made at the same time: a rank has one create call open for each tag (BUSY).
  std::uint32_t tag = 0;
};

/// Owner: the program. A group holds exactly the lives that made it: when one of them dies, or counts as dead because
/// its lease has ended, barriers end with PEER_LOST from then on, and the group is to be made again, with other members
/// if need be. A group made again is another group; nothing of the earlier one reaches it.
/// Threads: every function but moving may be called from any thread.
/// Close: close() or destruction, never blocking. After it, or of an empty Group: INVALID_ARGUMENT. After the
/// runtime's stop: STOPPED; a Group may outlive its runtime. In a forked child: FORKED, and destruction releases
/// nothing.
class Group {
 public:
  Group();  ///< empty
  ~Group();
  Group(Group&& other) noexcept;
  Group& operator=(Group&& other) noexcept;

  // ---- members; ranks are those of the world unless it says otherwise ----
  [[nodiscard]] std::uint32_t size() const noexcept;           ///< 0: empty
  [[nodiscard]] Rank rank() const noexcept;                    ///< this rank's place inside the group
  [[nodiscard]] Rank world_rank(Rank place) const noexcept;    ///< k_no_rank: there is no such place
  [[nodiscard]] std::span<const Rank> ranks() const noexcept;  ///< in the order given at creation

  // ---- together ----
  /// Nobody leaves before the last has entered. DEADLINE_EXCEEDED names the missing ranks, PEER_LOST the dead one,
  /// PEER_GONE one that has closed the group; CANCELLED: closed meanwhile. Says nothing about transfers: flush first.
  /// Blocking.
  [[nodiscard]] Result<void> barrier(Timeout timeout = k_default_timeout);
  /// The same without blocking, as Runtime's: an error has begun nothing, else `done` is called once on the loop
  /// thread.
  [[nodiscard]] Result<void> barrier_async(Timeout timeout, Done done, void* context);
  /// Runtime::exchange() with all members in this group, this rank too; answers in the group's order. Blocking.
  [[nodiscard]] std::vector<PeerAddresses> exchange(std::span<const Region> mine, Timeout timeout = k_default_timeout);
  /// The same with some members only, who do it with this rank; one that is no member is INVALID_ARGUMENT.
  [[nodiscard]] std::vector<PeerAddresses> exchange_with(std::span<const Region> mine, std::span<const Rank> with,
                                                         Timeout timeout = k_default_timeout);

  // ---- transfers: as Runtime's, to members only (INVALID_ARGUMENT names the rank), over the group's links ----
  [[nodiscard]] Result<Request> put(const void* local, const RemoteAddress& remote, std::uint64_t size,
                                    const OpOptions& options = {});
  [[nodiscard]] Result<Request> get(void* local, const RemoteAddress& remote, std::uint64_t size,
                                    const OpOptions& options = {});
  [[nodiscard]] Result<void> put_sync(const void* local, const RemoteAddress& remote, std::uint64_t size,
                                      Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<void> get_sync(void* local, const RemoteAddress& remote, std::uint64_t size,
                                      Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<Request> put_with_signal(const void* local, const RemoteAddress& remote, std::uint64_t size,
                                                const Signal& signal, const OpOptions& options = {});
  [[nodiscard]] Result<Request> batch(std::span<const BatchEntry> entries, const OpOptions& options = {});
  [[nodiscard]] Result<Request> batch_with_signal(std::span<const BatchEntry> entries, const Signal& signal,
                                                  const OpOptions& options = {});
  [[nodiscard]] Result<Request> put_gathered(std::span<const LocalPiece> pieces, const RemoteAddress& remote,
                                             const OpOptions& options = {});
  [[nodiscard]] Result<Request> get_scattered(std::span<const LocalPiece> pieces, const RemoteAddress& remote,
                                              const OpOptions& options = {});
  [[nodiscard]] Result<Request> put_strided(const Strided& strided, const OpOptions& options = {});
  [[nodiscard]] Result<Request> get_strided(const Strided& strided, const OpOptions& options = {});
  /// Ends when everything that this rank posted to `rank` before it has ended, in this group and outside.
  [[nodiscard]] Result<void> flush(Rank rank, Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<Request> flush_async(Rank rank, const OpOptions& options = {});
  /// As Runtime's: orders all that this rank posts to `rank`, in this group and outside.
  [[nodiscard]] Result<Request> fence(Rank rank, const OpOptions& options = {});

  /// Ends this rank's membership. Open barriers of it end with CANCELLED here, with PEER_GONE at the others.
  void close();

 private:
  friend class Runtime;
  class State;
  void leave() noexcept;
  explicit Group(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace hixl
