// SPDX-License-Identifier: Apache-2.0
#include "impostor.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include <doctest/doctest.h>

#include "../process/lines.hpp"

namespace hixl::test {

ByteVector frame_of(wire::FrameHeader header, ConstBytes body, ConstBytes payload) {
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  header.body_crc = wire::crc32c(body);
  if (!payload.empty()) header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  ByteVector frame(wire::k_header_bytes);
  encode(header, std::span<std::byte>(frame).first<wire::k_header_bytes>());
  frame.insert(frame.end(), body.begin(), body.end());
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

// ---- one connection ----

Wire::Wire(const std::string& address) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  REQUIRE(fd_ >= 0);
  // Small, so that what nobody reads stays with its sender: the kernel would take more and more of it.
  const int window = 64 << 10;
  REQUIRE(setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &window, sizeof window) == 0);
  const auto colon = address.rfind(':');
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(std::stoul(address.substr(colon + 1))));
  REQUIRE(inet_pton(AF_INET, address.substr(0, colon).c_str(), &at.sin_addr) == 1);
  REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
}

Wire::~Wire() {
  if (fd_ >= 0) ::close(fd_);
}

Wire::Wire(Wire&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), over_(other.over_), read_(std::move(other.read_)) {}

bool Wire::send(ConstBytes bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

/// Reads until so many bytes are there.
bool Wire::fill(std::size_t bytes) {
  const auto end = std::chrono::steady_clock::now() + k_patience;
  while (read_.size() < bytes && !over_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd query{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&query, 1, static_cast<int>(left.count())) <= 0) continue;
    std::byte buffer[65536];
    const ssize_t count = ::recv(fd_, buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) over_ = true;
    if (count > 0) read_.insert(read_.end(), buffer, buffer + count);
  }
  return read_.size() >= bytes;
}

std::optional<ByteVector> Wire::take(std::size_t bytes) {
  if (!fill(bytes)) return std::nullopt;
  const auto end = read_.begin() + static_cast<std::ptrdiff_t>(bytes);
  ByteVector taken(read_.begin(), end);
  read_.erase(read_.begin(), end);
  return taken;
}

std::optional<Frame> Wire::next() {
  Frame frame;
  const auto header = take(wire::k_header_bytes);
  if (!header) return std::nullopt;
  const auto decoded = wire::decode_header(std::span<const std::byte>(*header).first<wire::k_header_bytes>());
  REQUIRE(decoded.has_value());
  frame.header = *decoded;
  auto body = take(decoded->body_bytes);
  if (!body) return std::nullopt;
  frame.body = std::move(*body);
  auto payload = take(decoded->payload_bytes);
  if (!payload) return std::nullopt;
  frame.payload = std::move(*payload);
  return frame;
}

std::optional<Frame> Wire::next(wire::FrameType type) {
  for (;;) {
    auto frame = next();
    if (!frame || frame->header.type == type) return frame;
  }
}

bool Wire::ends() {
  while (next()) {
  }
  return over_;
}

bool Wire::ended() {
  std::byte buffer[65536];
  while (!over_) {
    const ssize_t count = ::recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (count <= 0) over_ = true;
    if (count > 0) read_.insert(read_.end(), buffer, buffer + count);
  }
  return over_;
}

// ---- the peer ----

wire::FrameHeader Session::header(wire::FrameType type, bool numbered) {
  wire::FrameHeader header;
  header.type = type;
  header.session = welcome.session;
  header.link_id = hello.link_id;
  header.link_gen = welcome.link_gen;
  if (numbered) header.link_seq = ++sent;
  return header;
}

Impostor::Impostor(std::string store, Rank rank, std::uint32_t world_size, Rank target)
    : url_(std::move(store)), looked_up_(target), world_size_(world_size) {
  own_.peer_id = {.high = 0x696d706f73746f72U, .low = rank + 1U};
  own_.incarnation = 1000;
  own_.rank = rank;
  claim();
}

void Impostor::be_born_again() {
  own_.incarnation += 1;
  own_.birth = 0;
  claim();
}

void Impostor::claim() {
  store_.reset();
  store_.emplace(url_.substr(url_.find("//") + 2));
  wire::FrameHeader header;
  header.type = wire::FrameType::store_claim;
  wire::StoreClaim claim;
  claim.world_size = world_size_;
  claim.endpoints = own_;
  REQUIRE(store_->send(frame_of(header, body_of(claim))));
  const auto claimed = store_->next(wire::FrameType::store_claimed);
  wire::StoreClaimed answer;
  REQUIRE(claimed.has_value());
  REQUIRE(decode_body(ConstBytes(claimed->body), answer));
  REQUIRE(answer.code == 0);
  own_.birth = answer.birth;
  header.type = wire::FrameType::store_lookup;
  REQUIRE(store_->send(frame_of(header, body_of(wire::StoreLookup{looked_up_}))));
  const auto member = store_->next(wire::FrameType::store_member);
  wire::StoreMember notice;
  REQUIRE(member.has_value());
  REQUIRE(decode_body(ConstBytes(member->body), notice));
  REQUIRE(notice.present == 1);
  target_ = notice.endpoints;
  REQUIRE_FALSE(target_.addresses.empty());
}

wire::Hello Impostor::hello() const {
  wire::Hello hello;
  hello.peer_id = own_.peer_id;
  hello.incarnation = own_.incarnation;
  hello.birth = own_.birth;
  hello.rank = own_.rank;
  hello.world_size = world_size_;
  hello.target_peer_id = target_.peer_id;
  hello.target_incarnation = target_.incarnation;
  hello.link_gen = 1;
  hello.lease_ms = wire::k_lease_ms_max;
  hello.tx_depth = hello.rx_depth = 32;
  hello.kind = LinkKind::tcp;
  hello.link_id = k_tcp_link;
  return hello;
}

ByteVector Impostor::bytes_of(const wire::Hello& hello) {
  wire::FrameHeader header;
  header.type = wire::FrameType::hello;
  return frame_of(header, body_of(hello));
}

std::optional<Frame> Impostor::ask(Wire& wire, ConstBytes hello) const {
  static_cast<void>(wire.send(hello));
  return wire.next();
}

Session Impostor::enter(wire::Hello hello) const {
  for (bool again = false;; again = true) {
    Session session{.wire = Wire(target()), .hello = hello, .hello_bytes = bytes_of(hello), .welcome = {}};
    const auto answer = ask(session.wire, session.hello_bytes);
    REQUIRE(answer.has_value());
    if (wire::Reject reject; !again && answer->header.type == wire::FrameType::reject) {
      REQUIRE(decode_body(ConstBytes(answer->body), reject));
      REQUIRE(reject.reason == wire::RejectReason::old_generation);
      hello.link_gen = reject.link_gen + 1;
      continue;
    }
    REQUIRE(answer->header.type == wire::FrameType::welcome);
    REQUIRE(decode_body(ConstBytes(answer->body), session.welcome));
    return session;
  }
}

}  // namespace hixl::test
