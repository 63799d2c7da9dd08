// SPDX-License-Identifier: Apache-2.0
//
// The membership table and its clients. What a client is told is a comparison of two states, not a log: `told` is
// what it knows of a rank, the table is what is true; whoever is behind is brought up to date when its stream has
// room. So a slow reader costs one number a rank, and a burst of changes reaches it as one.
#include "group/store_server.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/log.hpp"
#include "links/frame_stream.hpp"
#include "wire/store_messages.hpp"

namespace hixl::group {

namespace {

using namespace std::chrono_literals;

/// Connections in all. A store serves one job; one socket and some 10 KiB of buffers each keep it at 40 MiB when full.
constexpr std::size_t k_clients_max = 4096;
/// Connections that have not claimed yet. A claim follows the connection in one round trip, so that 64 are plenty; when
/// there are more, the oldest goes: a crowd of idle strangers cannot keep a member out.
constexpr std::size_t k_half_open_max = 64;
/// Time for a claim to arrive: many round trips of any network, and short enough to be rid of port scanners.
constexpr Duration k_claim_time = 2s;
/// Time for the holder of a rank to answer a ping when another wants the rank, and to claim again when its connection
/// has ended: a loop that turns answers in milliseconds, and whoever waits for the answer still has most of its connect
/// timeout (5 s) left.
constexpr Duration k_holder_answer_time = 500ms;
/// Time without room in the stream after which a reader counts as one that never reads.
constexpr Duration k_reader_stall_time = 2s;
/// Bytes queued for one client: a hundred notices of usual size; the rest waits as numbers in `behind`.
constexpr std::size_t k_client_bytes_queued_max = 64U << 10U;

}  // namespace

struct StoreServer::Impl final : runtime::ListenerEvents, runtime::Task {
  struct Client;
  struct Member {
    wire::Endpoints endpoints;
    Client* holder = nullptr;
  };
  struct Life {
    Birth birth = 0;
    Incarnation incarnation = 0;
    wire::LifeStart start{};
    std::optional<Instant> lost{};  ///< when its connection ended, if it did not leave
  };

  explicit Impl(runtime::Loop& on_loop) : loop(on_loop) {}
  void on_accept(std::unique_ptr<runtime::Stream> stream) override;
  void run() override;
  void on_claim(Client& client, const wire::StoreClaim& claim);
  void settle(Client& client);
  void grant(Client& client);
  void answer(Client& client, ErrorCode code, std::uint64_t limit);
  void on_lookup(Client& client, const wire::StoreLookup& lookup);
  void on_holder_answer(Client& holder);
  void drop(Client& client, bool left = false);
  void changed(Rank rank);
  void make_room();
  [[nodiscard]] const runtime::Address& address() const { return listener->address(); }

  runtime::Loop& loop;
  std::unique_ptr<runtime::Listener> listener;
  std::map<std::uint64_t, std::unique_ptr<Client>> clients;  // by order of arrival
  std::uint64_t next_client = 1;
  std::map<Rank, Member> members;
  std::map<Rank, Life> newest;   // outlives the members: no number is given twice
  std::uint32_t world_size = 0;  // 0 while nobody holds a rank; the first claim fixes it for as long as anybody does
  std::uint64_t job = 0;         // the same, of those who name one
  StoreCounters counters;
};

struct StoreServer::Impl::Client final : links::FrameSink, runtime::Timer {
  /// What the timer stands for follows from the state.
  enum class State : std::uint8_t {
    half_open,  ///< must claim in time
    waiting,    ///< wants a rank whose holder has been asked whether it lives
    member,     ///< holds its rank; the timer watches its reading
    refused,    ///< has been answered with an error; it closes, or is dropped in time
    dropped,    ///< to be deleted
  };

  Client(Impl& owner, std::unique_ptr<runtime::Stream> from)
      : server(owner), stream(std::move(from), owner.loop, k_client_bytes_queued_max) {}

  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) override;
  void on_payload_start(const wire::FrameHeader&, ConstBytes) override { malformed(); }
  std::size_t payload_target(std::uint64_t, std::span<iovec>) override { return 0; }
  void on_payload_bytes(std::size_t) override {}
  void on_payload_end() override {}
  void on_sendable() override {
    if (state == State::member) server.loop.defer(server);
  }
  void on_sent(std::uint64_t) override {}
  void on_down(const Error& error) override;
  void on_timer() override;
  void bring_up_to_date();
  void malformed();

  Impl& server;
  links::FrameStream stream;
  State state = State::half_open;
  wire::StoreClaim claim;            // from `waiting` on
  std::map<Rank, Incarnation> told;  // what it asked for, and the life it knows; 0: none
  std::set<Rank> behind;             // ranks of `told` that may have changed since
};

// ---- one client ----

void StoreServer::Impl::Client::on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>&) {
  if (state == State::dropped) return;
  wire::StoreClaim new_claim;
  wire::StoreLookup lookup;
  wire::StoreLeave leave;
  switch (header.type) {
    case wire::FrameType::store_claim:
      if (state != State::half_open || !wire::decode_body(body, new_claim)) return malformed();
      return server.on_claim(*this, new_claim);
    case wire::FrameType::store_lookup:
      if (state != State::member || !wire::decode_body(body, lookup) || lookup.rank >= server.world_size)
        return malformed();
      return server.on_lookup(*this, lookup);
    case wire::FrameType::store_leave:
      if (state == State::half_open || !wire::decode_body(body, leave)) return malformed();
      return server.drop(*this, true);
    case wire::FrameType::pong:
      if (state == State::member) server.on_holder_answer(*this);
      return;
    case wire::FrameType::ping:
      // A member that cannot take a pong does not read; its timer runs already.
      if (state == State::member) static_cast<void>(stream.send({.type = wire::FrameType::pong}, {}));
      return;
    default:
      if ((header.flags & wire::k_flag_optional) == 0) malformed();
  }
}

void StoreServer::Impl::Client::malformed() {
  if (state == State::dropped) return;
  ++server.counters.malformed;
  server.loop.log().info({"store: dropped, sent what a member does not send"},
                         "store: dropped {}: it sent what a member does not send", stream.stream().remote_text());
  server.drop(*this);
}

void StoreServer::Impl::Client::on_down(const Error& error) {
  if (state == State::dropped) return;
  if (error.code == ErrorCode::version_mismatch) {
    // The stream is closed for frames. One frame of our version, written past it, lets the other side see the reason.
    std::array<std::byte, wire::k_header_bytes> bytes;
    wire::encode(wire::FrameHeader{.type = wire::FrameType::store_claimed, .flags = wire::k_flag_optional}, bytes);
    const iovec piece{bytes.data(), bytes.size()};
    stream.stream().write(std::span(&piece, 1));
  }
  if (error.code == ErrorCode::version_mismatch || error.code == ErrorCode::malformed_frame ||
      error.code == ErrorCode::corrupt) {
    malformed();
  }
  server.drop(*this);
}

void StoreServer::Impl::Client::on_timer() {
  switch (state) {
    case State::half_open:
    case State::refused:
      ++server.counters.idle;
      return server.drop(*this);
    case State::waiting:
      return server.grant(*this);
    case State::member:
      ++server.counters.slow;
      server.loop.log().info({"store: dropped, does not read"}, "store: dropped {}: it does not read",
                             stream.stream().remote_text());
      return server.drop(*this);
    case State::dropped:
      return;
  }
}

void StoreServer::Impl::Client::bring_up_to_date() {
  bool moved = false;
  while (!behind.empty()) {
    const Rank rank = *behind.begin();
    const auto member = server.members.find(rank);
    const Incarnation life = member == server.members.end() ? 0 : member->second.endpoints.incarnation;
    Incarnation& known = told[rank];
    if (known != life) {
      wire::StoreMember notice;
      notice.present = life != 0 ? 1 : 0;
      if (life != 0) {
        notice.endpoints = member->second.endpoints;
      } else {
        notice.endpoints.rank = rank;
        notice.endpoints.incarnation = known;
      }
      if (!links::send_message(stream, {.type = wire::FrameType::store_member}, notice)) {
        if (moved || !active()) server.loop.start_after(*this, k_reader_stall_time);
        return;
      }
      known = life;
      moved = true;
    }
    behind.erase(behind.begin());
  }
  cancel();
}

// ---- the table ----

void StoreServer::Impl::on_accept(std::unique_ptr<runtime::Stream> stream) {
  if (clients.size() >= k_clients_max) return;  // closes it
  const auto credentials = stream->credentials();
  const bool local = address().family == runtime::Address::Family::unix_abstract;
  if (local && credentials.pid != 0 && credentials.uid != ::geteuid()) {
    loop.log().warn({"store: turned away, processes of user", credentials.uid},
                    "store: a process of user {} was turned away", credentials.uid);
    return;
  }
  make_room();
  auto client = std::make_unique<Client>(*this, std::move(stream));
  ++counters.half_open;
  loop.start_after(*client, k_claim_time);
  client->stream.set_sink(client.get());
  clients.emplace(next_client++, std::move(client));
}

void StoreServer::Impl::make_room() {
  if (counters.half_open < k_half_open_max) return;
  for (auto& [id, client] : clients) {
    if (client->state != Client::State::half_open) continue;
    ++counters.idle;
    return drop(*client);
  }
}

void StoreServer::Impl::on_claim(Client& client, const wire::StoreClaim& claim) {
  --counters.half_open;
  client.cancel();
  client.claim = claim;
  client.state = Client::State::waiting;
  if (world_size != 0 && claim.world_size != world_size) return answer(client, ErrorCode::invalid_argument, world_size);
  if (job != 0 && claim.job != 0 && claim.job != job) return answer(client, ErrorCode::wrong_job, 0);
  if (claim.guest != 0 && members.empty()) return answer(client, ErrorCode::rendezvous_unreachable, 0);
  if (claim.endpoints.rank >= claim.world_size) return answer(client, ErrorCode::rank_out_of_range, claim.world_size);
  settle(client);
}

/// Grants the rank, or asks its holder whether it still lives. That a connection ended is no proof that a process did:
/// its rank is given to one that was born later, and to others when the holder would have claimed again. Else it would
/// be replaced, for good, by an earlier life whose claim came late; one that is earlier for certain does not get it.
void StoreServer::Impl::settle(Client& client) {
  const wire::Endpoints& wanted = client.claim.endpoints;
  const Life& last = newest[wanted.rank];
  const bool held = members.contains(wanted.rank);
  const bool replaced = wanted.birth != 0 && last.incarnation != wanted.incarnation && last.birth >= wanted.birth;
  const bool earlier = wanted.birth == 0 && (held || last.lost) && client.claim.start.precedes(last.start);
  if (replaced || earlier) {
    ++counters.conflicts;
    return answer(client, ErrorCode::rank_conflict, 0);
  }
  // A birth above all that are known here tells that the holder has been replaced already, at an earlier store.
  if (last.incarnation == wanted.incarnation || wanted.birth > last.birth) return grant(client);
  if (!held) {
    const Instant given = last.lost ? *last.lost + k_holder_answer_time : loop.now();
    const wire::LifeStart& start = client.claim.start;
    if (start.born > last.birth || last.start.precedes(start) || given <= loop.now()) return grant(client);
    return loop.start_after(client, given - loop.now());
  }
  loop.start_after(client, k_holder_answer_time);
  // A holder that has no room for a ping does not read, and will not answer.
  static_cast<void>(members.at(wanted.rank).holder->stream.send({.type = wire::FrameType::ping}, {}));
}

void StoreServer::Impl::grant(Client& client) {
  const Rank rank = client.claim.endpoints.rank;
  Life& last = newest[rank];
  if (last.incarnation != client.claim.endpoints.incarnation) {
    const Birth told = client.claim.endpoints.birth;
    const Birth birth = told != 0 ? told : std::max(last.birth + 1, client.claim.start.born);
    if (birth > wire::k_birth_max) return answer(client, ErrorCode::limit_reached, wire::k_birth_max);
    last.birth = birth;
    last.incarnation = client.claim.endpoints.incarnation;
    last.start = client.claim.start;
  }
  last.lost.reset();
  Member& member = members[rank];
  Client* const former = std::exchange(member.holder, &client);
  member.endpoints = client.claim.endpoints;
  member.endpoints.birth = last.birth;
  world_size = client.claim.world_size;
  if (client.claim.job != 0) job = client.claim.job;
  client.cancel();
  client.state = Client::State::member;
  if (former != nullptr) {
    ++counters.replaced;
    drop(*former);
  }
  if (!links::send_message(client.stream, {.type = wire::FrameType::store_claimed},
                           wire::StoreClaimed{.birth = last.birth})) {
    return drop(client);  // nothing was queued before: cannot happen with a live stream
  }
  changed(rank);
  // Others that wait for the same rank now have to do with this holder.
  for (auto& [id, other] : clients) {
    if (other->state == Client::State::waiting && other->claim.endpoints.rank == rank) settle(*other);
  }
}

void StoreServer::Impl::answer(Client& client, ErrorCode code, std::uint64_t limit) {
  client.state = Client::State::refused;
  const wire::StoreClaimed message{.code = static_cast<std::uint16_t>(code), .limit = limit};
  if (!links::send_message(client.stream, {.type = wire::FrameType::store_claimed}, message)) return drop(client);
  loop.start_after(client, k_claim_time);
}

void StoreServer::Impl::on_holder_answer(Client& holder) {
  const Rank rank = holder.claim.endpoints.rank;
  for (auto& [id, client] : clients) {
    if (client->state != Client::State::waiting || client->claim.endpoints.rank != rank) continue;
    ++counters.conflicts;
    answer(*client, ErrorCode::rank_conflict, 0);
  }
}

void StoreServer::Impl::on_lookup(Client& client, const wire::StoreLookup& lookup) {
  client.told.emplace(lookup.rank, Incarnation{0});
  client.behind.insert(lookup.rank);
  loop.defer(*this);
}

void StoreServer::Impl::changed(Rank rank) {
  for (auto& [id, client] : clients) {
    if (client->state == Client::State::member && client->told.contains(rank)) client->behind.insert(rank);
  }
  loop.defer(*this);
}

/// Takes back what the client holds. It is deleted later: this may run inside one of its own events.
void StoreServer::Impl::drop(Client& client, bool left) {
  const auto state = std::exchange(client.state, Client::State::dropped);
  client.cancel();
  loop.defer(*this);
  if (state == Client::State::half_open) --counters.half_open;
  if (state != Client::State::member) return;
  const Rank rank = client.claim.endpoints.rank;
  const auto member = members.find(rank);
  if (member == members.end() || member->second.holder != &client) return;  // replaced
  members.erase(member);
  if (!left) newest[rank].lost = loop.now();
  changed(rank);
  // Whoever asked for the rank of this holder need not wait for its answer any longer. The first in order of arrival
  // that may have it gets it; grant() sees to the others.
  for (auto& [id, other] : clients) {
    if (other->state != Client::State::waiting || other->claim.endpoints.rank != rank) continue;
    settle(*other);
    if (members.contains(rank)) return;
  }
  if (!members.empty()) return;
  world_size = 0;
  job = 0;
}

void StoreServer::Impl::run() {
  std::erase_if(clients, [](const auto& entry) { return entry.second->state == Client::State::dropped; });
  for (auto& [id, client] : clients) {
    if (client->state == Client::State::member && !client->behind.empty()) client->bring_up_to_date();
  }
}

Result<std::unique_ptr<StoreServer>> StoreServer::listen(runtime::Loop& loop, const runtime::Address& address) {
  std::unique_ptr<StoreServer> server(new StoreServer);
  server->impl_ = std::make_unique<Impl>(loop);
  auto listener = loop.port().listen(address, *server->impl_);
  if (!listener) return fail(listener.error());
  server->impl_->listener = std::move(*listener);
  return server;
}

StoreServer::~StoreServer() = default;

const runtime::Address& StoreServer::address() const noexcept { return impl_->address(); }

StoreCounters StoreServer::counters() const noexcept {
  StoreCounters counters = impl_->counters;
  counters.members = impl_->members.size();
  return counters;
}

}  // namespace hixl::group
