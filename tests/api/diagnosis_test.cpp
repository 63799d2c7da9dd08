// SPDX-License-Identifier: Apache-2.0
//
// The answering side of hixl_diag, by the public interface: who may open it, what callers do with it, what it tells of
// a runtime, and that it never holds up that runtime's end. tests/cli asks it with the program itself.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include <hixl/diagnosis.hpp>
#include <hixl/offers.hpp>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;
using Subject = Diagnosis::Subject;

namespace {

std::unique_ptr<Diagnosis> opened(Runtime* about = nullptr) {
  auto made = Diagnosis::open({.address = "127.0.0.1:0"}, about);
  require_ok(made);
  return std::move(*made);
}

RuntimeOptions caller_options(const std::string& address, Rank rank, const std::string& job = {}) {
  RuntimeOptions options;
  options.rank = rank;
  options.world_size = Diagnosis::world_size();
  options.store = "tcp://" + address;
  options.job = Diagnosis::world_of(job);
  options.guest = true;
  return options;
}

/// A caller with the memory that it may use there.
struct Caller {
  explicit Caller(const std::string& address, Rank rank = 1) {
    auto made = Runtime::create(caller_options(address, rank));
    require_ok(made);
    runtime = std::move(*made);
    const auto regions = Offers::ask(*runtime, 0, k_diagnosis_tag, k_patience);
    require_ok(regions);
    for (const RemoteRegion& region : *regions) {
      if (region.tag == k_diagnosis_tag) memory = region;
    }
    REQUIRE(memory.key.valid());
  }
  void put_question(std::uint64_t question) {
    const Signal bell{.word = memory.at(Diagnosis::k_bell_offset), .value = 1, .op = SignalOp::add};
    auto put = runtime->put_with_signal(&question, memory.at(Diagnosis::question_offset(runtime->rank())),
                                        sizeof question, bell);
    require_ok(put);
    require_ok(put->wait(k_patience));
  }
  /// The text, or the code of what stands in its way.
  Result<std::string> ask(Subject subject, std::uint32_t tag, Timeout patience = k_patience) {
    put_question(Diagnosis::question(subject, tag));
    const auto regions = Offers::ask(*runtime, 0, tag, patience);
    if (!regions) return fail(regions.error());
    RemoteRegion answer;
    for (const RemoteRegion& region : *regions) {
      if (region.tag == tag) answer = region;
    }
    const auto local = runtime->allocate(answer.length);
    require_ok(local);
    require_ok(runtime->get_sync(local->data, answer.at(0), answer.length, k_patience));
    Diagnosis::AnswerHead head;
    std::memcpy(&head, local->data, sizeof head);
    REQUIRE(sizeof head + head.bytes == answer.length);
    if (head.code != 0) return fail(static_cast<ErrorCode>(head.code));
    return std::string(reinterpret_cast<const char*>(local->data + sizeof head), head.bytes);
  }
  std::unique_ptr<Runtime> runtime;
  RemoteRegion memory;
};

std::size_t own_regions(const std::string& json) {
  std::size_t count = 0;
  for (std::size_t at = json.find("\"references\""); at != std::string::npos;
       at = json.find("\"references\"", at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("who may answer: addresses that cannot be had, and callers of another job") {
  const auto diagnosis = opened();
  CHECK(code_of(Diagnosis::open({.address = diagnosis->address()})) == ErrorCode::address_in_use);
  CHECK(code_of(Diagnosis::open({.address = "0.0.0.0:0"})) == ErrorCode::security_required);
  CHECK(code_of(Diagnosis::open({.address = "127.0.0.1"})) == ErrorCode::invalid_argument);
  CHECK(code_of(Diagnosis::open({.address = ""})) == ErrorCode::invalid_argument);
  CHECK(code_of(Runtime::create(caller_options(diagnosis->address(), 1, "another"))) == ErrorCode::wrong_job);
  require_ok(Runtime::create(caller_options(diagnosis->address(), k_diagnosis_callers)));
}

TEST_CASE("a call at the store of a job that has not begun keeps nobody out of it") {
  auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  const std::string url = (*store)->url();
  RuntimeOptions options = caller_options(url.substr(std::string_view("tcp://").size()), 5);
  CHECK(code_of(Runtime::create(options)) == ErrorCode::rendezvous_unreachable);
  require_ok(Runtime::create(options_for(0, 2, url)));
  options.store = "file:///nowhere/to/be/found";
  CHECK(code_of(Runtime::create(options)) == ErrorCode::invalid_argument);
}

TEST_CASE("an answer is of the runtime that it is about, and the last one of a caller goes with its next question") {
  auto about = Runtime::create({});
  require_ok(about);
  require_ok((*about)->allocate(12'345));
  const auto diagnosis = opened(about->get());
  Caller caller(diagnosis->address());
  const auto json = caller.ask(Subject::regions_json, 7);
  require_ok(json);
  CHECK(json->starts_with(R"({"rank":0,"world_size":1,"regions":{"own":[)"));
  CHECK(json->find("\"size\":12345") != std::string::npos);
  CHECK(own_regions(*json) == 1);
  CHECK(caller.ask(Subject::regions_text, 8)->starts_with("rank 0 of 1\n"));
  CHECK(caller.ask(Subject::links_json, 9)->find("\"links\":[]") != std::string::npos);
  CHECK(code_of(caller.ask(static_cast<Subject>(77), 10)) == ErrorCode::unsupported);
  require_ok((*about)->stop());
  CHECK(code_of(caller.ask(Subject::regions_json, 11)) == ErrorCode::stopped);
}

TEST_CASE("no question makes another caller take an answer for its memory") {
  const auto diagnosis = opened();
  Caller rude(diagnosis->address(), 1);
  rude.put_question(std::uint64_t{k_diagnosis_tag} << 32U | static_cast<std::uint32_t>(Subject::links_text));
  require_ok(Offers::ask(*rude.runtime, 0, k_diagnosis_tag & Diagnosis::k_answer_tags, k_patience));
  const Caller next(diagnosis->address(), 2);
  CHECK(next.memory.length == Diagnosis::k_region_bytes);
}

TEST_CASE("callers have memory of their own") {
  const auto diagnosis = opened();
  Caller first(diagnosis->address(), 1);
  Caller second(diagnosis->address(), 2);
  for (Caller* caller : {&first, &second}) {
    const std::uint64_t own = 100 + caller->runtime->rank();
    const RemoteAddress there = caller->memory.at(Diagnosis::offset_of(caller->runtime->rank()));
    require_ok(caller->runtime->put_sync(&own, there, sizeof own, k_patience));
  }
  const auto local = first.runtime->allocate(8);
  require_ok(local);
  require_ok(first.runtime->get_sync(local->data, first.memory.at(Diagnosis::offset_of(1)), 8, k_patience));
  CHECK(*reinterpret_cast<const std::uint64_t*>(local->data) == 101);
}

TEST_CASE("a thousand questions leave no more behind than one") {
  const auto diagnosis = opened();
  Caller caller(diagnosis->address());
  for (int i = 1; i <= rounds(1000); ++i) {
    const auto json = caller.ask(Subject::regions_json, static_cast<std::uint32_t>(i));
    require_ok(json);
    REQUIRE(own_regions(*json) == 1);  // what is offered; the answer before has gone
  }
}

TEST_CASE("what it is about may stand still: callers still put and get, and its end does not wait for the answer") {
  RuntimeOptions options;
  options.diagnosis = "127.0.0.1:0";
  auto about = Runtime::create_polled(options);  // nobody turns it
  require_ok(about);
  const auto diagnosis = opened(about->get());
  Caller caller(diagnosis->address());
  const std::uint64_t word = 42;
  std::uint64_t back = 0;
  const auto local = caller.runtime->allocate(8);
  require_ok(local);
  require_ok(caller.runtime->put_sync(&word, caller.memory.at(Diagnosis::offset_of(1)), 8, k_patience));
  require_ok(caller.runtime->get_sync(local->data, caller.memory.at(Diagnosis::offset_of(1)), 8, k_patience));
  std::memcpy(&back, local->data, sizeof back);
  CHECK(back == word);
  CHECK(code_of(caller.ask(Subject::links_json, 5, 50ms)) == ErrorCode::deadline_exceeded);
}

TEST_CASE("a runtime that its options let answer") {
  const auto taken = opened();
  RuntimeOptions options;
  options.diagnosis = taken->address();
  CHECK(code_of(Runtime::create(options)) == ErrorCode::address_in_use);
  for (const char* wrong : {"nonsense", "unix:@name", "127.0.0.1:9999++", "+", "127.0.0.1:70000"}) {
    CAPTURE(wrong);
    options.diagnosis = wrong;
    CHECK(code_of(Runtime::create(options)) == ErrorCode::invalid_argument);
  }
  options.diagnosis = "0.0.0.0:0";
  CHECK(code_of(Runtime::create(options)) == ErrorCode::security_required);

  options.diagnosis = "127.0.0.1:0";
  options.guest = true;  // says nothing of the world in which it answers
  require_ok(Runtime::create(options));
}

TEST_CASE("a forked child leaves the answering side alone") {
  auto diagnosis = opened();
  const pid_t child = fork();
  if (child == 0) {
    diagnosis.reset();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  Caller caller(diagnosis->address());
}
