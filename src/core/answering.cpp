// SPDX-License-Identifier: Apache-2.0
#include "core/answering.hpp"

#include <atomic>
#include <condition_variable>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hixl/inspect_text.hpp>
#include <hixl/offers.hpp>

#include "base/log.hpp"
#include "core/function_call.hpp"

namespace hixl::core {

namespace {

/// The longest wait for the bell at a time: only its end tells a wait that is over from one that goes on.
constexpr std::chrono::hours k_longest_wait{1};
/// Time for an answer's region to go: its caller has read it, or has gone.
constexpr std::chrono::seconds k_letting_go{1};

std::uint64_t load(const Region& region, std::uint64_t offset) noexcept {
  // Acquire pairs with the caller's signal: its question was there before the bell.
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(region.data + offset)).load(std::memory_order_acquire);
}

}  // namespace

struct Answering::Facts {
  Rank rank = 0;
  std::uint32_t world_size = 0;
  std::vector<LinkInfo> links;
  RegionDump regions;
};

/// On the loop's thread, where nothing of this waits.
Result<Answering::Facts> Answering::look(Core& core) {
  auto regions = core.dump_regions();
  if (!regions) return fail(regions.error());
  return Facts{core.options().rank, core.options().world_size, core.links(), std::move(*regions)};
}

/// One question to the loop. Outlives this object when that does not wait for the answer any more.
class Answering::Asked {
 public:
  void give(Result<Facts> facts) {
    const std::scoped_lock lock(mutex_);
    if (!facts_) facts_ = std::move(facts);
    told_.notify_one();
  }
  Result<Facts> wait() {
    std::unique_lock lock(mutex_);
    told_.wait(lock, [this] { return facts_.has_value(); });
    return std::move(*facts_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable told_;
  std::optional<Result<Facts>> facts_;
};

Answering::Answering(Runtime& rank, const Region& region, Core& about) : rank_(rank), region_(region), about_(&about) {}

Answering::~Answering() = default;

Result<void> Answering::start() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::os_error, {.stage = Stage::options, .os_error = error.code().value()});
  }
  return {};
}

void Answering::close() {
  {
    const std::scoped_lock lock(mutex_);
    about_ = nullptr;
    if (asked_) asked_->give(fail(ErrorCode::stopped, {.stage = Stage::shutdown}));
  }
  static_cast<void>(rank_.stop());
  if (thread_.joinable()) thread_.join();
}

void Answering::run() {
  const std::byte* const bell = region_.data + Diagnosis::k_bell_offset;
  for (std::uint64_t heard = 0;;) {
    const auto word = rank_.wait_signal(bell, Compare::not_equal, heard, k_longest_wait);
    if (word) {
      heard = *word;
      look_at_questions();
    } else if (word.error().code != ErrorCode::deadline_exceeded) {
      return;  // STOPPED
    }
  }
}

void Answering::look_at_questions() {
  for (Rank caller = 1; caller <= k_diagnosis_callers; ++caller) {
    Kept& kept = kept_[caller - 1];
    const std::uint64_t question = load(region_, Diagnosis::question_offset(caller));
    if (question == kept.question) continue;
    if (kept.region.key.valid()) static_cast<void>(rank_.deregister(kept.region, k_letting_go));
    kept = {.question = question, .region = {}};
    if (question == 0) continue;
    const auto tag = static_cast<std::uint32_t>(question >> 32U) & Diagnosis::k_answer_tags;
    const auto offered = offer(tag, answer_to(static_cast<Diagnosis::Subject>(question & 0xffffffffU)));
    if (offered) {
      kept.region = *offered;
    } else {
      log::warn("a question of hixl_diag could not be answered: {}", offered.error().message());
    }
  }
}

Result<std::string> Answering::answer_to(Diagnosis::Subject subject) {
  const auto facts = ask();
  if (!facts) return fail(facts.error());
  const auto text = [&](const std::string& table) {
    return fmt::format("rank {} of {}\n{}", facts->rank, facts->world_size, table);
  };
  const auto json = [&](const char* name, const std::string& value) {
    return fmt::format(R"({{"rank":{},"world_size":{},"{}":{}}})", facts->rank, facts->world_size, name, value);
  };
  switch (subject) {
    case Diagnosis::Subject::links_text:
      return text(to_text(facts->links));
    case Diagnosis::Subject::links_json:
      return json("links", to_json(facts->links));
    case Diagnosis::Subject::regions_text:
      return text(to_text(facts->regions));
    case Diagnosis::Subject::regions_json:
      return json("regions", to_json(facts->regions));
  }
  return fail(ErrorCode::unsupported, {.stage = Stage::options, .length = static_cast<std::uint64_t>(subject)});
}

Result<Region> Answering::offer(std::uint32_t tag, const Result<std::string>& answer) {
  Diagnosis::AnswerHead head;
  if (answer) {
    head.bytes = answer->size();
  } else {
    head.code = static_cast<std::uint64_t>(answer.error().code);
  }
  auto region = rank_.allocate(sizeof head + head.bytes, {.rights = Rights::read, .tag = tag});
  if (!region) return region;
  auto filled = rank_.copy_in(*region, 0, &head, sizeof head);
  if (filled && head.bytes > 0) filled = rank_.copy_in(*region, sizeof head, answer->data(), head.bytes);
  if (filled) filled = Offers::add(rank_, {&*region, 1});
  if (!filled) {
    static_cast<void>(rank_.deregister(*region, k_letting_go));
    return fail(filled.error());
  }
  return region;
}

/// The loop tells when it turns; whoever closes does not wait for that.
Result<Answering::Facts> Answering::ask() {
  const Error stopped(ErrorCode::stopped, {.stage = Stage::shutdown});
  const auto asked = std::make_shared<Asked>();
  {
    const std::scoped_lock lock(mutex_);
    if (about_ == nullptr) return fail(stopped);
    Core* const core = about_;
    const auto posted = core->call(
        make_call([core, asked] { asked->give(look(*core)); }, [asked, stopped] { asked->give(fail(stopped)); }));
    if (!posted) return fail(posted.error());
    asked_ = asked;
  }
  return asked->wait();
}

}  // namespace hixl::core
