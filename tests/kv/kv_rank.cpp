// SPDX-License-Identifier: Apache-2.0
//
// Rank 1 of a test with processes: links with rank 0, whose cache it uses, and does what it is told by lines.
//
//   begin pull|push HEX   with the ticket of those bytes: layer by layer, the first of them; "inside" when that is done
//   stream pull|push      whole transfers without a ticket, without end; "moving" when the first of them has ended
//   go                    the other layers; the name of what the transfer has ended with
//   try HEX               a whole pull with that ticket; the name of what it has ended with
//   free                  takes its own cache back, in which rank 0 may be; the name of what that has ended with
//   quit                  closes and ends with 0
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>

#include <hixl/kv/data_dist.hpp>

#include "kv_shape.hpp"

namespace {

using namespace hixl;
using namespace hixl::kv;

template <class T>
T value_of(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "kv rank: %s\n", result.error().message().c_str());
  std::_Exit(3);
}
void check(const Result<void>& result) {
  if (result) return;
  std::fprintf(stderr, "kv rank: %s\n", result.error().message().c_str());
  std::_Exit(3);
}

void say(std::string_view line) {
  std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc != 4) return 2;
  RuntimeOptions options;
  options.rank = 1;
  options.world_size = 2;
  options.store = argv[1];
  if (std::strcmp(argv[2], "tcp") == 0) options.links = {LinkKind::tcp};
  options.lease = std::chrono::milliseconds(std::atoi(argv[3]));
  auto runtime = value_of(Runtime::create(options));
  auto dist = value_of(DataDist::open(*runtime));
  const CacheDesc desc = kv::test::process_cache();
  const auto memory = value_of(runtime->allocate(cache_bytes(desc.layout, desc.blocks).value()));
  const TensorPlace place{.region = memory, .offset = 0};
  const CacheId cache = value_of(dist->register_cache(desc, {&place, 1}));
  const Rank zero = 0;
  check(dist->link({&zero, 1}, std::chrono::seconds(60)).front());
  const RemoteCache remote = value_of(dist->find(0, desc.key));
  say("ready");

  Transfer open;
  char line[4096];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    std::istringstream words(line);
    std::string verb;
    std::string how;
    words >> verb;
    if (verb == "quit") break;
    Slice slice;
    slice.source = slice.target = kv::test::k_process_blocks;
    if (verb == "begin") {
      std::string hex;
      words >> how >> hex;
      const LeaseTicket ticket = kv::test::from_hex(hex);
      const TransferOptions moving{.timeout = std::chrono::minutes(5), .ticket = &ticket, .layered = true};
      open =
          value_of(how == "pull" ? dist->pull(cache, remote, slice, moving) : dist->push(cache, remote, slice, moving));
      check(open.ready(0));
      while (open.progress().layers_done == 0 && !open.query()) std::this_thread::yield();
      say("inside");
    } else if (verb == "stream") {
      words >> how;
      for (bool first = true;; first = false) {
        check(value_of(how == "pull" ? dist->pull(cache, remote, slice) : dist->push(cache, remote, slice)).wait());
        if (first) say("moving");
      }
    } else if (verb == "go") {
      for (std::uint32_t layer = 1; layer < desc.layout.layers; ++layer) static_cast<void>(open.ready(layer));
      const auto result = open.wait();
      say(name(result ? ErrorCode::ok : result.error().code));
    } else if (verb == "free") {
      const auto result = dist->unregister_cache(cache, std::chrono::seconds(20));
      say(name(result ? ErrorCode::ok : result.error().code));
    } else if (verb == "try") {
      words >> how;
      const LeaseTicket ticket = kv::test::from_hex(how);
      const auto pulled = dist->pull(cache, remote, slice, {.ticket = &ticket});
      const auto result = pulled ? pulled->wait() : Result<void>(fail(pulled.error()));
      say(name(result ? ErrorCode::ok : result.error().code));
    }
  }
  check(dist->close());
  return 0;
}
