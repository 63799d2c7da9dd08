// SPDX-License-Identifier: Apache-2.0
//
// Errors of the library: one list of codes, what a caller should do about each, and the plain numbers that
// say what happened where. An Error is a small value; its text is made only when somebody asks for it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace hixl {

/// A rank's number, 0 … world_size - 1.
using Rank = std::uint32_t;
inline constexpr Rank k_no_rank = 0xffffffffU;
inline constexpr std::uint32_t k_no_entry = 0xffffffffU;

/// What the caller should do. Stable numbers.
enum class ErrorKind : std::uint8_t {
  none = 0,
  retry_later = 1,      ///< nothing is wrong; there was no room or no time. Try again.
  reconnect = 2,        ///< the peer or its session is gone; the library reconnects, old handles are stale.
  give_up = 3,          ///< the world does not allow it (a limit, a missing device). Change the set-up.
  fix_call = 4,         ///< the call is wrong. Change the program.
  outcome_unknown = 5,  ///< the effect may or may not have happened.
};

// name, number, kind, what happened, remedy. Numbers are wire- and C-stable and never used twice.
#define HIXL_ERROR_CODES(X)                                                                                      \
  X(ok, 0, none, "success", "nothing to do")                                                                     \
  X(invalid_argument, 1, fix_call, "an argument is outside its range", "pass a value inside the stated range")   \
  X(not_registered, 10, fix_call, "the address is not in any registered region",                                 \
    "register the memory, or allocate() it, before using it")                                                    \
  X(out_of_range, 11, fix_call, "the range starts inside a region and ends outside it",                          \
    "keep address + length inside one region")                                                                   \
  X(stale, 12, reconnect, "the region was deregistered or belongs to an earlier life of its rank",               \
    "exchange addresses again and use the new region")                                                           \
  X(access_denied, 13, fix_call, "the region does not grant this access",                                        \
    "register the region with the right that the operation needs")                                               \
  X(not_exchanged, 14, fix_call, "no region of that rank is known here", "call exchange() with that rank first") \
  X(unaligned, 15, fix_call, "the address is not aligned as the operation needs", "align the word to 8 bytes")   \
  X(overlap, 16, fix_call, "two ranges overlap that must not",                                                   \
    "keep the signal word outside the data, and a stride at least as long as its block")                         \
  X(would_deadlock, 20, fix_call, "a blocking call was made on the thread that runs the loop",                   \
    "use the asynchronous form there, or another thread")                                                        \
  X(invalid_request, 21, fix_call, "the request is empty or from an earlier life of its slot",                   \
    "keep the request that saw the end; it remembers the result")                                                \
  X(stopped, 22, fix_call, "the runtime has been stopped", "create a new runtime")                               \
  X(forked, 23, fix_call, "the runtime belongs to the parent process", "create a runtime in the child")          \
  X(invalid_handle, 24, fix_call, "the handle is none of this library's, or what it named is closed",            \
    "pass handles as they were given, and none after its close")                                                 \
  X(rank_conflict, 30, fix_call, "another live process holds this rank", "give every process a rank of its own") \
  X(rank_out_of_range, 31, fix_call, "the rank is not below the world size", "use a rank below the world size")  \
  X(rendezvous_unreachable, 32, retry_later, "the rendezvous store did not answer",                              \
    "start the store, and check its address (HIXL_STORE)")                                                       \
  X(address_in_use, 33, give_up, "the address or port is taken by another socket",                               \
    "choose another port, or 0 for a free one")                                                                  \
  X(host_unresolved, 34, give_up, "the host name has no address", "check the name, /etc/hosts and DNS")          \
  X(connect_timeout, 35, retry_later, "no connection within the time allowed",                                   \
    "check that the peer runs and no firewall drops its port")                                                   \
  X(connect_refused, 36, retry_later, "nobody listens at that address", "start the peer, or check its port")     \
  X(no_route, 37, give_up, "the network has no route to that address", "check addresses and routes")             \
  X(security_required, 38, fix_call, "an address beyond loopback needs a key",                                   \
    "bind to loopback, or set insecure = true if the network is trusted")                                        \
  X(version_mismatch, 39, give_up, "the peer speaks another protocol version", "run one version everywhere")     \
  X(handshake_failed, 40, reconnect, "the peer ended the handshake", "see the peer's log for its reason")        \
  X(wrong_peer, 41, reconnect, "another process answers at the peer's address",                                  \
    "wait until the peer publishes its new address")                                                             \
  X(address_not_local, 42, give_up, "the address to listen on is not one of this host",                          \
    "use an address that `ip address` shows here")                                                               \
  X(family_mismatch, 43, give_up, "one side has only IPv4 and the other only IPv6",                              \
    "use one family on both sides (HIXL_BIND, HIXL_ADVERTISE)")                                                  \
  X(wrong_job, 44, fix_call, "another job uses this store",                                                      \
    "give every job a store of its own (HIXL_STORE or HIXL_PORT)")                                               \
  X(transport_unavailable, 45, give_up, "the forced link kind is not available here",                            \
    "choose another kind, or automatic selection")                                                               \
  X(address_scope, 46, fix_call, "a link-local IPv6 address needs a scope, and no other address may have one",   \
    "write the interface behind a link-local address, as in fe80::1%eth0")                                       \
  X(busy, 50, retry_later, "no free slot or credit", "let some operations end, then post again")                 \
  X(deadline_exceeded, 51, retry_later, "the deadline passed", "allow more time, or see which peer is slow")     \
  X(cancelled, 52, none, "the operation was cancelled", "nothing to do")                                         \
  X(peer_lost, 53, reconnect, "the peer died or its lease ended", "wait for the rank to come back")              \
  X(peer_gone, 54, reconnect, "the peer left in order", "use another rank")                                      \
  X(outcome_unknown, 55, outcome_unknown, "the peer died with the operation unanswered",                         \
    "ask the application state whether it happened")                                                             \
  X(link_failed, 56, retry_later, "the link broke", "nothing: the transfer goes on over another link")           \
  X(retries_exhausted, 59, retry_later, "links broke under the operation as often as it is retried",             \
    "see links() for what breaks them; RuntimeOptions::retry allows more")                                       \
  X(fenced, 57, reconnect, "this session was ended by the peer", "the library starts a new session; post again") \
  X(held, 58, reconnect, "a stopped peer may still write into the region", "wait until that peer runs or dies")  \
  X(no_memory, 60, give_up, "memory could not be allocated", "ask for less, or free some")                       \
  X(no_space, 61, give_up, "shared memory is full", "enlarge /dev/shm or the memory limit")                      \
  X(memlock_limit, 62, give_up, "the locked-memory limit is too low", "raise ulimit -l")                         \
  X(fd_limit, 63, give_up, "no more file descriptors", "raise ulimit -n")                                        \
  X(unsupported, 64, give_up, "not supported here", "see docs for what this build and machine offer")            \
  X(memory_unmapped, 65, fix_call, "part of the range is not mapped", "map the memory before registering it")    \
  X(limit_reached, 66, give_up, "a configured limit is reached", "raise the limit in the options")               \
  X(huge_pages_missing, 69, give_up, "the system has not enough huge pages reserved",                            \
    "raise vm.nr_hugepages, or ask with HugePages::prefer")                                                      \
  X(malformed_frame, 70, reconnect, "the peer sent bytes that are not a valid frame",                            \
    "check that the peer is this library, and its version")                                                      \
  X(truncated_frame, 71, reconnect, "the connection ended inside a frame", "nothing: the frame was not applied") \
  X(corrupt, 72, reconnect, "a checksum did not match", "check the network hardware")                            \
  X(payload_corrupt, 73, give_up, "bytes changed on their way, in every attempt",                                \
    "check memory and network of both hosts, and that nobody writes there meanwhile")                            \
  X(os_error, 80, give_up, "the operating system refused", "see the error number")                               \
  X(layout_mismatch, 100, fix_call, "the two KV caches are not of one shape",                                    \
    "register both with the geometry of the same model")                                                         \
  X(cache_unknown, 101, reconnect, "no KV cache of that name is registered there",                               \
    "register it there, and look it up again")                                                                   \
  X(cache_stale, 102, reconnect, "that registration of the KV cache is over", "look the cache up again")         \
  X(lease_ended, 103, reconnect, "the lease of these KV blocks has ended", "ask their owner for a new lease")    \
  X(already_exists, 104, fix_call, "that name is taken", "unregister the old one first, or take another name")   \
  X(not_linked, 105, reconnect, "the two ranks have not linked, or one of them has unlinked", "link them again") \
  X(wrong_role, 106, fix_call, "the role of one of the ranks does not allow it",                                 \
    "switch the role, or turn the direction round")                                                              \
  X(internal, 90, give_up, "a defect of this library", "report it with the log")

enum class ErrorCode : std::uint16_t {
#define HIXL_CODE(name, number, kind, what, remedy) name = number,
  HIXL_ERROR_CODES(HIXL_CODE)
#undef HIXL_CODE
};

/// Which step failed. Stable numbers.
enum class Stage : std::uint8_t {
  none = 0,
  options = 1,
  resolve = 2,
  connect = 3,
  handshake = 4,
  rendezvous = 5,
  exchange = 6,
  local_check = 7,
  remote_check = 8,
  transfer = 9,
  fence = 10,
  memory = 11,
  barrier = 12,
  bind = 13,
  shutdown = 14,
  group = 20,  ///< making a group, or a call on one
  kv = 30,     ///< LLM-DataDist: caches, layouts, links, leases
};

/// Plain numbers about one failure; a field that does not apply is 0 (rank: k_no_rank, entry: k_no_entry).
struct ErrorDetail {
  Rank rank = k_no_rank;   ///< the peer
  std::uint16_t link = 0;  ///< link id at that peer
  Stage stage = Stage::none;
  std::int32_t os_error = 0;            ///< errno or work-completion status
  std::uint64_t address = 0;            ///< start of the range in question
  std::uint64_t length = 0;             ///< its bytes
  std::uint64_t nearest_base = 0;       ///< nearest region: start
  std::uint64_t nearest_length = 0;     ///< and bytes
  std::uint64_t limit = 0;              ///< the limit that was met
  std::uint32_t missing_count = 0;      ///< barrier and exchange: how many ranks are missing
  std::array<Rank, 8> missing{};        ///< the first of them
  std::array<std::uint8_t, 16> host{};  ///< socket address in question, as IPv6 (IPv4 as ::ffff:a.b.c.d)
  std::uint16_t port = 0;               ///< and its port; both 0: none
  std::uint32_t entry = k_no_entry;     ///< which entry of a batch, or piece of a gathered or scattered transfer
};

/// A failure. Copyable, allocates nothing.
struct Error {
  ErrorCode code = ErrorCode::ok;
  ErrorDetail detail{};

  Error() = default;
  explicit Error(ErrorCode c) : code(c) {}
  Error(ErrorCode c, const ErrorDetail& d) : code(c), detail(d) {}

  [[nodiscard]] ErrorKind kind() const noexcept;
  /// One sentence: what, where, the limit, the remedy. Allocates.
  [[nodiscard]] std::string message() const;
};

/// "PEER_LOST" for ErrorCode::peer_lost; "UNKNOWN" for a number that is no code.
[[nodiscard]] std::string_view name(ErrorCode code) noexcept;
/// The sentence and the remedy of the list above.
[[nodiscard]] std::string_view what(ErrorCode code) noexcept;
[[nodiscard]] std::string_view remedy(ErrorCode code) noexcept;
[[nodiscard]] ErrorKind kind(ErrorCode code) noexcept;

}  // namespace hixl
