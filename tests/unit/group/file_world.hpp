// SPDX-License-Identifier: Apache-2.0
//
// A folder of a test's own for rendezvous files, and claims to put into them.
#pragma once

#include <doctest/doctest.h>
#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "wire/store_messages.hpp"

namespace hixl::group::test {

class Folder {
 public:
  Folder() {
    path_ = (std::filesystem::temp_directory_path() / "hixl-rendezvous-XXXXXX").string();
    REQUIRE(::mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file() const { return path_ + "/ranks"; }
  [[nodiscard]] bool exists() const { return ::access(file().c_str(), F_OK) == 0; }

 private:
  std::string path_;
};

inline wire::StoreClaim claim_of(Rank rank, std::uint32_t world_size, Incarnation life, std::uint64_t job = 0) {
  wire::StoreClaim claim{.world_size = world_size, .job = job, .start = {}, .guest = 0, .endpoints = {}};
  claim.endpoints.peer_id = {1, rank};
  claim.endpoints.incarnation = life;
  claim.endpoints.rank = rank;
  claim.endpoints.unix_name = "hixl-" + std::to_string(rank);
  claim.endpoints.addresses = {"127.0.0.1:" + std::to_string(20'000 + rank)};
  return claim;
}

}  // namespace hixl::group::test
