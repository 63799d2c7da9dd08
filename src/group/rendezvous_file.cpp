// SPDX-License-Identifier: Apache-2.0
#include "group/rendezvous_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <vector>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "wire/frame.hpp"
#include "wire/messages.hpp"

namespace hixl::group {

namespace {

/// The first bytes of every such file, with the version of its layout.
constexpr std::string_view k_header = "HIXL rendezvous 2\n";
constexpr off_t k_records_at = 4096;
/// One record: room for sixteen addresses of the greatest length. Files are sparse, so that a rank takes one block.
constexpr std::size_t k_record_bytes = 8192;
constexpr std::uint32_t k_record_magic = 0x4c584948;  // "HIXL"
constexpr std::size_t k_record_header_bytes = 12;     // magic, bytes, checksum
constexpr std::size_t k_ranks_max = 65'536;
/// Locks are taken on bytes that no record ever reaches (a terabyte), so that no reader has to do with them.
constexpr off_t k_life_locks_at = off_t{1} << 40U;
constexpr off_t k_join_lock_at = k_life_locks_at - 1;
constexpr off_t k_fresh_lock_at = k_life_locks_at - 2;
/// Rounds of looking whether we are the last to leave: each further one means that somebody else left meanwhile.
constexpr int k_last_looks_max = 64;

struct flock lock_of(short type, off_t start, off_t bytes) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = bytes;
  return lock;
}

/// 0: done; EAGAIN: somebody else has it; otherwise what went wrong.
int set_lock(int fd, short type, off_t at) {
  struct flock lock = lock_of(type, at, 1);
  if (::fcntl(fd, F_OFD_SETLK, &lock) == 0) return 0;
  return errno == EACCES ? EAGAIN : errno;
}

Error unreachable(int os_error) {
  return Error(ErrorCode::rendezvous_unreachable, {.stage = Stage::rendezvous, .os_error = os_error});
}

off_t record_at(Rank rank) { return k_records_at + static_cast<off_t>(rank) * static_cast<off_t>(k_record_bytes); }

/// Unlocks at the end of its scope.
class JoinLock {
 public:
  explicit JoinLock(int fd) : fd_(fd), error_(set_lock(fd, F_WRLCK, k_join_lock_at)) {}
  ~JoinLock() {
    if (error_ == 0) static_cast<void>(set_lock(fd_, F_UNLCK, k_join_lock_at));
  }
  JoinLock(const JoinLock&) = delete;
  JoinLock& operator=(const JoinLock&) = delete;
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  int fd_;
  int error_;
};

}  // namespace

/// True when the file at the path is open now.
Result<bool> RendezvousFile::open() {
  if (fd_ && is_at_path()) return true;
  held_.reset();
  ours_ = false;
  // Not through a link that somebody put there, and without waiting for the other end of a pipe.
  fd_ = runtime::Fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, S_IRUSR | S_IWUSR));
  if (!fd_) {
    log::error("the rendezvous file {} cannot be opened (errno {})", path_, errno);
    return fail(unreachable(errno));
  }
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) return fail(unreachable(errno));
  if (!S_ISREG(status.st_mode)) {
    log::error("{} is no regular file and cannot serve as a rendezvous", path_);
    return fail(ErrorCode::invalid_argument, {.stage = Stage::rendezvous});
  }
  if (status.st_uid != ::geteuid()) {
    log::error("the rendezvous file {} belongs to user {}", path_, status.st_uid);
    return fail(ErrorCode::access_denied, {.stage = Stage::rendezvous, .os_error = EPERM});
  }
  return status.st_nlink > 0;  // 0: its last user removed it in this moment
}

bool RendezvousFile::is_at_path() const {
  struct stat here {};
  struct stat there {};
  return ::fstat(fd_.get(), &here) == 0 && ::stat(path_.c_str(), &there) == 0 && here.st_ino == there.st_ino &&
         here.st_dev == there.st_dev;
}

/// A new file gets its header; anything else must have it. A header that its writer did not finish is a new file.
Result<void> RendezvousFile::check_header() {
  std::array<char, k_header.size()> bytes{};
  const ssize_t got = ::pread(fd_.get(), bytes.data(), bytes.size(), 0);
  if (got < 0) return fail(unreachable(errno));
  const std::string_view found(bytes.data(), static_cast<std::size_t>(got));
  if (found == k_header) return {};
  if (!k_header.starts_with(found)) {
    log::error("{} is not a rendezvous file of this version; it is left alone", path_);
    return fail(ErrorCode::invalid_argument, {.stage = Stage::rendezvous});
  }
  const ssize_t put = ::pwrite(fd_.get(), k_header.data(), k_header.size(), 0);
  if (put == static_cast<ssize_t>(k_header.size())) return {};
  return fail(ErrorCode::no_space, {.stage = Stage::rendezvous, .os_error = put < 0 ? errno : ENOSPC});
}

std::optional<Rank> RendezvousFile::somebody_else() const {
  struct flock lock = lock_of(F_WRLCK, k_life_locks_at, k_ranks_max);
  if (::fcntl(fd_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return {};
  return static_cast<Rank>(std::max(lock.l_start, k_life_locks_at) - k_life_locks_at);
}

/// Whoever lives has been compared already, so that one of them speaks for all.
Result<void> RendezvousFile::compare(const wire::StoreClaim& claim) const {
  const std::optional<Rank> other = somebody_else();
  if (!other) return {};
  const auto theirs = read(*other);
  if (!theirs) return {};
  const ErrorDetail detail{.rank = claim.endpoints.rank, .stage = Stage::rendezvous, .limit = theirs->world_size};
  if (theirs->job != 0 && claim.job != 0 && theirs->job != claim.job) return fail(ErrorCode::wrong_job, detail);
  if (theirs->world_size != claim.world_size) return fail(ErrorCode::invalid_argument, detail);
  return {};
}

Result<RendezvousFile::Claim> RendezvousFile::claim(const wire::StoreClaim& claim) {
  HIXL_ASSERT(claim.endpoints.rank < k_ranks_max);
  const auto opened = open();
  if (!opened) return fail(opened.error());
  if (!*opened) return Claim::later;
  const JoinLock joining(fd_.get());
  if (joining.error() == EAGAIN) return Claim::later;
  if (joining.error() != 0) {
    log::error("the file system of {} gives no locks (errno {})", path_, joining.error());
    return fail(ErrorCode::unsupported, {.stage = Stage::rendezvous, .os_error = joining.error()});
  }
  if (!is_at_path()) return Claim::later;  // removed before we had the lock: the next try makes a new one
  if (const auto header = check_header(); !header) return fail(header.error());
  ours_ = true;
  if (const auto same = compare(claim); !same) return fail(same.error());
  const off_t life = k_life_locks_at + static_cast<off_t>(claim.endpoints.rank);
  const int locked = set_lock(fd_.get(), F_WRLCK, life);
  if (locked == EAGAIN) return Claim::taken;
  if (locked != 0) return fail(ErrorCode::unsupported, {.stage = Stage::rendezvous, .os_error = locked});
  wire::StoreClaim born = claim;
  born.endpoints.birth = birth_for(claim);
  const Result<void> written = born.endpoints.birth != 0 ? write(born) : Result<void>{};
  if (!written || born.endpoints.birth == 0) {
    static_cast<void>(set_lock(fd_.get(), F_UNLCK, life));
    if (!written) return fail(written.error());
    return Claim::taken;
  }
  held_ = std::move(born);
  return Claim::held;
}

/// The rank's lock is ours: nobody else writes its record. 0: a newer life has had the rank meanwhile.
Birth RendezvousFile::birth_for(const wire::StoreClaim& claim) const {
  const auto last = read(claim.endpoints.rank);
  const bool same = last && last->endpoints.incarnation == claim.endpoints.incarnation;
  if (same) return last->endpoints.birth;
  const Birth newest = last ? last->endpoints.birth : 0;
  if (claim.endpoints.birth != 0) return claim.endpoints.birth > newest ? claim.endpoints.birth : 0;
  return std::max(newest + 1, claim.start.born);
}

Result<void> RendezvousFile::write(const wire::StoreClaim& claim) {
  std::vector<std::byte> record(k_record_bytes);
  ByteWriter body(Bytes(record).subspan(k_record_header_bytes));
  encode(claim, body);
  HIXL_ASSERT(body.ok());
  ByteWriter header(Bytes(record).first(k_record_header_bytes));
  header.put(k_record_magic);
  header.put(static_cast<std::uint32_t>(body.size()));
  header.put(wire::crc32c(body.written()));
  const std::size_t bytes = k_record_header_bytes + body.size();
  const ssize_t put = ::pwrite(fd_.get(), record.data(), bytes, record_at(claim.endpoints.rank));
  if (put == static_cast<ssize_t>(bytes)) return {};
  const int error = put < 0 ? errno : ENOSPC;
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return fail(full ? ErrorCode::no_space : ErrorCode::os_error, {.stage = Stage::rendezvous, .os_error = error});
}

std::optional<wire::StoreClaim> RendezvousFile::read(Rank rank) const {
  std::array<std::byte, k_record_bytes> record;
  const ssize_t got = ::pread(fd_.get(), record.data(), record.size(), record_at(rank));
  if (got < static_cast<ssize_t>(k_record_header_bytes)) return {};
  ByteReader header(ConstBytes(record).first(k_record_header_bytes));
  const auto magic = header.get<std::uint32_t>();
  const auto bytes = header.get<std::uint32_t>();
  const auto checksum = header.get<std::uint32_t>();
  if (magic != k_record_magic || bytes > static_cast<std::size_t>(got) - k_record_header_bytes) return {};
  const ConstBytes body = ConstBytes(record).subspan(k_record_header_bytes, bytes);
  wire::StoreClaim claim;
  if (wire::crc32c(body) != checksum || !wire::decode_body(body, claim) || claim.endpoints.rank != rank) return {};
  if (claim.endpoints.birth == 0) return {};
  return claim;
}

std::optional<wire::Endpoints> RendezvousFile::look_up(Rank rank) const {
  if (!fd_ || rank >= k_ranks_max) return {};
  struct flock lock = lock_of(F_WRLCK, k_life_locks_at + static_cast<off_t>(rank), 1);
  if (::fcntl(fd_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return {};
  auto claim = read(rank);
  if (!claim) return {};
  return std::move(claim->endpoints);
}

bool RendezvousFile::stands() const {
  if (!held_ || !is_at_path()) return false;
  const auto found = read(held_->endpoints.rank);
  return found && found->endpoints.incarnation == held_->endpoints.incarnation;
}

void RendezvousFile::refresh() const {
  if (fd_ && set_lock(fd_.get(), F_RDLCK, k_fresh_lock_at) == 0) {
    static_cast<void>(set_lock(fd_.get(), F_UNLCK, k_fresh_lock_at));
  }
}

void RendezvousFile::release() {
  if (!fd_) return;
  if (held_) {
    static_cast<void>(
        set_lock(fd_.get(), F_UNLCK, k_life_locks_at + static_cast<off_t>(std::exchange(held_, {})->endpoints.rank)));
  }
  if (ours_) remove_if_last();
  fd_ = {};
}

/// Of several that leave at once, the one that finds the join lock taken may go: whoever has it looks again after it.
void RendezvousFile::remove_if_last() {
  for (int looks = 0; looks < k_last_looks_max; ++looks) {
    if (somebody_else() || !is_at_path()) return;
    const JoinLock leaving(fd_.get());
    if (leaving.error() != 0) return;
    if (!somebody_else() && is_at_path()) static_cast<void>(::unlink(path_.c_str()));
  }
}

}  // namespace hixl::group
