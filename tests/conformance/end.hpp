// SPDX-License-Identifier: Apache-2.0
//
// One end of a link under test: a rank's loop, tables and link, and a record of everything that the link said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "links/link.hpp"

namespace conformance {

using namespace hixl;
using links::Answer;
using links::Segment;
using links::Verb;

/// What became of one post.
struct Attempt {
  Verb verb{};
  std::vector<Segment> segments;
  int ends = 0;  ///< completions (or `done`); -1: taken back
  Error error{};
  LinkSeq sequence = 0;     ///< while it is under way
  std::uint64_t value = 0;  ///< of an atomic: the word before
};

/// A region of the other end, as this end knows it.
struct Remote {
  RegionKey key{};
  Token token{};
  std::byte* memory = nullptr;  ///< the owner's view of it, for the checks of the test
  std::size_t size = 0;
};

class End final : private links::LinkEvents {
 public:
  struct Depths {
    std::uint32_t tx = 8;
    std::uint32_t rx = 8;
  };
  End(runtime::EventPort& port, std::uint64_t seed, Rank self, const Depths& depths);
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void make_link(std::unique_ptr<runtime::Stream> stream, const links::LinkIdentity& identity);
  /// A region here that the other end may use. The other end still has to learn(it).
  [[nodiscard]] Remote allocate(std::size_t size, Rights rights = Rights::all, MemoryKind kind = MemoryKind::host);
  /// Tells this end of a region of the other. True: usable at once; else when attached() says so.
  bool learn(const Remote& remote, const End& owner);
  [[nodiscard]] bool attached(const Remote& remote) const;

  /// The number of the attempt, from 1; 0: busy.
  std::uint64_t post(Verb verb, const Remote& remote, std::vector<Segment> segments, std::uint64_t value = 0);
  /// The same for an atomic on the word at `offset`, under the number that `terms` give.
  std::uint64_t post_atomic(Verb verb, const Remote& remote, std::uint64_t offset, std::uint64_t value,
                            const links::AtomicTerms& terms);
  [[nodiscard]] bool send(wire::FrameType type, ConstBytes body);
  [[nodiscard]] bool revoke(const Remote& remote);
  [[nodiscard]] bool abandon(std::uint64_t attempt);
  /// Notes the sequence numbers of what is under way, then fences this side.
  void close();
  [[nodiscard]] bool drained();
  void take_completions();
  void drop_link();

  [[nodiscard]] bool ended(std::uint64_t attempt) const { return attempts.at(attempt).ends > 0; }
  [[nodiscard]] ErrorCode code(std::uint64_t attempt) const { return attempts.at(attempt).error.code; }
  [[nodiscard]] std::size_t under_way() const noexcept { return under_way_; }

  runtime::Loop loop;
  std::unique_ptr<memory::RegionTable> regions;
  memory::RemoteTable remotes;
  std::unique_ptr<memory::SignalPage> signals;
  links::AtomicWindow atomics;
  std::unique_ptr<links::LinkFactory> factory;
  std::unique_ptr<links::Link> link;
  Rank rank;
  memory::Device* local_device = &memory::host_device();  ///< of the local side of posts

  // ---- the record ----
  int ups = 0;
  int downs = 0;
  int credits = 0;
  int after_close = 0;   ///< events but completions after close()
  int inside_calls = 0;  ///< events that came while a call into the link was on
  int stray_ends = 0;    ///< completions of nothing, or a second one
  Error down_error{};
  std::map<std::uint64_t, Attempt> attempts;
  std::vector<std::pair<wire::FrameType, std::vector<std::byte>>> controls;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Result<void>> attach_results;

 private:
  void on_up() override;
  void on_completions() override;
  void on_credit() override;
  void on_control(const wire::FrameHeader& header, ConstBytes body) override;
  void on_attached(RegionKey key, const Result<void>& result) override;
  void on_down(const Error& error) override;
  void note_event();
  std::uint64_t post(const links::Post& what, std::vector<Segment> segments);
  template <class Call>
  auto call(Call&& function);

  Depths depths_;
  std::vector<std::unique_ptr<std::byte[]>> plain_;
  bool closed_ = false;
  bool in_call_ = false;
  std::size_t under_way_ = 0;
  std::uint64_t next_attempt_ = 1;
};

}  // namespace conformance
