// SPDX-License-Identifier: Apache-2.0
#include "runtime/virtual_stream.hpp"

#include <cerrno>
#include <string>
#include <utility>

namespace hixl::runtime {

using State = IoResult::State;

namespace {

class VirtualStream final : public Stream {
 public:
  VirtualStream(VirtualNet& net, std::uint64_t id, int side) : net_(net), id_(id), side_(side) {}
  VirtualStream(const VirtualStream&) = delete;
  VirtualStream& operator=(const VirtualStream&) = delete;
  ~VirtualStream() override {
    if (auto* connection = net_.find(id_)) net_.close_end(*connection, side_);
  }

  void set_events(StreamEvents* events) override {
    auto* connection = net_.find(id_);
    if (connection == nullptr || !end(*connection).open) return;
    end(*connection).events = events;
    net_.want_readable(*connection, side_);
  }
  IoResult write(std::span<const iovec> pieces, std::span<const int> fds) override {
    auto* connection = net_.find(id_);
    if (connection == nullptr || !end(*connection).open) return {State::failed, 0, EPIPE};
    if (!fds.empty()) return {State::failed, 0, EOPNOTSUPP};  // descriptors do not exist in this world
    return net_.write(*connection, side_, pieces);
  }
  IoResult read(std::span<const iovec> pieces, std::vector<Fd>*) override {
    auto* connection = net_.find(id_);
    if (connection == nullptr || !end(*connection).open) return {State::failed, 0, ECONNRESET};
    return net_.read(*connection, side_, pieces);
  }
  void want_read(bool on) override {
    auto* connection = net_.find(id_);
    if (connection == nullptr) return;
    end(*connection).want_read = on;
    net_.want_readable(*connection, side_);
  }
  [[nodiscard]] std::uint64_t bytes_delivered() override {
    const auto* connection = net_.find(id_);
    return connection == nullptr ? 0 : connection->to[static_cast<std::size_t>(1 - side_)].delivered();
  }
  [[nodiscard]] std::string remote_text() const override { return "virtual:" + std::to_string(id_); }
  [[nodiscard]] Credentials credentials() const override {
    const auto* connection = net_.find(id_);
    if (connection == nullptr || connection->address.family != Address::Family::unix_abstract) return {};
    const ProcessId peer = connection->ends[static_cast<std::size_t>(1 - side_)].process;
    return {.pid = static_cast<std::int32_t>(peer) + 1, .uid = 0};
  }

 private:
  [[nodiscard]] VirtualEnd& end(VirtualNet::Connection& connection) const {
    return connection.ends[static_cast<std::size_t>(side_)];
  }
  VirtualNet& net_;
  std::uint64_t id_;
  int side_;
};

class VirtualListener final : public Listener {
 public:
  VirtualListener(VirtualNet& net, std::uint64_t id, Address address)
      : net_(net), id_(id), address_(std::move(address)) {}
  VirtualListener(const VirtualListener&) = delete;
  VirtualListener& operator=(const VirtualListener&) = delete;
  ~VirtualListener() override { net_.close_listener(id_); }
  [[nodiscard]] const Address& address() const override { return address_; }

 private:
  VirtualNet& net_;
  std::uint64_t id_;
  Address address_;
};

}  // namespace

std::unique_ptr<Stream> make_virtual_stream(VirtualNet& net, std::uint64_t id, int side) {
  return std::make_unique<VirtualStream>(net, id, side);
}

std::unique_ptr<Listener> make_virtual_listener(VirtualNet& net, std::uint64_t id, Address address) {
  return std::make_unique<VirtualListener>(net, id, std::move(address));
}

}  // namespace hixl::runtime
