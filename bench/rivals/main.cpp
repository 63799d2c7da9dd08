// SPDX-License-Identifier: Apache-2.0
//
// hixl_rivals: what the bare machine does, and what programs do that have no one-sided library, for bench/compare.
//   hixl_rivals memcpy --threads 2 put:16777216
//   hixl_rivals socket --framed --naive put:131072 batch:4096:128
//   hixl_rivals redis --address /run/redis.sock put:4096
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "rival.hpp"

namespace hixl::bench {

void give_up(const std::string& why, int code) {
  std::cerr << "hixl_rivals: " << why << "\n";
  std::exit(code);
}

void need_bytes(bool right) {
  if (!right) give_up("the bytes at the target are not the bytes that were sent", k_exit_wrong_bytes);
}

nlohmann::json row(const Ask& ask, Samples& time, double cpu_seconds_used) {
  const auto bytes = static_cast<double>(ask.bytes());
  return {{"question", ask.text},
          {"us", time.us(500)},
          {"p99_us", time.us(990)},
          {"p999_us", time.us(999)},
          {"gbps", bytes / (time.us(500) * 1000)},
          {"cpu_s_gb", cpu_seconds_used / (bytes * static_cast<double>(ask.rounds) * 1e-9)},
          {"rounds", ask.rounds},
          {"verified", true}};
}

nlohmann::json timed(const Ask& ask, const std::function<void()>& round, const std::function<double()>& cpu) {
  for (std::uint64_t i = 0; i < ask.rounds / 10 + 1; ++i) round();
  Samples samples(ask.rounds);
  const double before = cpu();
  for (std::uint64_t i = 0; i < ask.rounds; ++i) {
    const std::uint64_t start = now_ns();
    round();
    samples.add(now_ns() - start);
  }
  return row(ask, samples, cpu() - before);
}

}  // namespace hixl::bench

namespace {

using namespace hixl::bench;

Ask asked(const std::string& text, std::uint64_t rounds, std::uint64_t megabytes) {
  Ask ask;
  ask.text = text;
  const std::size_t colon = std::min(text.find(':'), text.size());
  ask.what = text.substr(0, colon);
  char* end = nullptr;
  if (colon < text.size()) ask.size = std::strtoull(text.c_str() + colon + 1, &end, 10);
  if (end != nullptr && *end == ':') ask.count = std::strtoull(end + 1, &end, 10);
  const auto all = {"put", "flight", "batch", "streams"};
  const bool known = std::find(all.begin(), all.end(), ask.what) != all.end();
  const bool sized = end != nullptr && *end == 0 && ask.size > 0 && ask.size <= 1U << 30U && ask.count > 0;
  if (!known || !sized || ask.count > 2048 || ask.bytes() > 1U << 30U) {
    give_up(text +
            ": not a question of at most 1 GiB in all, as put:8, flight:65536:8, batch:4096:128, streams:65536:32");
  }
  ask.rounds = std::clamp<std::uint64_t>((megabytes << 20U) / ask.bytes(), k_rounds_min, rounds);
  return ask;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What the machine and others do; one JSON line a question."};
  app.require_subcommand(1);
  std::vector<std::string> questions;
  std::uint64_t rounds = 1000, megabytes = 32;
  int threads = 1;
  bool naive = false;
  SocketStyle style;
  StorePlace place;
  app.add_option("--rounds", rounds, "most rounds of a question")
      ->check(CLI::Range(k_rounds_min, std::size_t{10'000'000}));
  app.add_option("--megabytes", megabytes, "moved for a question at most")->check(CLI::Range(1, 1'000'000));
  const auto with_questions = [&](CLI::App* command) {
    command
        ->add_option("questions", questions, "put:BYTES, flight:BYTES:COUNT, batch:BYTES:COUNT or streams:BYTES:COUNT")
        ->required();
    return command;
  };
  CLI::App* const copy = with_questions(app.add_subcommand("memcpy", "a copy inside one process"));
  copy->add_option("--threads", threads, "that copy, half of the bytes each")->check(CLI::Range(1, 2));
  CLI::App* const socket = with_questions(app.add_subcommand("socket", "a stream socket between two processes"));
  socket->add_flag("--framed", style.framed, "two-sided messages with serialisation, instead of bare bytes");
  socket->add_flag("--naive", naive, "as a socket is by default, memory allocated for each message");
  socket->add_flag("--answer-each", style.answer_each, "each message of a batch or flight is answered");
  for (const char* name : {"redis", "memcached"}) {
    CLI::App* const store = with_questions(app.add_subcommand(name, "set over one connection, get over another"));
    store->add_option("--address", place.address, "path of its socket, or port of 127.0.0.1")->required();
    place.piece = 1000U << 10U;
    store->add_option("--piece", place.piece, "bytes of the largest value")->check(CLI::Range(1, 1 << 29));
  }
  CLI11_PARSE(app, argc, argv);
  style.tuned = !naive;
  place.memcached = app.got_subcommand("memcached");
  for (const std::string& text : questions) {
    const Ask ask = asked(text, rounds, megabytes);
    nlohmann::json answer;
    if (copy->parsed()) {
      answer = copied(ask, threads);
    } else if (socket->parsed()) {
      answer = socketed(ask, style);
    } else {
      answer = stored(ask, place);
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}
