// SPDX-License-Identifier: Apache-2.0
//
// Ranks and their rendezvous, by the public interface: kinds of store, stores that die and come back, addresses of both
// families, names, and what is said when there is nothing to reach.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <thread>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

class Folder {
 public:
  Folder() {
    path_ = (std::filesystem::temp_directory_path() / "hixl-ranks-XXXXXX").string();
    REQUIRE(::mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file() const { return path_ + "/ranks"; }
  [[nodiscard]] bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

std::string local_name(const char* what) {
  static int next = 0;
  return "unix:@hixl-test-" + std::to_string(::getpid()) + "-" + what + std::to_string(++next);
}

/// One rank with a region, which meets others and puts into theirs.
struct Party {
  explicit Party(const RuntimeOptions& options) {
    auto made = Runtime::create(options);
    require_ok(made);
    runtime = std::move(*made);
    auto got = runtime->allocate(1U << 16U);
    require_ok(got);
    region = *got;
  }
  void begin(Rank other) {
    answer = std::make_unique<Answer<std::vector<PeerAddresses>>>();
    require_ok(
        runtime->exchange_async(std::span(&region, 1), std::span(&other, 1), k_patience, store_answers, answer.get()));
  }
  RemoteRegion finish() {
    REQUIRE(answer->wait());
    require_ok(answer->value.front().result);
    return answer->value.front().regions.front();
  }
  std::unique_ptr<Runtime> runtime;
  Region region;
  std::unique_ptr<Answer<std::vector<PeerAddresses>>> answer;
};

struct Pair {
  RemoteRegion of_a, of_b;
};
Pair meet(Party& a, Party& b) {
  a.begin(b.runtime->rank());
  b.begin(a.runtime->rank());
  const RemoteRegion of_b = a.finish();
  return {b.finish(), of_b};
}
void require_traffic(Party& from, Party& to, const RemoteRegion& remote, std::uint64_t seed) {
  fill_pattern(from.region.data, 4096, seed);
  require_ok(from.runtime->put_sync(from.region.data, remote.at(8192), 4096, k_patience));
  REQUIRE(holds_pattern(to.region.data + 8192, 4096, seed));
}
RuntimeOptions options_at(Rank rank, const std::string& store, std::vector<LinkKind> links = {}) {
  return options_for(rank, 4, store, std::move(links));
}

}  // namespace

TEST_CASE("a file and a local name are stores like any other, and nothing is left of them") {
  const Folder folder;
  for (const std::string& url : {"file://" + folder.file(), local_name("kinds")}) {
    CAPTURE(url);
    std::unique_ptr<Store> store;
    if (url.starts_with("unix:")) {
      auto made = Store::create(url);
      require_ok(made);
      CHECK((*made)->url() == url);
      store = std::move(*made);
      CHECK(code_of(Store::create(url)) == ErrorCode::address_in_use);
    }
    Party a(options_at(0, url));
    Party b(options_at(3, url));
    const Pair pair = meet(a, b);
    require_traffic(a, b, pair.of_b, 1);
    require_traffic(b, a, pair.of_a, 2);
    CHECK(code_of(Runtime::create(options_at(3, url))) == ErrorCode::rank_conflict);
    CHECK(code_of(Runtime::create(options_for(1, 5, url))) == ErrorCode::invalid_argument);
    require_ok(b.runtime->stop());
    require_ok(Runtime::create(options_at(3, url)));
  }
  CHECK(folder.empty());
}

TEST_CASE("files that cannot serve") {
  const Folder folder;
  for (const char* url : {"file://", "file:///", "file://relative", "file://host/path", "file:///ends/in/", "file:/a",
                          "unix:@", "unix:name"}) {
    CAPTURE(url);
    CHECK(code_of(Runtime::create(options_at(0, url))) == ErrorCode::invalid_argument);
  }
  auto options = options_at(0, "file://" + folder.file() + "/not/there");
  const auto missing = Runtime::create(options);
  CHECK(code_of(missing) == ErrorCode::rendezvous_unreachable);
  CHECK(missing.error().detail.os_error == ENOENT);
  CHECK(missing.error().detail.stage == Stage::rendezvous);
  options.store = "file://" + folder.file();
  options.host_store = true;  // a file has no host
  CHECK(code_of(Runtime::create(options)) == ErrorCode::invalid_argument);
  CHECK(code_of(Store::create(options.store)) == ErrorCode::invalid_argument);
  CHECK(folder.empty());
}

TEST_CASE("WRONG_JOB: two jobs that come to one store do not meet") {
  const Folder folder;
  auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  for (const std::string& url : {(*store)->url(), "file://" + folder.file()}) {
    CAPTURE(url);
    auto first = options_at(0, url);
    first.job = "training 17";
    const auto runtime = Runtime::create(first);
    require_ok(runtime);
    auto second = options_at(1, url);
    second.job = "training 18";
    const auto refused = Runtime::create(second);
    CHECK(code_of(refused) == ErrorCode::wrong_job);
    CHECK(refused.error().kind() == ErrorKind::fix_call);
    second.job = "training 17";
    require_ok(Runtime::create(second));
  }
}

TEST_CASE("S67 P73 the store dies and comes back: transfers go on, joins fail in time, then all learn of a late rank") {
  auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  const std::string url = (*store)->url();
  Party a(options_at(0, url));
  Party b(options_at(1, url));
  const Pair pair = meet(a, b);
  a.begin(2);  // waits for a rank that is not there yet
  store->reset();
  for (std::uint64_t round = 0; round < 20; ++round) {
    require_traffic(a, b, pair.of_b, round);
    require_traffic(b, a, pair.of_a, round);
  }
  auto late_options = options_at(2, url);
  late_options.connect_timeout = 200ms;
  const auto nobody = Runtime::create(late_options);
  CHECK(code_of(nobody) == ErrorCode::rendezvous_unreachable);
  CHECK(nobody.error().detail.os_error == ECONNREFUSED);
  CHECK(nobody.error().message().find("at " + url.substr(6)) != std::string::npos);  // names the address

  store = Store::create(url);
  require_ok(store);
  late_options.connect_timeout = k_patience;
  Party late(late_options);
  late.begin(0);
  const RemoteRegion of_late = a.finish();
  const RemoteRegion of_a = late.finish();
  require_traffic(a, late, of_late, 7);
  require_traffic(late, a, of_a, 8);
  const Pair second = meet(b, late);
  require_traffic(b, late, second.of_b, 9);
  // The restarted store knows who is alive: their ranks are not given away.
  CHECK(code_of(Runtime::create(options_at(1, url))) == ErrorCode::rank_conflict);
  require_traffic(a, b, pair.of_b, 10);
}

TEST_CASE("hosted by rank 0: when it leaves the others go on, and meet newcomers when the next rank 0 hosts again") {
  const std::string url = local_name("hosted");
  const auto hosted = [&url](Rank rank) {
    auto options = options_at(rank, url);
    options.host_store = rank == 0;
    options.connect_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(k_patience);
    return options;
  };
  std::optional<Party> host(hosted(0));
  Party a(hosted(1));
  Party b(hosted(2));
  const Pair pair = meet(a, b);
  host.reset();
  require_traffic(a, b, pair.of_b, 1);
  const Pair again = meet(a, b);  // those that know each other need no store
  require_traffic(b, a, again.of_a, 2);
  auto options = hosted(3);
  options.connect_timeout = 100ms;
  CHECK(code_of(Runtime::create(options)) == ErrorCode::rendezvous_unreachable);
  host.emplace(hosted(0));
  Party newcomer(hosted(3));
  const Pair fresh = meet(a, newcomer);
  require_traffic(a, newcomer, fresh.of_b, 3);
}

TEST_CASE("P27 P28 P32 both families, their wildcards, and names: ranks meet over tcp") {
  struct Row {
    const char* store;
    const char* bind;
    const char* advertise;
    bool insecure;
  };
  const Row rows[] = {
      {"tcp://[::1]:0", "::1", "", false},
      {"tcp://[::1]:0", "[::1]", "[::1]", false},
      {"tcp://localhost:0", "localhost", "", false},
      {"tcp://localhost:0", "127.0.0.1", "localhost", false},
      {"tcp://[::ffff:127.0.0.1]:0", "::ffff:127.0.0.1", "", false},
      {"tcp://[::]:0", "::", "", true},
      {"tcp://0.0.0.0:0", "0.0.0.0", "", true},
      {"tcp://127.0.0.1:0", "127.0.0.2", "", false},
  };
  for (const Row& row : rows) {
    CAPTURE(row.store);
    CAPTURE(row.bind);
    auto store = Store::create(row.store, row.insecure);
    require_ok(store);
    const std::string url = (*store)->url();
    CHECK_FALSE(url.ends_with(":0"));  // P31: the real port
    const auto options = [&](Rank rank) {
      auto made = options_at(rank, url, {LinkKind::tcp});
      made.bind = row.bind;
      made.advertise = row.advertise;
      made.insecure = row.insecure;
      return made;
    };
    const bool wildcard = row.insecure;
    if (wildcard) {  // nobody can be told "0.0.0.0", and such a store does not say where we are
      CHECK(code_of(Runtime::create(options(0))) == ErrorCode::invalid_argument);
      continue;
    }
    Party a(options(0));
    Party b(options(1));
    const Pair pair = meet(a, b);
    require_traffic(a, b, pair.of_b, 1);
    require_traffic(b, a, pair.of_a, 2);
  }
  // A store on loopback: so is everybody.
  for (const auto& [url, bind] : {std::pair("tcp://127.0.0.1:0", "0.0.0.0"), std::pair("tcp://[::1]:0", "::")}) {
    CAPTURE(url);
    auto store = Store::create(url);
    require_ok(store);
    auto options = options_at(0, (*store)->url(), {LinkKind::tcp});
    options.bind = bind;
    options.insecure = true;
    Party a(options);
    options.rank = 1;
    Party b(options);
    const Pair pair = meet(a, b);
    require_traffic(a, b, pair.of_b, 3);
  }
}

TEST_CASE("P31 P32 F187 addresses that cannot be had say which and why") {
  const auto start = [](const std::string& bind, const std::string& advertise = "") {
    auto options = options_for(0, 1, "", {LinkKind::tcp});
    options.bind = bind;
    options.advertise = advertise;
    options.insecure = true;
    const auto runtime = Runtime::create(options);
    return runtime ? Error() : runtime.error();
  };
  const Error foreign = start("203.0.113.77");  // reserved for documentation
  CHECK(foreign.code == ErrorCode::address_not_local);
  CHECK(foreign.detail.os_error == EADDRNOTAVAIL);
  CHECK(foreign.message().find("at 203.0.113.77:0") != std::string::npos);
  CHECK(start("no-such-host.invalid").code == ErrorCode::host_unresolved);
  CHECK(start("fe80::1").code == ErrorCode::address_scope);
  CHECK(start("::1%lo").code == ErrorCode::address_scope);
  CHECK(start("fe80::1%no-such-if").detail.os_error == ENODEV);
  CHECK(start("127.0.0.1:80x").code == ErrorCode::invalid_argument);
  CHECK(start("127.0.0.1", "0.0.0.0").code == ErrorCode::invalid_argument);
  CHECK(start("127.0.0.1", "host:70000").code == ErrorCode::invalid_argument);
  CHECK(start("127.0.0.1", std::string(252, 'a')).code == ErrorCode::invalid_argument);
  const Error mixed = start("127.0.0.1", "fd00::7");
  CHECK(mixed.code == ErrorCode::family_mismatch);
  CHECK(mixed.message().find("[fd00::7]") != std::string::npos);
  CHECK(start("::1", "10.0.0.7").code == ErrorCode::family_mismatch);
  CHECK(start("127.0.0.1", "10.0.0.7").code == ErrorCode::ok);  // behind a translation of addresses

  auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  const auto taken = Store::create((*store)->url());
  REQUIRE(code_of(taken) == ErrorCode::address_in_use);
  CHECK(taken.error().detail.os_error == EADDRINUSE);
  CHECK(taken.error().message().find("at " + (*store)->url().substr(6)) != std::string::npos);
  // Who listens beyond loopback says so, however it is spelt.
  for (const char* url : {"tcp://203.0.113.77:0", "tcp://[::ffff:203.0.113.77]:0", "tcp://[2001:db8::7]:0"}) {
    CHECK(code_of(Store::create(url)) == ErrorCode::security_required);
  }
}

TEST_CASE("S68 F182 F186 a peer that cannot be reached: the error names the step, the address and the errno") {
  auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  const auto stranded = [&](const std::string& advertise) {
    auto options = options_at(1, (*store)->url(), {LinkKind::tcp});
    options.advertise = advertise;
    const auto peer = Runtime::create(options);
    require_ok(peer);
    Party a(options_at(0, (*store)->url(), {LinkKind::tcp}));
    const Rank other = 1;
    auto answers = a.runtime->exchange(std::span(&a.region, 1), std::span(&other, 1), 300ms);
    REQUIRE_FALSE(answers.front().result.has_value());
    return answers.front().result.error();
  };
  const Error refused = stranded("127.7.7.7");  // this host as well, and nobody listens there
  CHECK(refused.code == ErrorCode::connect_refused);
  CHECK(refused.detail.stage == Stage::connect);
  CHECK(refused.detail.os_error == ECONNREFUSED);
  CHECK(refused.detail.rank == 1);
  CHECK(refused.message().find("at 127.7.7.7:") != std::string::npos);
  const Error unresolved = stranded("no-such-host.invalid");
  CHECK(unresolved.code == ErrorCode::host_unresolved);
  CHECK(unresolved.detail.stage == Stage::resolve);
  CHECK(unresolved.detail.port != 0);
  // Nobody has come at all.
  Party a(options_at(0, (*store)->url(), {LinkKind::tcp}));
  const Rank other = 2;
  const auto absent = a.runtime->exchange(std::span(&a.region, 1), std::span(&other, 1), 100ms);
  CHECK(code_of(absent.front().result) == ErrorCode::deadline_exceeded);
  CHECK(absent.front().result.error().detail.stage == Stage::rendezvous);
}

TEST_CASE("S27 a listener that never accepts: CONNECT_TIMEOUT within the budget, and others are served meanwhile") {
  // A listener whose backlog is full swallows every further SYN, as a firewall does. A rank of our own that is told to
  // be there: its address is taken by a socket that nobody accepts from.
  const int door = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  REQUIRE(::bind(door, reinterpret_cast<sockaddr*>(&at), length) == 0);
  REQUIRE(::listen(door, 0) == 0);
  REQUIRE(::getsockname(door, reinterpret_cast<sockaddr*>(&at), &length) == 0);
  std::vector<int> crowd;
  for (int i = 0; i < 4; ++i) {
    crowd.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    static_cast<void>(!::connect(crowd.back(), reinterpret_cast<sockaddr*>(&at), length));
  }
  const std::string url = "tcp://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  Party a(options_at(0, (*store)->url()));
  Party b(options_at(1, (*store)->url()));
  const Pair pair = meet(a, b);
  std::thread newcomer([&url] {
    auto options = options_at(2, url);
    options.connect_timeout = 200ms;
    const auto runtime = Runtime::create(options);
    CHECK(code_of(runtime) == ErrorCode::rendezvous_unreachable);
    CHECK(runtime.error().detail.os_error == ETIMEDOUT);
    CHECK(runtime.error().message().find("at " + url.substr(6)) != std::string::npos);
  });
  for (std::uint64_t round = 0; round < 100; ++round) require_traffic(a, b, pair.of_b, round);
  newcomer.join();
  for (const int fd : crowd) ::close(fd);
  ::close(door);
}
