// SPDX-License-Identifier: Apache-2.0
//
// RuntimeOptions::from_environment() with the words of every launcher (F2): who we are, where the store is, and what is
// refused because it contradicts itself.
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr const char* k_variables[] = {
    "HIXL_RANK",
    "HIXL_WORLD_SIZE",
    "HIXL_STORE",
    "HIXL_PORT",
    "HIXL_JOB",
    "HIXL_LINKS",
    "HIXL_BIND",
    "HIXL_ADVERTISE",
    "HIXL_INSECURE",
    "HIXL_DIAG",
    "HIXL_POLL",
    "HIXL_PAYLOAD_CHECK",
    "HIXL_TCP_LINKS",
    "HIXL_MAX_BANDWIDTH",
    "HIXL_POOLING",
    "HIXL_RDMA_DEVICES",
    "HIXL_RDMA_TRAFFIC_CLASS",
    "HIXL_RDMA_SERVICE_LEVEL",
    "HIXL_RDMA_TIMEOUT",
    "HIXL_RDMA_RETRY",
    "HIXL_RDMA_VISIBILITY",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_NAMESPACE",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_NODES",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_JOBID",
    "MPI_LOCALNRANKS",
};

/// The environment of a launcher and nothing else of ours; puts back what was there.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> set) {
    for (const char* variable : k_variables) {
      if (const char* old = std::getenv(variable)) before_[variable] = old;
      ::unsetenv(variable);
    }
    for (const auto& [variable, value] : set) ::setenv(variable, value, 1);
  }
  ~Environment() {
    for (const char* variable : k_variables) ::unsetenv(variable);
    for (const auto& [variable, value] : before_) ::setenv(variable.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::string> before_;
};

using Set = std::initializer_list<std::pair<const char*, const char*>>;

RuntimeOptions read(Set set) {
  const Environment environment(set);
  const auto options = RuntimeOptions::from_environment();
  require_ok(options);
  return *options;
}
Error refusal(Set set) {
  const Environment environment(set);
  const auto options = RuntimeOptions::from_environment();
  return options ? Error() : options.error();
}

}  // namespace

TEST_CASE("F2 rank and size come from the first launcher that names both") {
  const Set sets[] = {
      {{"HIXL_RANK", "2"}, {"HIXL_WORLD_SIZE", "5"}},
      {{"RANK", "2"}, {"WORLD_SIZE", "5"}},
      {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "5"}},
      {{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "5"}},
      {{"PMI_RANK", "2"}, {"PMI_SIZE", "5"}},
      // Half a pair is no pair, and those that agree do not contradict.
      {{"RANK", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "5"}, {"SLURM_NTASKS", "9"}},
      {{"RANK", "2"}, {"WORLD_SIZE", "5"}, {"PMI_RANK", "2"}, {"PMI_SIZE", "5"}},
      {{"HIXL_RANK", "2"}, {"HIXL_WORLD_SIZE", "5"}, {"RANK", ""}, {"WORLD_SIZE", "9"}},
      // Our own names silence the others.
      {{"HIXL_RANK", "2"}, {"HIXL_WORLD_SIZE", "5"}, {"RANK", "0"}, {"WORLD_SIZE", "9"}, {"PMI_RANK", "x"}},
      // torchrun as a task of Slurm on each of two nodes.
      {{"RANK", "2"},
       {"WORLD_SIZE", "5"},
       {"GROUP_RANK", "1"},
       {"GROUP_WORLD_SIZE", "2"},
       {"SLURM_PROCID", "1"},
       {"SLURM_NTASKS", "2"}},
  };
  for (const Set& set : sets) {
    CAPTURE(set.begin()->first);
    const RuntimeOptions options = read(set);
    CHECK(options.rank == 2);
    CHECK(options.world_size == 5);
    CHECK(options.store.empty());
  }
  const RuntimeOptions alone = read({});
  CHECK(alone.rank == 0);
  CHECK(alone.world_size == 1);
  CHECK(read({{"RANK", "3"}}).rank == 0);
}

TEST_CASE("launchers that contradict each other are refused, and so is half of ours") {
  const Error rank = refusal({{"RANK", "2"}, {"WORLD_SIZE", "5"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "5"}});
  CHECK(rank.code == ErrorCode::invalid_argument);
  CHECK(rank.detail.length == 3);
  CHECK(rank.detail.limit == 2);
  const Error size = refusal(
      {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "5"}, {"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "6"}});
  CHECK(size.code == ErrorCode::invalid_argument);
  CHECK(size.detail.length == 6);
  CHECK(size.detail.limit == 5);
  // Slurm's numbers of another agent than torchrun's.
  CHECK(refusal({{"RANK", "2"},
                 {"WORLD_SIZE", "5"},
                 {"GROUP_RANK", "0"},
                 {"GROUP_WORLD_SIZE", "2"},
                 {"SLURM_PROCID", "1"},
                 {"SLURM_NTASKS", "2"}})
            .code == ErrorCode::invalid_argument);
  CHECK(refusal({{"HIXL_RANK", "0"}}).code == ErrorCode::invalid_argument);
  CHECK(refusal({{"HIXL_WORLD_SIZE", "2"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}}).code == ErrorCode::invalid_argument);
}

TEST_CASE("numbers of launchers have ranges") {
  const std::pair<const char*, const char*> pairs[] = {{"HIXL_RANK", "HIXL_WORLD_SIZE"},
                                                       {"RANK", "WORLD_SIZE"},
                                                       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                       {"SLURM_PROCID", "SLURM_NTASKS"},
                                                       {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& [rank, size] : pairs) {
    CAPTURE(rank);
    for (const char* value : {"-1", "x", "1 ", "0x1", "65536", "4294967296", "1.5"}) {
      CAPTURE(value);
      CHECK(refusal({{rank, value}, {size, "65536"}}).code == ErrorCode::invalid_argument);
    }
    for (const char* value : {"0", "65537", "two", "-4"}) {
      CAPTURE(value);
      const Error error = refusal({{rank, "0"}, {size, value}});
      CHECK(error.code == ErrorCode::invalid_argument);
      CHECK(error.detail.stage == Stage::options);
    }
    const Error beyond = refusal({{rank, "5"}, {size, "5"}});
    CHECK(beyond.code == ErrorCode::rank_out_of_range);
    CHECK(beyond.detail.rank == 5);
    CHECK(beyond.detail.limit == 5);
    CHECK(read({{rank, "65535"}, {size, "65536"}}).world_size == 65536);
  }
}

TEST_CASE("the store is at MASTER_ADDR with a port of our own, and rank 0 hosts it") {
  const auto torchrun = [](const char* rank, const char* host) {
    return read({{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", host}, {"MASTER_PORT", "29500"}});
  };
  const RuntimeOptions first = torchrun("0", "127.0.0.1");
  CHECK(first.store == "tcp://127.0.0.1:" + std::to_string(k_store_port));
  CHECK(first.host_store);
  CHECK(first.job == "torchrun/127.0.0.1/29500");
  const RuntimeOptions second = torchrun("1", "127.0.0.1");
  CHECK(second.store == first.store);
  CHECK(second.job == first.job);
  CHECK_FALSE(second.host_store);
  CHECK(torchrun("1", "node-7.example").store == "tcp://node-7.example:" + std::to_string(k_store_port));
  CHECK(torchrun("1", "fd00::7").store == "tcp://[fd00::7]:" + std::to_string(k_store_port));  // as torch writes it
  CHECK(torchrun("1", "::ffff:10.0.0.7").store == "tcp://10.0.0.7:" + std::to_string(k_store_port));

  CHECK(read({{"HIXL_RANK", "0"}, {"HIXL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}, {"HIXL_PORT", "1"}}).store ==
        "tcp://[::1]:1");
  const RuntimeOptions explicit_store =
      read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"HIXL_STORE", "tcp://b:1"}});
  CHECK(explicit_store.store == "tcp://b:1");
  CHECK_FALSE(explicit_store.host_store);             // whoever wrote the address hosts it
  CHECK(read({{"MASTER_ADDR", "a"}}).store.empty());  // alone in the world

  CHECK(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "fe80::1"}}).code == ErrorCode::address_scope);
  for (const char* host : {"a:80", "tcp://a", "10.0.0", " a", "[::1]"}) {
    CAPTURE(host);
    CHECK(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", host}}).code == ErrorCode::invalid_argument);
  }
  for (const char* port : {"0", "65536", "http", "-1", "80 "}) {
    CAPTURE(port);
    CHECK(refusal({{"HIXL_PORT", port}}).code == ErrorCode::invalid_argument);
  }
  // The port of torch's own store cannot be ours.
  const auto own = std::to_string(k_store_port);
  CHECK(refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", own.c_str()}}).code ==
        ErrorCode::invalid_argument);
}

TEST_CASE("where a launcher says that all ranks are here, the store has a local name of the job") {
  const std::string start = "unix:@hixl-store-" + std::to_string(::geteuid()) + "-";
  const RuntimeOptions mpi = read({{"OMPI_COMM_WORLD_RANK", "0"},
                                   {"OMPI_COMM_WORLD_SIZE", "4"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                   {"PMIX_NAMESPACE", "371241"}});
  CHECK(mpi.store == start + "ompi/371241");
  CHECK(mpi.host_store);
  const Set slurm = {{"SLURM_PROCID", "1"},
                     {"SLURM_NTASKS", "2"},
                     {"SLURM_STEP_NUM_NODES", "1"},
                     {"SLURM_JOB_ID", "77"},
                     {"SLURM_STEP_ID", "3"}};
  CHECK(read(slurm).store == start + "slurm/77/3");
  CHECK_FALSE(read(slurm).host_store);
  CHECK(read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_JOBID", "j"}}).store ==
        start + "pmi/j");
  // On several hosts, or without a name for the job, nothing is guessed.
  const RuntimeOptions several = read({{"OMPI_COMM_WORLD_RANK", "0"},
                                       {"OMPI_COMM_WORLD_SIZE", "4"},
                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                       {"PMIX_NAMESPACE", "371241"}});
  CHECK(several.store.empty());
  CHECK(code_of(several.validate()) == ErrorCode::invalid_argument);
  CHECK(read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}}).store.empty());
  const std::string long_name(200, 'j');
  CHECK(refusal({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_JOBID", long_name.c_str()}})
            .code == ErrorCode::invalid_argument);
  CHECK(read({{"HIXL_JOB", "mine"}}).job == "mine");
}
