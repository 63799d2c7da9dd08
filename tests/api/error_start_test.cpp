// SPDX-License-Identifier: Apache-2.0
//
// What keeps a runtime from starting: options, environment, rendezvous, ports, names. Each with its own code.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <optional>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

/// A socket on a free loopback port, with or without anybody listening.
class Socket {
 public:
  explicit Socket(bool listening) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&address), length) == 0);
    if (listening) REQUIRE(::listen(fd_, 16) == 0);
    REQUIRE(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    url_ = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~Socket() { ::close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  [[nodiscard]] const std::string& url() const { return url_; }

 private:
  int fd_;
  std::string url_;
};

/// Sets one variable and puts it back.
class Variable {
 public:
  Variable(const char* variable, const char* value) : name_(variable) {
    if (const char* old = std::getenv(variable)) old_ = old;
    if (value != nullptr) ::setenv(variable, value, 1);
    if (value == nullptr) ::unsetenv(variable);
  }
  ~Variable() {
    if (old_) ::setenv(name_, old_->c_str(), 1);
    if (!old_) ::unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

Error start_error(const RuntimeOptions& options) {
  const auto runtime = Runtime::create(options);
  return runtime ? Error() : runtime.error();
}

}  // namespace

TEST_CASE("every option has a range, and what is outside says which limit it met") {
  struct Option {
    const char* text;
    std::uint64_t low, high;
    std::function<void(RuntimeOptions&, std::uint64_t)> set;
  };
  const auto number = [](std::uint32_t RuntimeOptions::*member) {
    return [member](RuntimeOptions& o, std::uint64_t v) { o.*member = static_cast<std::uint32_t>(v); };
  };
  const auto time = [](std::chrono::milliseconds RuntimeOptions::*member) {
    return [member](RuntimeOptions& o, std::uint64_t v) {
      o.*member = std::chrono::milliseconds(static_cast<std::int64_t>(v));
    };
  };
  using O = RuntimeOptions;
  const Option table[] = {
      {"world_size", 1, 65536, number(&O::world_size)},
      {"tx_depth", 1, 1024, number(&O::tx_depth)},
      {"rx_depth", 1, 1024, number(&O::rx_depth)},
      {"max_inline", 0, 256, number(&O::max_inline)},
      {"chunk_bytes", 4096, 4U << 20U, number(&O::chunk_bytes)},
      {"requests_max", 2, 131072, number(&O::requests_max)},
      {"regions_max", 1, 1U << 20U, number(&O::regions_max)},
      {"peers_max", 1, 65536, number(&O::peers_max)},
      {"default_timeout", 1, 3'600'000, time(&O::default_timeout)},
      {"connect_timeout", 10, 600'000, time(&O::connect_timeout)},
      {"lease", 500, 60'000, time(&O::lease)},
      {"spin_us", 0, 10'000, number(&O::spin_us)},
      {"copy_engines", 1, 8, number(&O::copy_engines)},
  };
  const auto with = [](const Option& option, std::uint64_t value) {
    RuntimeOptions options;
    options.store = "tcp://127.0.0.1:1";
    option.set(options, value);
    return options;
  };
  for (const Option& option : table) {
    CAPTURE(option.text);
    require_ok(with(option, option.low).validate());
    require_ok(with(option, option.high).validate());
    std::vector<std::uint64_t> outside{option.high + 1};
    if (option.low > 0) outside.push_back(option.low - 1);
    for (const std::uint64_t value : outside) {
      const auto options = with(option, value);
      const auto valid = options.validate();
      REQUIRE(code_of(valid) == ErrorCode::invalid_argument);
      CHECK(valid.error().detail.stage == Stage::options);
      CHECK(valid.error().detail.length == value);
      CHECK(valid.error().detail.limit == (value > option.high ? option.high : option.low));
      CHECK(start_error(options).code == ErrorCode::invalid_argument);  // create() asks too
    }
  }
  RuntimeOptions options;
  options.default_timeout = -1ms;
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);
  options = {};
  options.lease = -1ms;
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);
  options = {};
  options.rank = 1;
  const auto beyond = options.validate();
  CHECK(code_of(beyond) == ErrorCode::rank_out_of_range);
  CHECK(beyond.error().detail.rank == 1);
  CHECK(beyond.error().detail.limit == 1);
  options = {};
  options.world_size = 2;
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);  // two ranks and no store
  options = {};
  options.host_store = true;
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);  // a store, but where?
  options = {};
  options.bind = "";
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);
}

TEST_CASE("the environment is read whole or refused") {
  const char* const variables[] = {"HIXL_RANK",          "HIXL_WORLD_SIZE", "HIXL_STORE",         "HIXL_LINKS",
                                   "HIXL_BIND",          "HIXL_ADVERTISE",  "HIXL_INSECURE",      "HIXL_POLL",
                                   "HIXL_PAYLOAD_CHECK", "HIXL_TCP_LINKS",  "HIXL_MAX_BANDWIDTH", "HIXL_POOLING"};
  std::vector<std::unique_ptr<Variable>> cleared;
  for (const char* variable : variables) cleared.push_back(std::make_unique<Variable>(variable, nullptr));
  require_ok(RuntimeOptions::from_environment());

  const std::pair<const char*, const char*> bad[] = {
      {"HIXL_RANK", "one"},
      {"HIXL_RANK", "-1"},
      {"HIXL_RANK", "1 "},
      {"HIXL_RANK", "4294967296"},
      {"HIXL_RANK", "0x1"},
      {"HIXL_WORLD_SIZE", "2x"},
      {"HIXL_WORLD_SIZE", "1e3"},
      {"HIXL_LINKS", "infiniband"},
      {"HIXL_LINKS", "tcp,hcss"},
      {"HIXL_LINKS", "tcp hccs"},
      {"HIXL_INSECURE", "yes"},
      {"HIXL_INSECURE", "2"},
      {"HIXL_POLL", "sometimes"},
      {"HIXL_POLL", "BUSY"},
      {"HIXL_PAYLOAD_CHECK", "1"},
      {"HIXL_TCP_LINKS", "17"},
      {"HIXL_TCP_LINKS", "two"},
      {"HIXL_MAX_BANDWIDTH", "1,"},
      {"HIXL_MAX_BANDWIDTH", "fast"},
      {"HIXL_POOLING", "all"},
      {"HIXL_RDMA_TIMEOUT", "0"},
      {"HIXL_RDMA_TIMEOUT", "22"},
      {"HIXL_RDMA_RETRY", "8"},
      {"HIXL_RDMA_SERVICE_LEVEL", "16"},
      {"HIXL_RDMA_TRAFFIC_CLASS", "256"},
      {"HIXL_RDMA_VISIBILITY", "write"},
  };
  for (const auto& [variable, value] : bad) {
    CAPTURE(variable);
    CAPTURE(value);
    const Variable set(variable, value);
    const auto options = RuntimeOptions::from_environment();
    REQUIRE(code_of(options) == ErrorCode::invalid_argument);
    CHECK(options.error().detail.stage == Stage::options);
  }
  const Variable rank("HIXL_RANK", "3"), size("HIXL_WORLD_SIZE", "4"), store("HIXL_STORE", "tcp://127.0.0.1:9");
  const Variable links("HIXL_LINKS", "tcp,hccs"), insecure("HIXL_INSECURE", "1"), poll("HIXL_POLL", "event");
  const Variable bind("HIXL_BIND", "127.0.0.2"), advertise("HIXL_ADVERTISE", "localhost");
  const Variable check("HIXL_PAYLOAD_CHECK", "crc32c");
  const Variable many("HIXL_TCP_LINKS", "3"), limits("HIXL_MAX_BANDWIDTH", "200000000,0"),
      all("HIXL_POOLING", "all_kinds");
  const Variable devices("HIXL_RDMA_DEVICES", "mlx5_0,mlx5_1:2"), service("HIXL_RDMA_SERVICE_LEVEL", "3");
  const Variable traffic("HIXL_RDMA_TRAFFIC_CLASS", "104"), timeout("HIXL_RDMA_TIMEOUT", "12");
  const Variable again("HIXL_RDMA_RETRY", "0"), visibility("HIXL_RDMA_VISIBILITY", "ack");
  const auto options = RuntimeOptions::from_environment();
  require_ok(options);
  CHECK(options->rank == 3);
  CHECK(options->world_size == 4);
  CHECK(options->store == "tcp://127.0.0.1:9");
  CHECK(options->links == std::vector<LinkKind>{LinkKind::tcp, LinkKind::hccs});
  CHECK(options->insecure);
  CHECK(options->payload_check == PayloadCheck::crc32c);
  CHECK(options->poll == PollMode::event);
  CHECK(options->tcp_links == 3);
  CHECK(options->max_bandwidth == std::vector<std::uint64_t>{200'000'000, 0});
  CHECK(options->pooling == Pooling::all_kinds);
  CHECK(options->rdma.devices == "mlx5_0,mlx5_1:2");
  CHECK(options->rdma.service_level == 3);
  CHECK(options->rdma.traffic_class == 104);
  CHECK(options->rdma.timeout == 12);
  CHECK(options->rdma.retry == 0);
  CHECK(options->rdma.visibility == RdmaVisibility::ack);
  CHECK(options->bind == "127.0.0.2");
  CHECK(options->advertise == "localhost");
  require_ok(options->validate());
}

TEST_CASE("a rank that cannot join says why") {
  World world(2);
  // The rank is held by a live runtime, with which all goes on.
  const Error conflict = start_error(options_for(1, 2, world.store_url()));
  CHECK(conflict.code == ErrorCode::rank_conflict);
  CHECK(conflict.detail.rank == 1);
  CHECK(conflict.detail.stage == Stage::rendezvous);
  const Error other_world = start_error(options_for(2, 3, world.store_url()));
  CHECK(other_world.code == ErrorCode::invalid_argument);
  CHECK(other_world.detail.limit == 2);
  CHECK(start_error(options_for(2, 2, world.store_url())).code == ErrorCode::rank_out_of_range);
  const auto a = world[0].allocate(4096);
  const auto b = world[1].allocate(4096);
  const auto table = world.exchange_all({*a, *b});
  require_ok(world[0].put_sync(a->data, table[0][1].at(0), 4096));

  // A rank that left makes room for the next.
  require_ok(world[1].stop());
  auto next = Runtime::create(options_for(1, 2, world.store_url()));
  require_ok(next);
}

TEST_CASE("a store that is not there is UNREACHABLE in time") {
  const auto start = [](const std::string& url) {
    auto options = options_for(0, 2, url);
    options.connect_timeout = 300ms;
    const auto begin = std::chrono::steady_clock::now();
    const Error error = start_error(options);
    CHECK(std::chrono::steady_clock::now() - begin >= 299ms);  // it may still be starting, so all the time is used
    return error;
  };
  const Socket nobody(false);
  const Error refused = start(nobody.url());
  CHECK(refused.code == ErrorCode::rendezvous_unreachable);
  CHECK(refused.detail.os_error == ECONNREFUSED);
  CHECK(refused.detail.stage == Stage::rendezvous);
  CHECK(refused.kind() == ErrorKind::retry_later);
  const Socket silent(true);  // accepts (the kernel does) and never answers
  const Error unanswered = start(silent.url());
  CHECK(unanswered.code == ErrorCode::rendezvous_unreachable);
  CHECK(unanswered.detail.stage == Stage::rendezvous);
}

TEST_CASE("addresses that cannot be had") {
  const Socket taken(true);
  auto options = options_for(0, 1, taken.url());
  options.host_store = true;
  CHECK(start_error(options).code == ErrorCode::address_in_use);
  CHECK(code_of(Store::create(taken.url())) == ErrorCode::address_in_use);

  options = options_for(0, 2, "tcp://no-such-host.invalid:4000");
  const Error unresolved = start_error(options);
  CHECK(unresolved.code == ErrorCode::host_unresolved);
  CHECK(unresolved.detail.stage == Stage::rendezvous);

  for (const char* url : {"", "tcp://", "127.0.0.1", "tcp://127.0.0.1:", "tcp://127.0.0.1:65536", "tcp://127.1:80",
                          "tcp://a b:1", "tcp://[::1:80", "udp://127.0.0.1:1", "tcp://127.0.0.1:1:2"}) {
    CAPTURE(url);
    CHECK(start_error(options_for(0, 2, url)).code == ErrorCode::invalid_argument);
    CHECK(code_of(Store::create(url)) == ErrorCode::invalid_argument);
  }
}

TEST_CASE("nothing listens beyond loopback without being told to") {
  for (const char* bind : {"0.0.0.0", "::", "192.0.2.1", "2001:db8::1"}) {
    CAPTURE(bind);
    RuntimeOptions options;
    options.bind = bind;
    const Error error = start_error(options);
    CHECK(error.code == ErrorCode::security_required);
    CHECK(error.detail.stage == Stage::bind);
    CHECK(error.kind() == ErrorKind::fix_call);
  }
  for (const char* url : {"tcp://0.0.0.0:0", "tcp://[::]:0"}) {
    CAPTURE(url);
    CHECK(code_of(Store::create(url)) == ErrorCode::security_required);
    auto options = options_for(0, 1, url);
    options.host_store = true;
    CHECK(start_error(options).code == ErrorCode::security_required);
  }
  RuntimeOptions options;
  options.bind = "0.0.0.0";
  options.insecure = true;
  require_ok(Runtime::create(options));
  options.bind = "192.0.2.1";  // nobody's: reserved for documentation
  CHECK(start_error(options).detail.os_error == EADDRNOTAVAIL);
}

TEST_CASE("a forced link kind that is not there is an error, among others it is left out") {
  for (const LinkKind kind : {LinkKind::roce, LinkKind::ub, LinkKind::sim}) {
    CAPTURE(name(kind));
    RuntimeOptions options;
    options.rdma.devices = "hixl-none";  // a card that no machine has, since this one may have others
    options.links = {kind};
    CHECK(start_error(options).code == ErrorCode::transport_unavailable);
    options.links = {kind, LinkKind::tcp};
    require_ok(Runtime::create(options));
  }
  RuntimeOptions options;
  options.rdma.devices = "hixl-none";
  options.links = {LinkKind::roce, LinkKind::ub};
  CHECK(start_error(options).code == ErrorCode::transport_unavailable);
}

TEST_CASE("nothing stays behind of starts that failed") {
  static_cast<void>(start_error(options_for(0, 2, "tcp://127.0.0.1:1:1")));
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 20; ++i) {
    RuntimeOptions options;
    options.bind = "0.0.0.0";
    CHECK(start_error(options).code == ErrorCode::security_required);
    options = {};
    options.links = {LinkKind::ub};
    CHECK(start_error(options).code == ErrorCode::transport_unavailable);
    const Socket taken(true);
    options = options_for(0, 1, taken.url());
    options.host_store = true;
    CHECK(start_error(options).code == ErrorCode::address_in_use);
  }
  CHECK(open_descriptors() == before);
}
