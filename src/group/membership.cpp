// SPDX-License-Identifier: Apache-2.0
//
// One connection to the store at a time, dialled until the deadline before the rank is claimed and for ever after it.
// Everything the store must know (the claim, what is watched) is kept here and told again on every connection.
#include "group/membership.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "links/frame_stream.hpp"
#include "wire/store_messages.hpp"

namespace hixl::group {

namespace {

using namespace std::chrono_literals;

/// First and longest pause between two dials; the real one is drawn between 1 ms and it. A store that starts beside its
/// ranks is there within tens of milliseconds; 2 s keep a fleet that lost its store below one dial a rank and second.
constexpr Duration k_backoff_first = 50ms;
constexpr Duration k_backoff_longest = 2s;
/// A connection that stood this long counts as good: the next pause is short again. Without it a store that accepts and
/// drops would be dialled without pause.
constexpr Duration k_good_connection = 2s;
/// Time for one connection to stand and the claim to be answered. The store itself may wait 500 ms for another holder.
constexpr Duration k_answer_time = 5s;
/// Pause between two questions whether the store is still there: a store host that vanishes without a word is noticed
/// after two of them. Nothing but the news of others depends on it, so it is rare.
constexpr Duration k_probe_pause = 10s;
/// Time for the store to close the connection after the goodbye.
constexpr Duration k_goodbye_time = 500ms;

/// The errno that says most about why the store could not be reached.
int os_error_of(const Error& error) {
  if (error.detail.os_error != 0) return error.detail.os_error;
  switch (error.code) {
    case ErrorCode::connect_refused:
      return ECONNREFUSED;
    case ErrorCode::no_route:
      return EHOSTUNREACH;
    case ErrorCode::connect_timeout:
    case ErrorCode::deadline_exceeded:
      return ETIMEDOUT;
    default:
      return ECONNRESET;
  }
}

/// Dialling again would end the same way.
bool final(const Error& error) {
  return error.code == ErrorCode::host_unresolved || error.code == ErrorCode::access_denied ||
         error.code == ErrorCode::version_mismatch || error.code == ErrorCode::malformed_frame ||
         error.code == ErrorCode::corrupt;
}

}  // namespace

struct Membership::Impl final : links::FrameSink, runtime::StreamEvents, runtime::Task {
  enum class State : std::uint8_t {
    idle,     ///< before join(), or over
    pausing,  ///< until the next dial
    connecting,
    claiming,  ///< waits for the answer to the claim
    standing,
    leaving,
  };
  struct Watched {
    peer::AddressWatcher* watcher = nullptr;
    wire::Endpoints endpoints;  // incarnation 0: not known
  };
  /// A timer that calls a member function.
  struct Alarm final : runtime::Timer {
    Alarm(Impl& to, void (Impl::*what)()) : impl(to), call(what) {}
    void on_timer() override { (impl.*call)(); }
    Impl& impl;
    void (Impl::*call)();
  };

  Impl(runtime::Loop& on, runtime::Address store, MembershipEvents& to)
      : loop(on), address(std::move(store)), events(to) {}

  // links::FrameSink
  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) override;
  void on_payload_start(const wire::FrameHeader&, ConstBytes) override { lost(Error(ErrorCode::malformed_frame)); }
  std::size_t payload_target(std::uint64_t, std::span<iovec>) override { return 0; }
  void on_payload_bytes(std::size_t) override {}
  void on_payload_end() override {}
  void on_sendable() override { look_up(); }
  void on_sent(std::uint64_t) override {}
  void on_down(const Error& error) override { lost(error); }
  // runtime::StreamEvents, while connecting
  void on_connected(const Result<void>& result) override;
  void on_readable() override {}
  void on_writable() override {}
  // runtime::Task: what may not happen inside an event or a call
  void run() override;

  void dial();
  void on_claimed(const wire::StoreClaimed& answer);
  void on_member(const wire::StoreMember& notice);
  void look_up();
  void lost(const Error& error);
  void close();
  void finish(const Result<void>& result);
  void on_step_timer();
  void on_deadline();

  runtime::Loop& loop;
  runtime::Address address;
  MembershipEvents& events;
  State state = State::idle;
  wire::StoreClaim claim;
  bool joined = false;
  bool asked_alive = false;    // a ping is unanswered
  std::uint32_t failures = 0;  // dials since the last good connection
  Instant standing_since{};
  Error last_error{};
  std::unique_ptr<runtime::Stream> connecting;
  std::unique_ptr<links::FrameStream> stream;
  std::vector<std::unique_ptr<runtime::Stream>> old_connecting;  // closed by run(), outside their own events
  std::vector<std::unique_ptr<links::FrameStream>> old_streams;
  std::map<Rank, Watched> watched;
  std::set<Rank> to_look_up;                // not yet asked on this connection
  std::set<Rank> to_tell;                   // known already when watch() came
  Alarm step{*this, &Impl::on_step_timer};  // ends the present state, see on_step_timer()
  Alarm deadline{*this, &Impl::on_deadline};
};

void Membership::Impl::run() {
  old_connecting.clear();
  old_streams.clear();
  for (const Rank rank : std::exchange(to_tell, {})) {
    const Watched& entry = watched[rank];
    if (entry.endpoints.incarnation != 0) entry.watcher->on_address(entry.endpoints);
  }
}

// ---- connection ----

void Membership::Impl::dial() {
  state = State::connecting;
  loop.start_after(step, k_answer_time);
  auto made = loop.port().connect(address, k_answer_time, *this);
  if (!made) return lost(made.error());
  connecting = std::move(*made);
}

void Membership::Impl::on_connected(const Result<void>& result) {
  if (state != State::connecting) return;
  if (!result) return lost(result.error());
  // An abstract name belongs to whoever took it first.
  const auto credentials = connecting->credentials();
  if (address.family == runtime::Address::Family::unix_abstract && credentials.pid != 0 &&
      credentials.uid != ::geteuid()) {
    loop.log().error({"the store is of user", credentials.uid}, "the store at {} is of user {}", address.text(),
                     credentials.uid);
    return lost(Error(ErrorCode::access_denied, {.os_error = EPERM}));
  }
  state = State::claiming;
  stream = std::make_unique<links::FrameStream>(std::move(connecting), loop);
  stream->set_sink(this);
  if (!links::send_message(*stream, {.type = wire::FrameType::store_claim}, claim)) {
    lost(Error(ErrorCode::truncated_frame));
  }
}

void Membership::Impl::close() {
  if (connecting) {
    connecting->set_events(nullptr);
    old_connecting.push_back(std::move(connecting));
  }
  if (stream) {
    stream->set_sink(nullptr);
    old_streams.push_back(std::move(stream));
  }
  step.cancel();
  loop.defer(*this);
}

/// The dial failed or the connection ended.
void Membership::Impl::lost(const Error& error) {
  if (state == State::idle || state == State::pausing) return;
  close();
  if (state == State::leaving) {
    state = State::idle;
    return;
  }
  if (!joined && final(error)) {
    ErrorDetail detail = error.detail;
    detail.stage = Stage::rendezvous;
    return finish(fail(error.code, detail));
  }
  const bool was_good = state == State::standing && loop.now() - standing_since >= k_good_connection;
  if (was_good) failures = 0;
  if (joined && failures == 0) {
    loop.log().warn({"the connection to the store is lost"},
                    "rank {}: the connection to the store {} is lost ({}); dialling again", claim.endpoints.rank,
                    address.text(), name(error.code));
  }
  last_error = error;
  state = State::pausing;
  const Duration longest = std::min(k_backoff_longest, k_backoff_first * (1U << std::min(failures, 6U)));
  ++failures;
  const auto pause_ms = loop.random().between(1, static_cast<std::uint64_t>(longest / 1ms));
  loop.start_after(step, std::chrono::milliseconds(pause_ms));
}

/// The end of join(), said once.
void Membership::Impl::finish(const Result<void>& result) {
  deadline.cancel();
  if (!result) {
    if (state != State::idle) close();
    state = State::idle;
  } else {
    joined = true;
  }
  events.on_joined(result);
}

void Membership::Impl::on_step_timer() {
  switch (state) {
    case State::idle:
      return;
    case State::pausing:
      return dial();
    case State::connecting:
    case State::claiming:
    case State::leaving:
      return lost(Error(ErrorCode::connect_timeout));
    case State::standing:
      if (std::exchange(asked_alive, true)) return lost(Error(ErrorCode::connect_timeout));
      loop.start_after(step, k_probe_pause);
      static_cast<void>(stream->send({.type = wire::FrameType::ping}, {}));  // no room: no answer either
      return;
  }
}

void Membership::Impl::on_deadline() {
  const int os_error = last_error.code == ErrorCode::ok ? ETIMEDOUT : os_error_of(last_error);
  ErrorDetail detail{.stage = Stage::rendezvous, .os_error = os_error};
  detail.host = last_error.detail.host;
  detail.port = last_error.detail.port;
  if (detail.port == 0) address.name_in(detail);
  // Not the store's fault, and waiting for it would not help.
  const bool limit = os_error == EMFILE || os_error == ENFILE;
  finish(fail(limit ? ErrorCode::fd_limit : ErrorCode::rendezvous_unreachable, detail));
}

// ---- what the store says ----

void Membership::Impl::on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>&) {
  if (state != State::claiming && state != State::standing) return;
  wire::StoreClaimed claimed;
  wire::StoreMember notice;
  switch (header.type) {
    case wire::FrameType::store_claimed:
      if (state != State::claiming || !wire::decode_body(body, claimed)) break;
      return on_claimed(claimed);
    case wire::FrameType::store_member:
      if (state != State::standing || !wire::decode_body(body, notice)) break;
      return on_member(notice);
    case wire::FrameType::ping:
      static_cast<void>(stream->send({.type = wire::FrameType::pong}, {}));
      return;
    case wire::FrameType::pong:
      asked_alive = false;
      return;
    default:
      if ((header.flags & wire::k_flag_optional) != 0) return;
  }
  lost(Error(ErrorCode::malformed_frame));
}

void Membership::Impl::on_claimed(const wire::StoreClaimed& answer) {
  const auto code = static_cast<ErrorCode>(answer.code);
  if (code != ErrorCode::ok) {
    const Error error(code, {.rank = claim.endpoints.rank, .stage = Stage::rendezvous, .limit = answer.limit});
    if (!joined) return finish(fail(error));
    if (failures <= 1)
      loop.log().warn({"the store refuses the rank"}, "rank {}: the store refuses the rank now: {}",
                      claim.endpoints.rank, error.message());
    return lost(error);
  }
  claim.endpoints.birth = answer.birth;
  state = State::standing;
  standing_since = loop.now();
  asked_alive = false;
  loop.start_after(step, k_probe_pause);
  for (const auto& [rank, entry] : watched) to_look_up.insert(rank);
  look_up();
  if (!joined) finish({});
}

void Membership::Impl::on_member(const wire::StoreMember& notice) {
  const auto found = watched.find(notice.endpoints.rank);
  if (found == watched.end()) return;
  Watched& entry = found->second;
  if (notice.present != 0) {
    // After a reconnect the store says again what is known already.
    if (entry.endpoints.incarnation == notice.endpoints.incarnation) return;
    entry.endpoints = notice.endpoints;
    entry.watcher->on_address(entry.endpoints);
  } else if (entry.endpoints.incarnation != 0 && entry.endpoints.incarnation == notice.endpoints.incarnation) {
    entry.endpoints = {};
    entry.watcher->on_address_gone(found->first, notice.endpoints.incarnation);
  }
}

void Membership::Impl::look_up() {
  while (state == State::standing && !to_look_up.empty()) {
    const wire::StoreLookup lookup{*to_look_up.begin()};
    if (!links::send_message(*stream, {.type = wire::FrameType::store_lookup}, lookup))
      return;  // on_sendable() follows
    to_look_up.erase(to_look_up.begin());
  }
}

// ---- the public face ----

Membership::Membership(runtime::Loop& loop, runtime::Address store, MembershipEvents& events)
    : impl_(std::make_unique<Impl>(loop, std::move(store), events)) {}

Membership::~Membership() = default;

void Membership::join(const wire::StoreClaim& claim, Instant deadline) {
  Impl& impl = *impl_;
  HIXL_ASSERT(impl.state == Impl::State::idle && !impl.joined);
  impl.claim = claim;
  impl.state = Impl::State::pausing;
  impl.loop.start(impl.deadline, deadline);
  impl.loop.start_after(impl.step, Duration(0));
}

void Membership::watch(Rank rank, peer::AddressWatcher& watcher) {
  Impl& impl = *impl_;
  const auto [entry, fresh] = impl.watched.try_emplace(rank);
  entry->second.watcher = &watcher;
  if (!fresh) {
    impl.to_tell.insert(rank);
    impl.loop.defer(impl);
    return;
  }
  impl.to_look_up.insert(rank);
  impl.look_up();
}

Birth Membership::birth() const noexcept { return impl_->claim.endpoints.birth; }

void Membership::leave() {
  Impl& impl = *impl_;
  impl.deadline.cancel();
  if (impl.state != Impl::State::standing ||
      !links::send_message(*impl.stream, {.type = wire::FrameType::store_leave}, wire::StoreLeave{})) {
    impl.close();
    impl.state = Impl::State::idle;
    return;
  }
  impl.stream->flush();
  impl.state = Impl::State::leaving;
  impl.loop.start_after(impl.step, k_goodbye_time);
}

}  // namespace hixl::group
