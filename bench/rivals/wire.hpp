// SPDX-License-Identifier: Apache-2.0
//
// Blocking stream sockets on loopback. A call that fails ends the program with its reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hixl::bench {

/// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

void need_call(bool worked, const char* what);
/// A port of 127.0.0.1 that was free.
[[nodiscard]] Descriptor listening(std::uint16_t& port);
[[nodiscard]] Descriptor accepted(const Descriptor& listener);
/// A port of 127.0.0.1, or the path of a local socket.
[[nodiscard]] Descriptor connected(const std::string& address);
/// Nagle off, 4 MiB of buffers.
void tune(const Descriptor& socket);

void read_all(const Descriptor& socket, void* data, std::size_t size);
/// At least one byte.
[[nodiscard]] std::size_t read_some(const Descriptor& socket, void* data, std::size_t size);
void write_all(const Descriptor& socket, const void* data, std::size_t size);

}  // namespace hixl::bench
