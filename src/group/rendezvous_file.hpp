// SPDX-License-Identifier: Apache-2.0
//
// RendezvousFile: a file that the ranks of a job share, one record a rank. Only system calls that return at once; the
// actor around it is FileMembership.
//
// Life is a lock, not bytes: who holds rank r holds an open-file-description lock on a byte of its own for it, far
// behind the records, and the kernel lets go of it when the holder dies, however it dies. A record without that lock
// means nothing but the birth in it, above which the next life of the rank is born; so a file that a killed job left
// behind is an empty one. Records carry a checksum and are written by their holder only: half of one reads as none.
// Joining, and removing the file, happen under one more lock, so that nobody joins a file that is being removed. A
// process that is stopped inside those few microseconds holds up others that join, and nobody else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <hixl/result.hpp>

#include "runtime/event_port.hpp"
#include "wire/store_messages.hpp"

namespace hixl::group {

/// Owner: FileMembership. Not thread-safe. Destruction lets go of everything as death would.
class RendezvousFile {
 public:
  explicit RendezvousFile(std::string path) : path_(std::move(path)) {}

  enum class Claim : std::uint8_t {
    held,   ///< the rank is ours
    taken,  ///< somebody who lives holds it, or a newer life than this one has had it
    later,  ///< somebody else is joining or leaving right now
  };
  /// Opens (or makes) the file if need be and claims the rank; a claim without a birth gets one. INVALID_ARGUMENT: the
  /// others use another world size (limit), or it is no such file and was left alone. WRONG_JOB; RENDEZVOUS_UNREACHABLE
  /// with errno: it cannot be opened; ACCESS_DENIED: it is another user's; UNSUPPORTED: no locks there; NO_SPACE.
  [[nodiscard]] Result<Claim> claim(const wire::StoreClaim& claim);
  /// Of the claim that is held; 0: none is.
  [[nodiscard]] Birth birth() const noexcept { return held_ ? held_->endpoints.birth : 0; }
  /// The life that holds the rank now.
  [[nodiscard]] std::optional<wire::Endpoints> look_up(Rank rank) const;
  /// True while the file at the path is the one that we hold our rank in, with our record whole in it.
  [[nodiscard]] bool stands() const;
  /// Before a round of look_up(): a network file system gives fresh bytes only after a lock was taken.
  void refresh() const;
  /// Gives the rank back; removes the file if nobody else holds one.
  void release();

 private:
  [[nodiscard]] Result<bool> open();
  [[nodiscard]] Result<void> check_header();
  [[nodiscard]] Result<void> compare(const wire::StoreClaim& claim) const;
  [[nodiscard]] std::optional<wire::StoreClaim> read(Rank rank) const;
  [[nodiscard]] Birth birth_for(const wire::StoreClaim& claim) const;
  [[nodiscard]] Result<void> write(const wire::StoreClaim& claim);
  [[nodiscard]] bool is_at_path() const;
  /// A rank that somebody else holds.
  [[nodiscard]] std::optional<Rank> somebody_else() const;
  void remove_if_last();

  std::string path_;
  runtime::Fd fd_;
  bool ours_ = false;  // it is a rendezvous file, which may be removed
  std::optional<wire::StoreClaim> held_;
};

}  // namespace hixl::group
