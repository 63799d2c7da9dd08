// SPDX-License-Identifier: Apache-2.0
//
// Text and JSON of what a runtime tells: the JSON is parsed again, the text has its rows and its columns.
#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include <hixl/inspect_text.hpp>

#include "wait_parts.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;
using Json = nlohmann::json;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    REQUIRE(end != std::string::npos);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

/// In every line something begins where the heading's word begins.
void check_column(const std::vector<std::string>& lines, const std::string& head) {
  CAPTURE(head);
  const std::size_t at = (" " + lines.front()).find(" " + head);  // whole words; the added space makes up for theirs
  REQUIRE(at != std::string::npos);
  for (const std::string& line : lines) {
    CAPTURE(line);
    REQUIRE(line.size() > at);
    CHECK(line[at] != ' ');
    if (at > 0) CHECK(line[at - 1] == ' ');
  }
}

std::uint64_t number_of(const Json& hex) { return std::stoull(hex.get<std::string>(), nullptr, 16); }

}  // namespace

TEST_CASE("links, regions, operations and counters of a world, as JSON and as text") {
  WaitPair pair({});
  Runtime& runtime = pair.world[0];
  require_ok(runtime.put_sync(pair.a.data, pair.remote.at(0), 100'000));
  const auto late = runtime.put(pair.a.data, pair.remote.at(0), 4096, {.timeout = 0ns, .user_data = ~0ULL});
  require_ok(late);
  require_ok(runtime.flush(1));

  const auto links = runtime.links();
  const Json links_json = Json::parse(to_json(links));
  REQUIRE(links_json.size() == links.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    const Json& row = links_json[i];
    CHECK(row["rank"] == links[i].rank);
    CHECK(row["kind"] == std::string(name(links[i].kind)));
    CHECK(row["name"] == std::string(description(links[i].kind)));
    CHECK(row["state"] == links[i].state);
    CHECK(row["reason"] == links[i].reason);
    CHECK(row["windows"] == links[i].windows);
    CHECK(row["other_memory"] == links[i].other_memory);
    CHECK(row["words"] == links[i].words);
    CHECK(row["bytes_out"] == links[i].bytes_out);
    CHECK(row["failures"] == links[i].failures);
    CHECK(row["share"] == links[i].share);
    CHECK(row["rate"] == links[i].rate);
    CHECK(row["stalls"] == links[i].stalls);
    CHECK(row["last_error"].is_null() == (links[i].last_error.code == ErrorCode::ok));
  }
  auto lines = lines_of(to_text(links));
  REQUIRE(lines.size() == links.size() + 1);
  for (const char* head : {"RANK", "LINK", "STATE", "TAKES", "OUT", "IN", "SHARE", "RATE", "FAILURES", "REASON"})
    check_column(lines, head);
  CHECK(lines[1].find("hccs (emulated: shared memory)") != std::string::npos);

  const auto dump = runtime.dump_regions();
  require_ok(dump);
  const Json regions = Json::parse(to_json(*dump));
  REQUIRE(regions["own"].size() == 1);
  CHECK(number_of(regions["own"][0]["base"]) == pair.a.address());
  CHECK(regions["own"][0]["size"] == pair.a.size);
  CHECK(regions["own"][0]["state"] == "OPEN");
  CHECK(regions["own"][0]["rights"] == Json::array({"read", "write", "atomic"}));
  CHECK(regions["own"][0]["numa_node"].is_null());
  REQUIRE(regions["peers"].size() == 1);
  CHECK(number_of(regions["peers"][0]["base"]) == pair.remote.base);
  CHECK(number_of(regions["peers"][0]["incarnation"]) == pair.world[1].incarnation());
  CHECK(regions["peers"][0]["key"]["generation"] == pair.remote.key.generation);
  CHECK(regions["peers"][0]["link"]["kind"] == "hccs");
  // A capability is not for those who look on.
  CHECK(to_json(*dump).find("token") == std::string::npos);
  lines = lines_of(to_text(*dump));
  REQUIRE(lines.size() == 6);
  check_column({lines[1], lines[2]}, "ADDRESS");
  check_column({lines[1], lines[2]}, "MEMORY");
  check_column({lines[4], lines[5]}, "LINK");

  const auto open = runtime.outstanding();
  require_ok(open);
  const Json operations = Json::parse(to_json(*open));
  REQUIRE(operations.size() == 1);
  CHECK(number_of(operations[0]["id"]) == open->front().id);
  CHECK(number_of(operations[0]["user_data"]) == ~0ULL);
  CHECK(operations[0]["verb"] == "put");
  CHECK(operations[0]["state"] == "ENDED");
  CHECK(operations[0]["rank"] == 1);
  CHECK(operations[0]["bytes"] == 4096);
  CHECK(operations[0]["age_ns"].get<std::int64_t>() > 0);
  CHECK(operations[0]["live"]["tcp"] == 0);
  CHECK(operations[0]["error"]["code"] == "DEADLINE_EXCEEDED");
  lines = lines_of(to_text(*open));
  REQUIRE(lines.size() == 2);
  for (const char* head : {"REQUEST", "VERB", "STATE", "AGE", "LEFT", "LINKS", "END"}) check_column(lines, head);

  const Counters counters = runtime.counters();
  const Json counted = Json::parse(to_json(counters));
  CHECK(counted["operations"] == counters.operations);
  CHECK(counted["bytes_out"]["hccs"] == counters.bytes_out[0]);
  CHECK(counted["failed"] == counters.failed);
  check_column(lines_of(to_text(counters)), "VALUE");

  const auto refused = runtime.check_access(pair.remote.at(k_wait_bytes), 8, Rights::read);
  const Json answer = Json::parse(to_json(refused));
  CHECK(answer["ok"] == false);
  CHECK(answer["error"]["code"] == "OUT_OF_RANGE");
  CHECK(number_of(answer["error"]["nearest_base"]) == pair.remote.base);
  CHECK(to_text(refused) == refused.error().message() + "\n");
  CHECK(Json::parse(to_json(Result<void>()))["ok"] == true);
}

TEST_CASE("rows made up: nothing at all, extremes, and text that is no UTF-8") {
  CHECK(Json::parse(to_json(std::span<const LinkInfo>())) == Json::array());
  CHECK(Json::parse(to_json(std::span<const OperationInfo>())) == Json::array());
  CHECK(lines_of(to_text(std::span<const OperationInfo>())).size() == 1);
  CHECK(Json::parse(to_json(RegionDump{}))["own"].empty());

  LinkInfo link;
  link.reason = "bad \xff\xfe bytes, a \"quote\" and a\ttab";
  link.bytes_out = ~0ULL;
  const Json row = Json::parse(to_json(std::span(&link, 1)));
  CHECK(row[0]["rank"].is_null());
  CHECK(row[0]["bytes_out"].get<std::uint64_t>() == ~0ULL);
  CHECK(row[0]["reason"].get<std::string>().find("a \"quote\" and a\ttab") != std::string::npos);

  std::array<OperationInfo, 8> rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].verb = static_cast<OperationVerb>(i);
    rows[i].state = static_cast<OperationState>(i % 6);
    rows[i].age = std::chrono::hours(24 * 365);
    rows[i].deadline_left = -5ms;
    rows[i].live[static_cast<std::size_t>(LinkKind::tcp)] = static_cast<std::uint32_t>(i);
  }
  const auto lines = lines_of(to_text(rows));
  REQUIRE(lines.size() == rows.size() + 1);
  for (const char* head : {"VERB", "STATE", "AGE", "LEFT", "LINKS", "END"}) check_column(lines, head);
  CHECK(lines[1].find("-5.0 ms") != std::string::npos);
  const Json all = Json::parse(to_json(rows));
  CHECK(all[3]["verb"] == "atomic");
  CHECK(all[7]["verb"] == "lane");
  CHECK(all[4]["state"] == "FENCING");
  CHECK(all[3]["live"]["tcp"] == 3);
}
