// SPDX-License-Identifier: Apache-2.0
#include "group/file_membership.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <utility>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "group/rendezvous_file.hpp"

namespace hixl::group {

namespace {

using namespace std::chrono_literals;

/// Pause while somebody else is joining or leaving, which takes microseconds; drawn between 1 ms and this, so that a
/// thousand ranks that start together do not come back together.
constexpr Duration k_try_pause = 10ms;
/// How long a rank that is held is asked for again before it is a conflict: a predecessor that is ending lets go within
/// this, and most of the connect timeout (5 s) is left. The same as a store gives a holder to answer.
constexpr Duration k_holder_time = 500ms;
/// Least time between two readings, however many events come: a thousand ranks that join cause fifty readings a second
/// and rank. It is also how long after an event the file is read once more: the kernel tells of a closing before it
/// lets go of the locks.
constexpr Duration k_read_pause = 20ms;
/// Readings without any event. A network file system has none; somebody who waits for a rank should not notice.
constexpr Duration k_read_missing = 250ms;
/// The same when nobody is missing: only to notice a removed file or a death, which links report sooner.
constexpr Duration k_read_calm = 2s;

}  // namespace

struct FileMembership::Impl final : runtime::WatchEvents, runtime::Task {
  enum class State : std::uint8_t { idle, claiming, standing };
  struct Watched {
    peer::AddressWatcher* watcher = nullptr;
    wire::Endpoints endpoints;  // incarnation 0: not known
    bool told = true;           // false: watched again, and to be told what is known
  };
  /// A timer that calls a member function.
  struct Alarm final : runtime::Timer {
    Alarm(Impl& to, void (Impl::*what)()) : impl(to), call(what) {}
    void on_timer() override { (impl.*call)(); }
    Impl& impl;
    void (Impl::*call)();
  };

  Impl(runtime::Loop& on, std::string at, MembershipEvents& to)
      : loop(on), path(std::move(at)), file(path), events(to) {}

  void on_ready() override;
  void run() override { read_soon(); }
  void try_claim();
  void claimed();
  void finish(const Result<void>& result);
  void on_deadline();
  void on_step() { state == State::claiming ? try_claim() : read(); }
  void read_soon();
  void read();
  void notice(Rank rank, Watched& entry);
  void open_notifier();

  runtime::Loop& loop;
  std::string path;
  RendezvousFile file;
  MembershipEvents& events;
  State state = State::idle;
  wire::StoreClaim claim;
  bool joined = false;
  bool refused = false;   // said in the log since it last stood
  Instant taken_since{};  // the rank has been somebody else's since then; the epoch: it is not
  Instant last_read{};
  bool again = false;  // an event came: read once more after this reading
  std::map<Rank, Watched> watched;
  runtime::Fd notifier;
  std::unique_ptr<runtime::Watch> notices;
  Alarm step{*this, &Impl::on_step};
  Alarm deadline{*this, &Impl::on_deadline};
};

// ---- claiming ----

void FileMembership::Impl::try_claim() {
  auto result = file.claim(claim);
  if (result && *result == RendezvousFile::Claim::held) {
    claim.endpoints.birth = file.birth();
    return claimed();
  }
  if (result && *result == RendezvousFile::Claim::taken) {
    if (taken_since == Instant{}) taken_since = loop.now();
    if (loop.now() - taken_since >= k_holder_time) {
      result = fail(ErrorCode::rank_conflict, {.rank = claim.endpoints.rank, .stage = Stage::rendezvous});
    }
  }
  if (!result && !joined) return finish(fail(result.error()));
  if (!result && !std::exchange(refused, true)) {
    loop.log().warn({"the rendezvous file is lost"}, "rank {}: the rendezvous file {} is lost: {}",
                    claim.endpoints.rank, path, result.error().message());
  }
  // Once joined there is no hurry: peers that are connected do not need the file.
  const Duration longest = result ? k_try_pause : k_read_calm;
  loop.start_after(step,
                   std::chrono::milliseconds(loop.random().between(1, static_cast<std::uint64_t>(longest / 1ms))));
}

void FileMembership::Impl::claimed() {
  state = State::standing;
  taken_since = {};
  refused = false;
  open_notifier();
  loop.start_after(step, Duration(0));
  if (!joined) finish({});
}

void FileMembership::Impl::finish(const Result<void>& result) {
  deadline.cancel();
  joined = result.has_value();
  if (!result) {
    step.cancel();
    state = State::idle;
    file.release();
  }
  events.on_joined(result);
}

void FileMembership::Impl::on_deadline() {
  const bool taken = taken_since != Instant{};
  finish(fail(taken ? ErrorCode::rank_conflict : ErrorCode::rendezvous_unreachable,
              {.rank = claim.endpoints.rank, .stage = Stage::rendezvous, .os_error = taken ? 0 : EAGAIN}));
}

// ---- reading ----

/// Without it (the limit of instances is 128 a user, and network file systems tell of nothing) reading again will do.
void FileMembership::Impl::open_notifier() {
  notices.reset();
  notifier = runtime::Fd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  constexpr std::uint32_t k_what = IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF;
  if (!notifier || ::inotify_add_watch(notifier.get(), path.c_str(), k_what) < 0) return;
  auto made = loop.port().watch(notifier.get(), *this);
  if (made) notices = std::move(*made);
}

void FileMembership::Impl::on_ready() {
  std::array<std::byte, 4096> events_read;  // what happened is not asked: the file says how things are now
  while (::read(notifier.get(), events_read.data(), events_read.size()) > 0) {
  }
  again = true;
  loop.defer(*this);
}

void FileMembership::Impl::read_soon() {
  if (state != State::standing) return;
  const Instant due = std::max(loop.now(), last_read + k_read_pause);
  if (!step.active() || step.due() > due) loop.start(step, due);
}

void FileMembership::Impl::read() {
  if (state != State::standing) return;
  last_read = loop.now();
  file.refresh();
  if (!file.stands()) {
    loop.log().info({"the rendezvous file was removed or spoilt"},
                    "rank {}: the rendezvous file {} was removed or spoilt; claiming again", claim.endpoints.rank,
                    path);
    state = State::claiming;
    return try_claim();
  }
  bool missing = false;
  for (auto& [rank, entry] : watched) {
    notice(rank, entry);
    missing = missing || entry.endpoints.incarnation == 0;
  }
  const Duration pause = std::exchange(again, false) ? k_read_pause : missing ? k_read_missing : k_read_calm;
  loop.start_after(step, pause);
}

void FileMembership::Impl::notice(Rank rank, Watched& entry) {
  auto found = file.look_up(rank);
  const Incarnation life = found ? found->incarnation : 0;
  const Incarnation known = entry.endpoints.incarnation;
  const bool told = std::exchange(entry.told, true);
  if (life == known && (told || life == 0)) return;
  if (life != 0) {
    entry.endpoints = std::move(*found);
    entry.watcher->on_address(entry.endpoints);
  } else {
    entry.endpoints = {};
    entry.watcher->on_address_gone(rank, known);
  }
}

// ---- the public face ----

FileMembership::FileMembership(runtime::Loop& loop, std::string path, MembershipEvents& events)
    : impl_(std::make_unique<Impl>(loop, std::move(path), events)) {}

FileMembership::~FileMembership() = default;

void FileMembership::join(const wire::StoreClaim& claim, Instant deadline) {
  Impl& impl = *impl_;
  HIXL_ASSERT(impl.state == Impl::State::idle && !impl.joined);
  impl.claim = claim;
  impl.state = Impl::State::claiming;
  impl.loop.start(impl.deadline, deadline);
  impl.loop.start_after(impl.step, Duration(0));
}

void FileMembership::watch(Rank rank, peer::AddressWatcher& watcher) {
  Impl& impl = *impl_;
  const auto [entry, fresh] = impl.watched.try_emplace(rank);
  entry->second.watcher = &watcher;
  entry->second.told = fresh;
  impl.loop.defer(impl);
}

Birth FileMembership::birth() const noexcept { return impl_->claim.endpoints.birth; }

void FileMembership::leave() {
  Impl& impl = *impl_;
  impl.deadline.cancel();
  impl.step.cancel();
  impl.state = Impl::State::idle;
  impl.notices.reset();
  impl.file.release();
}

}  // namespace hixl::group
