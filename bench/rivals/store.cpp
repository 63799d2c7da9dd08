// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "rival.hpp"
#include "wire.hpp"

namespace hixl::bench {

namespace {

/// Longest line of an answer; an error's text fits.
constexpr std::size_t k_line_bytes = 512;

/// A connection to a store: what the protocol of redis (RESP) or memcached (text) needs to set and get one value.
class Connection {
 public:
  explicit Connection(const StorePlace& place) : memcached_(place.memcached), socket_(connected(place.address)) {
    if (place.address.find('/') == std::string::npos) tune(socket_);
  }
  void ask_set(const std::string& key, const std::byte* data, std::size_t size) {
    const std::string bytes = std::to_string(size);
    const std::string head =
        memcached_ ? "set " + key + " 0 0 " + bytes + "\r\n"
                   : "*3\r\n$3\r\nSET\r\n$" + std::to_string(key.size()) + "\r\n" + key + "\r\n$" + bytes + "\r\n";
    // A small value goes in one call with what is said of it.
    if (size <= k_line_bytes * 16) {
      std::string all = head;
      all.append(reinterpret_cast<const char*>(data), size).append("\r\n");
      return write_all(socket_, all.data(), all.size());
    }
    write_all(socket_, head.data(), head.size());
    write_all(socket_, data, size);
    write_all(socket_, "\r\n", 2);
  }
  void heed_set() { expect(memcached_ ? "STORED" : "+OK"); }
  void ask_get(const std::string& key) {
    const std::string text = memcached_ ? "get " + key + "\r\n"
                                        : "*2\r\n$3\r\nGET\r\n$" + std::to_string(key.size()) + "\r\n" + key + "\r\n";
    write_all(socket_, text.data(), text.size());
  }
  void heed_get(const std::string& key, std::byte* data, std::size_t size) {
    const std::string bytes = std::to_string(size);
    expect(memcached_ ? "VALUE " + key + " 0 " + bytes : "$" + bytes);
    const std::size_t there = std::min(size, end_ - begin_);
    std::copy_n(reinterpret_cast<const std::byte*>(buffer_ + begin_), there, data);
    begin_ += there;
    read_all(socket_, data + there, size - there);
    expect("");
    if (memcached_) expect("END");
  }

 private:
  void expect(const std::string& wanted) {
    std::string line;
    for (;;) {
      if (begin_ == end_) {
        begin_ = 0;
        end_ = read_some(socket_, buffer_, sizeof buffer_);
      }
      const char next = buffer_[begin_++];
      if (next == '\n') break;
      if (next != '\r') line += next;
      if (line.size() > k_line_bytes) give_up("the store answers with a line without an end");
    }
    if (line != wanted) give_up("the store answers \"" + line + "\" instead of \"" + wanted + "\"");
  }

  const bool memcached_;
  Descriptor socket_;
  char buffer_[4096];
  std::size_t begin_ = 0, end_ = 0;
};

struct Piece {
  std::string key;
  std::uint64_t at = 0;
  std::uint64_t size = 0;
};

}  // namespace

nlohmann::json stored(const Ask& ask, const StorePlace& place) {
  // A batch's blocks are values of their own; so are pieces of what is larger than the largest value.
  const std::uint64_t blocks = ask.what == "put" ? 1 : ask.count;
  std::vector<Piece> pieces;
  for (std::uint64_t block = 0; block < blocks; ++block) {
    for (std::uint64_t at = 0; at < ask.size; at += place.piece) {
      pieces.push_back(
          {"kv:" + std::to_string(pieces.size()), block * ask.size + at, std::min(place.piece, ask.size - at)});
    }
  }
  std::vector<std::byte> source(blocks * ask.size), target(blocks * ask.size, std::byte{1});
  fill(source.data(), source.size(), ask.size);
  Connection giver(place), taker(place);
  // Small requests are sent together and their answers read afterwards, as clients' pipelines do. Large ones are not:
  // the store reads no more while its own answers are not read.
  const bool together = ask.size <= place.piece && source.size() <= place.piece;
  const auto all = [&](const auto& one, const auto& end) {
    for (const Piece& piece : pieces) {
      one(piece);
      if (!together) end(piece);
    }
    for (const Piece& piece : pieces) {
      if (together) end(piece);
    }
  };
  nlohmann::json answer = timed(
      ask,
      [&] {
        all([&](const Piece& piece) { giver.ask_set(piece.key, source.data() + piece.at, piece.size); },
            [&](const Piece&) { giver.heed_set(); });
        all([&](const Piece& piece) { taker.ask_get(piece.key); },
            [&](const Piece& piece) { taker.heed_get(piece.key, target.data() + piece.at, piece.size); });
      },
      cpu_seconds);
  need_bytes(verify(target.data(), target.size(), ask.size));
  answer.erase("cpu_s_gb");  // of the client alone
  return answer;
}

}  // namespace hixl::bench
