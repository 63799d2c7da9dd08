// SPDX-License-Identifier: Apache-2.0
#include "launcher.hpp"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <hixl/store.hpp>

namespace pd {

namespace {

/// Share of the time allowed after which no request is started, so that those under way can end.
constexpr double k_start_share = 0.8;
/// Time for every rank to start and clear its memory, on a machine that has other things to do.
constexpr std::chrono::seconds k_ready_time{60};
/// Time for the ranks to say goodbye; hixl's stop takes 5 s at most.
constexpr std::chrono::seconds k_leave_time{10};
/// Time for a link to come back after the run: it dials again after pauses that grow as the cut lasts.
constexpr std::chrono::seconds k_return_time{30};
constexpr std::chrono::milliseconds k_look_pause{50};

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return std::string("ended by signal ") + std::to_string(WTERMSIG(status));
  return "ended with code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Launcher::Launcher(const Options& options, const Plan& plan, std::vector<Request> requests)
    : options_(options),
      plan_(plan),
      requests_(std::move(requests)),
      policy_(make_policy(options.policy)),
      prefill_tokens_(plan.prefill),
      decode_blocks_(plan.decode) {}

int Launcher::run() {
  const auto store = hixl::Store::create("tcp://127.0.0.1:0");
  if (!store) {
    std::fprintf(stderr, "hixl_pd_sim: %s\n", store.error().message().c_str());
    return 1;
  }
  if (!start_ranks((*store)->url()) || !wait_until_ready()) return 1;
  serve();
  if (cut_) wait_for_link();
  finish_ranks();
  if (cut_) report_.cut = cut_->report();
  print_table(report_, options_, plan_);
  if (!options_.json.empty()) {
    std::ofstream file(options_.json);
    file << to_json(report_, options_, plan_).dump(2) << '\n';
    if (!file.flush()) {
      std::fprintf(stderr, "hixl_pd_sim: %s cannot be written\n", options_.json.c_str());
      return 1;
    }
  }
  return report_.good() ? 0 : 1;
}

bool Launcher::start_ranks(const std::string& store_url) {
  Children::Settings settings;
  if (options_.cut) {
    cut_ = LinkCut::start(*options_.cut, plan_);
    if (!cut_) return false;
    settings = [this](std::uint32_t rank) { return cut_->relays().settings_of(rank); };
  }
  if (!children_.start(plan_.prefill + plan_.decode, store_url, settings)) {
    std::fprintf(stderr, "hixl_pd_sim: a rank could not be started: %s\n", std::strerror(errno));
    return false;
  }
  for (Child& child : children_.all()) child.pipe.queue(plan_to_json(plan_));
  return true;
}

bool Launcher::wait_until_ready() {
  const auto deadline = Clock::now() + k_ready_time;
  const auto all_alive = [&] {
    return std::all_of(children_.all().begin(), children_.all().end(), [](const Child& child) { return child.alive; });
  };
  while (ready_ < children_.all().size() && all_alive() && Clock::now() < deadline) poll_children(deadline);
  if (ready_ == children_.all().size()) return true;
  std::fprintf(stderr, "hixl_pd_sim: only %zu of %zu ranks were ready in time\n", ready_, children_.all().size());
  return false;
}

void Launcher::serve() {
  begun_ = Clock::now();
  const auto last_start = begun_ + seconds(options_.seconds_max * k_start_share);
  const auto end = begun_ + seconds(options_.seconds_max);
  if (cut_) cut_->begin(begun_, std::min(last_start - begun_, seconds(requests_.back().arrival_s / plan_.speedup)));
  Progress progress;
  for (;;) {
    const auto now = Clock::now();
    if (now >= last_start) next_request_ = requests_.size();
    const bool waits_for_link = cut_ && !cut_->over();
    if (now >= end || (next_request_ == requests_.size() && open_.empty() && !waits_for_link)) break;
    start_due_requests();
    auto until = std::min(end, progress.next());
    if (next_request_ < requests_.size()) {
      until = std::min({until, last_start, begun_ + seconds(requests_[next_request_].arrival_s / plan_.speedup)});
    }
    if (options_.kill && !killed_at_) {
      const auto at = begun_ + seconds(options_.kill->after_s);
      if (now >= at) {
        killed_at_ = now;
        children_.kill(plan_.prefill + options_.kill->decode);
      }
      until = std::min(until, at);
    }
    if (cut_) {
      cut_->turn(now, children_);
      until = std::min(until, cut_->next());
    }
    poll_children(until);
    progress.show(report_.completed + report_.errors, requests_.size(), static_cast<double>(report_.bytes) / 1e9,
                  report_.errors);
  }
  report_.wall_s = std::chrono::duration<double>(Clock::now() - begun_).count();
  report_.skipped = requests_.size() - report_.requests;
  while (!open_.empty()) end_with_error(open_.begin()->first, "not finished in time", Clock::now());
}

void Launcher::start_due_requests() {
  while (next_request_ < requests_.size()) {
    const Request& request = requests_[next_request_];
    const auto arrival = begun_ + seconds(request.arrival_s / plan_.speedup);
    if (arrival > Clock::now()) return;
    ++next_request_;
    start_request(request, arrival);
  }
}

void Launcher::start_request(const Request& request, Clock::time_point arrival) {
  const std::uint32_t id = next_id_++;
  ++report_.requests;
  const auto prefill = choose_prefill();
  const auto decode = choose_decode();
  if (!prefill || !decode) {
    ++report_.errors;
    ++report_.error_texts["no rank is left to serve it"];
    return;
  }
  open_[id] = {.prefill = *prefill,
               .decode = *decode,
               .blocks = request.hash_ids.size(),
               .input_tokens = request.input_tokens,
               .arrival = arrival,
               .computed = {}};
  prefill_tokens_[*prefill] += request.input_tokens;
  decode_blocks_[*decode] += request.hash_ids.size();
  children_.all()[*prefill].pipe.queue({{"serve", id},
                                        {"input", request.input_tokens},
                                        {"output", request.output_tokens},
                                        {"decode", plan_.prefill + *decode},
                                        {"names", request.hash_ids}});
}

std::optional<std::uint32_t> Launcher::choose_prefill() const {
  std::optional<std::uint32_t> best;
  const auto& children = children_.all();
  for (std::uint32_t i = 0; i < plan_.prefill; ++i) {
    if (children[i].alive && (!best || prefill_tokens_[i] < prefill_tokens_[*best])) best = i;
  }
  return best;
}

std::optional<std::uint32_t> Launcher::choose_decode() {
  std::vector<DecodeLoad> living;
  for (std::uint32_t i = 0; i < plan_.decode; ++i) {
    if (children_.all()[plan_.prefill + i].alive) living.push_back({i, decode_blocks_[i]});
  }
  if (living.empty()) return {};
  return policy_->choose(living);
}

void Launcher::poll_children(Clock::time_point until) {
  std::vector<pollfd> fds;
  for (Child& child : children_.all()) {
    const short events = static_cast<short>(POLLIN | (child.pipe.wants_to_write() ? POLLOUT : 0));
    fds.push_back({.fd = child.alive ? child.pipe.fd() : -1, .events = events, .revents = 0});
  }
  const auto left = std::max(Clock::duration::zero(), until - Clock::now());
  const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  if (::poll(fds.data(), fds.size(), static_cast<int>(std::min<std::int64_t>(left_ms, 1000))) <= 0) return;
  for (std::uint32_t rank = 0; rank < fds.size(); ++rank) {
    Child& child = children_.all()[rank];
    if (fds[rank].revents == 0) continue;
    if ((fds[rank].revents & POLLOUT) != 0) static_cast<void>(child.pipe.flush());
    for (const Json& line : child.pipe.read(false)) on_line(rank, line);
    if (child.pipe.ended()) {
      children_.reap(child);
      on_death(rank);
    }
  }
}

void Launcher::on_line(std::uint32_t rank, const Json& line) {
  Child& child = children_.all()[rank];
  if (line.contains("ready")) ++ready_;
  if (cut_ && line.contains("look")) cut_->on_look(line.at("look"), line.at("pool"));
  if (line.contains("left")) {
    child.left = true;
    for (const auto& [kind, bytes] : line.at("links").items()) report_.link_bytes[kind] += bytes.get<std::uint64_t>();
    report_.copies += line.at("copies").get<std::uint64_t>();
    const std::string stop = line.at("stop");
    if (!stop.empty()) std::fprintf(stderr, "hixl_pd_sim: rank %u: stop: %s\n", rank, stop.c_str());
  }
  const auto find = [&](const char* key) {
    return line.contains(key) ? open_.find(line.at(key).get<std::uint32_t>()) : open_.end();
  };
  if (line.contains("sent")) {
    report_.bytes += line.at("bytes").get<std::uint64_t>();
    report_.reused_bytes += line.at("reused_bytes").get<std::uint64_t>();
    report_.exposed_ms += line.at("exposed_ms").get<double>();
    report_.busy_ms += line.at("busy_ms").get<double>();
    report_.blocked_ms.push_back(line.at("exposed_ms").get<double>());
  }
  if (const auto found = find("sent"); found != open_.end()) {
    found->second.sent = true;
    found->second.computed = from_wire(line.at("computed").get<std::int64_t>());
    prefill_tokens_[found->second.prefill] -= found->second.input_tokens;
  }
  if (line.contains("arrived")) {
    report_.verified_bytes += line.at("verified").get<std::uint64_t>();
    report_.corrupt += line.at("corrupt").get<std::uint64_t>();
  }
  if (const auto found = find("arrived"); found != open_.end()) {
    const auto at = from_wire(line.at("at").get<std::int64_t>());
    if (found->second.sent) report_.ready_ms.push_back(to_ms(at - found->second.computed));
    found->second.arrived = true;
  }
  if (const auto found = find("first_token"); found != open_.end()) {
    report_.ttft_ms.push_back(to_ms(from_wire(line.at("at").get<std::int64_t>()) - found->second.arrival));
  }
  if (const auto found = find("done"); found != open_.end()) {
    ++report_.completed;
    decode_blocks_[found->second.decode] -= found->second.blocks;
    open_.erase(found);
  }
  if (const auto found = find("error"); found != open_.end()) {
    end_with_error(found->first, line.at("text"), from_wire(line.at("at").get<std::int64_t>()));
  }
}

/// The pipe of a rank has ended.
void Launcher::on_death(std::uint32_t rank) {
  const Child& dead = children_.all()[rank];
  if (dead.left) return;
  const bool meant = killed_at_ && rank == plan_.prefill + options_.kill->decode;
  if (!meant) {
    std::fprintf(stderr, "hixl_pd_sim: %s %u %s\n", is_prefill(rank) ? "Prefill" : "Decode",
                 is_prefill(rank) ? rank : rank - plan_.prefill, ending_of(dead.status).c_str());
  }
  for (Child& child : children_.all()) {
    if (child.alive) child.pipe.queue({{"dead", rank}});
  }
  // Requests that only the dead rank had end here. Those that a living Prefill still sends to a dead Decode end with
  // what hixl tells that Prefill.
  std::vector<std::uint32_t> lost;
  for (const auto& [id, open] : open_) {
    const bool lost_prefill = open.prefill == rank && !open.sent;
    const bool lost_decode = plan_.prefill + open.decode == rank && open.sent;
    if (lost_prefill || lost_decode) lost.push_back(id);
  }
  const std::string text = is_prefill(rank) ? "its Prefill died" : "its Decode died while it had the request";
  for (const std::uint32_t id : lost) end_with_error(id, text, Clock::now());
}

void Launcher::end_with_error(std::uint32_t id, const std::string& text, Clock::time_point at) {
  const auto found = open_.find(id);
  const Open& open = found->second;
  ++report_.errors;
  // Counted by name and sentence; the numbers in brackets differ from one to the next.
  ++report_.error_texts[text.substr(0, text.find(" ("))];
  if (killed_at_ && options_.kill->decode == open.decode) {
    ++report_.expected_errors;
    report_.error_after_kill_ms_max = std::max(report_.error_after_kill_ms_max, to_ms(at - *killed_at_));
  }
  if (!open.sent) prefill_tokens_[open.prefill] -= open.input_tokens;
  decode_blocks_[open.decode] -= open.blocks;
  open_.erase(found);
}

/// The report shows the return of the link, also when the last request ended before it.
void Launcher::wait_for_link() {
  const auto deadline = Clock::now() + k_return_time;
  do {
    cut_->look_last(children_);
    while (!cut_->looked_last(Clock::now())) poll_children(cut_->next());
    // Nothing is said meanwhile; it is a pause until the next look.
    if (!cut_->is_back()) poll_children(std::min(deadline, Clock::now() + k_look_pause));
  } while (!cut_->is_back() && Clock::now() < deadline);
}

void Launcher::finish_ranks() {
  for (Child& child : children_.all()) {
    if (child.alive) child.pipe.queue({{"finish", true}});
  }
  const auto deadline = Clock::now() + k_leave_time;
  const auto any_alive = [&] {
    return std::any_of(children_.all().begin(), children_.all().end(), [](const Child& child) { return child.alive; });
  };
  while (any_alive() && Clock::now() < deadline) poll_children(deadline);
}

}  // namespace pd
