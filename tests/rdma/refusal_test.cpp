// SPDX-License-Identifier: Apache-2.0
//
// Where RDMA cannot be had: a rank that insists on it is refused with the reason, one that does not goes on over tcp,
// and says so once.
#include <sys/stat.h>

#include "rails.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::size_t times(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Root without the right to lock more than the limit says.
const std::vector<std::string> k_limited = {"/usr/bin/setpriv", "--inh-caps=-ipc_lock", "--bounding-set=-ipc_lock"};
/// Somebody who may not open the devices.
const std::vector<std::string> k_nobody = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};

/// Ends the rank that a forced `roce` is refused; what it said.
std::string refused(const std::vector<std::string>& prefix, const std::vector<std::string>& environment,
                    const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> words = prefix;
  words.push_back(settings().rank_program);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> all = {"HIXL_RANK=0", "HIXL_WORLD_SIZE=1", "HIXL_STORE=", "HIXL_LINKS=roce"};
  all.insert(all.end(), environment.begin(), environment.end());
  Child rank(words.front(), {words.begin() + 1, words.end()}, all);
  CHECK(rank.wait() == 3);
  return rank.log();
}

/// Both go on over tcp, which each says once.
void require_tcp(Twins& twins) {
  twins.require_traffic();
  twins.begin_stream(8);
  twins.require_stream_whole();
  CHECK(twins.bytes_out(0, "roce") == 0);
  CHECK(twins.bytes_out(0, "tcp") >= 8 * k_block);
}

}  // namespace

TEST_CASE("no such device: a forced roce is refused with its name") {
  const std::string said = refused({}, {"HIXL_RDMA_DEVICES=nosuch0"});
  CHECK_MESSAGE(has(said, "TRANSPORT_UNAVAILABLE"), said);
  CHECK_MESSAGE(has(said, "nosuch0"), said);
}

TEST_CASE("S65 no device at all: a forced roce is refused, and otherwise tcp carries and says so once") {
  devices("remove 0; $HIXL_TEST_DEVICES remove 1");
  const std::string said = refused({}, {});
  CHECK_MESSAGE(has(said, "TRANSPORT_UNAVAILABLE"), said);
  CHECK_MESSAGE(has(said, "no RDMA device"), said);
  Twins twins({.links = "roce,tcp"});
  require_tcp(twins);
  CHECK_MESSAGE(times(twins[0].log(), "roce") == 1, twins[0].log());
}

TEST_CASE("every port is down: a forced roce is refused, and otherwise tcp carries") {
  devices("down 0; $HIXL_TEST_DEVICES down 1");
  const std::string said = refused({}, {});
  CHECK_MESSAGE(has(said, "TRANSPORT_UNAVAILABLE"), said);
  CHECK_MESSAGE(has(said, "down"), said);
  Twins twins({.links = "roce,tcp"});
  require_tcp(twins);
}

TEST_CASE("no right to open the devices: a forced roce is refused with the file, and otherwise tcp carries") {
  for (const char* file : {"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1"}) REQUIRE(chmod(file, 0600) == 0);
  const std::string said = refused(k_nobody, {});
  CHECK_MESSAGE(has(said, "TRANSPORT_UNAVAILABLE"), said);
  CHECK_MESSAGE(has(said, "ermission"), said);
  Twins twins({.links = "roce,tcp", .prefix = k_nobody});
  require_tcp(twins);
}

TEST_CASE("P23 ulimit -l 64: a forced roce is refused with the limit, and otherwise tcp carries") {
  const std::string said = refused(k_limited, {}, {"--memlock-kib", "64"});
  CHECK_MESSAGE(has(said, "locked-memory"), said);
  CHECK_MESSAGE(has(said, "ulimit -l"), said);
  Twins twins({.links = "roce,tcp", .arguments = {"--memlock-kib", "64"}, .prefix = k_limited});
  require_tcp(twins);
}

TEST_CASE("two ranks that have no rail in common: tcp carries") {
  // A device here reaches itself alone, so rank 0 on one and rank 1 on the other have no route.
  Twins twins({.links = "roce,tcp", .environment_of = {{"HIXL_RDMA_DEVICES=rxe0"}, {"HIXL_RDMA_DEVICES=rxe1"}}});
  require_tcp(twins);
}
