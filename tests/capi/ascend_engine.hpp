// SPDX-License-Identifier: Apache-2.0
//
// Engines of Ascend's class for tests.
#pragma once

#include <doctest/doctest.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string>

#include <hixl/hixl.h>

/// A name that nobody has at this moment.
inline std::string free_name() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(fd);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

struct Engine {
  explicit Engine(std::map<hixl::AscendString, hixl::AscendString> options = {}) {
    for (int tries = 0; tries < 10; ++tries) {  // somebody else may take the port
      name = free_name();
      if (hixl.Initialize(name.c_str(), options) == hixl::SUCCESS) return;
    }
    FAIL(hixl_last_error());
  }
  hixl::MemHandle add(void* data, std::size_t size, hixl::MemType type = hixl::MEM_HOST) {
    hixl::MemDesc desc{};
    desc.addr = reinterpret_cast<std::uintptr_t>(data);
    desc.len = size;
    hixl::MemHandle handle = nullptr;
    REQUIRE(hixl.RegisterMem(desc, type, handle) == hixl::SUCCESS);
    REQUIRE(handle != nullptr);
    return handle;
  }
  std::string name;
  hixl::Hixl hixl;
};

inline hixl::TransferOpDesc desc(const void* local, const void* remote, std::size_t size) {
  hixl::TransferOpDesc result{};
  result.local_addr = reinterpret_cast<std::uintptr_t>(local);
  result.remote_addr = reinterpret_cast<std::uintptr_t>(remote);
  result.len = size;
  return result;
}
