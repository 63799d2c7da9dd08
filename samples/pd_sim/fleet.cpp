// SPDX-License-Identifier: Apache-2.0
#include "fleet.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <queue>
#include <random>

#include <fmt/format.h>

#include "policy.hpp"

namespace fleet {

namespace {

std::uint64_t total_tokens(const pd::Request& request) {
  return std::uint64_t{request.input_tokens} + request.output_tokens;
}

std::uint64_t blocks_of(const pd::Request& request) {
  return (total_tokens(request) + pd::k_block_tokens - 1) / pd::k_block_tokens;
}

enum class What : std::uint8_t { arrival, computed, flow_begins, flow_ends, kv_there, step_ends };

struct Event {
  double at = 0;
  std::uint64_t order = 0;
  What what = What::arrival;
  std::uint32_t node = 0;     // of the kind that `what` says
  std::uint32_t request = 0;  // or, of flow_ends, the version that it holds for
  friend bool operator>(const Event& a, const Event& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; }
};

struct Prefill {
  std::deque<std::uint32_t> queue;  // the first is being computed
  double free_at = 0;
};

/// Flows into one Decode, each with an equal share: `served` is what each one that was there all the time has got.
struct Ingress {
  struct Flow {
    double until = 0;  // `served` at its end
    std::uint32_t request = 0;
    friend bool operator>(const Flow& a, const Flow& b) { return a.until > b.until; }
  };
  std::priority_queue<Flow, std::vector<Flow>, std::greater<>> flows;
  double served = 0;
  double seen_at = 0;
  std::uint32_t version = 0;  // of the end that has been foreseen

  void look(double now, double bytes_per_s) {
    if (!flows.empty()) served += (now - seen_at) * bytes_per_s / static_cast<double>(flows.size());
    seen_at = now;
  }
};

struct Decode {
  Ingress ingress;
  std::deque<std::uint32_t> waiting;   // for room
  std::vector<std::uint32_t> arrived;  // join with the next step
  std::vector<std::uint32_t> batch;
  double room_tokens = 0;
  std::uint64_t context_tokens = 0;  // of the batch
  double factor = 1;
  bool stepping = false;
};

struct Progress {
  std::uint32_t prefill = 0;
  std::uint32_t decode = 0;
  double begun_at = 0;     // its computation
  double computed_at = 0;  // known from the beginning on
  double room_wanted_at = 0;
  double room_s = 0;
  double first_token_at = 0;
  std::uint32_t made = 0;
};

class Fleet {
 public:
  Fleet(const Shape& shape, const std::vector<pd::Request>& requests, std::string_view policy)
      : shape_(shape),
        requests_(requests),
        policy_(pd::make_policy(policy)),
        token_bytes_(static_cast<double>(shape.model.layers) * shape.model.token_layer_bytes),
        prefills_(shape.prefills),
        decodes_(shape.decodes),
        progress_(requests.size()),
        loads_(shape.decodes),
        known_(shape.decodes),
        last_arrival_(requests.back().arrival_s) {
    std::vector<std::uint32_t> order(shape.decodes);
    for (std::uint32_t i = 0; i < shape.decodes; ++i) {
      order[i] = i;
      loads_[i].decode = i;
      decodes_[i].room_tokens = shape.decode_bytes / token_bytes_;
    }
    known_ = loads_;
    std::mt19937_64 random(shape.seed);
    std::shuffle(order.begin(), order.end(), random);
    const auto slow = static_cast<std::size_t>(shape.slow_share * shape.decodes);
    for (std::size_t i = 0; i < slow; ++i) decodes_[order[i]].factor = shape.slow_factor;
  }

  Outcome run() {
    for (std::uint32_t i = 0; i < requests_.size(); ++i) add(requests_[i].arrival_s, What::arrival, 0, i);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      outcome_.events += 1;
      handle(event);
    }
    for (auto* times : {&outcome_.first_token_s, &outcome_.room_s, &outcome_.token_s}) {
      std::sort(times->begin(), times->end());
    }
    outcome_.seconds = std::max(last_arrival_ - requests_.front().arrival_s, 1e-9);
    outcome_.tokens_per_s /= outcome_.seconds;
    outcome_.busy /= outcome_.seconds * shape_.decodes;
    return std::move(outcome_);
  }

 private:
  void add(double at, What what, std::uint32_t node, std::uint32_t request) {
    events_.push({.at = at, .order = next_order_++, .what = what, .node = node, .request = request});
  }

  void handle(const Event& event) {
    switch (event.what) {
      case What::arrival:
        return on_arrival(event.request);
      case What::computed:
        return on_computed(event.node);
      case What::flow_begins:
        return on_flow_begins(event.node, event.request);
      case What::flow_ends:
        return on_flow_ends(event.node, event.request);
      case What::kv_there:
        return on_kv_there(event.node, event.request);
      case What::step_ends:
        return on_step_ends(event.node);
    }
  }

  void on_arrival(std::uint32_t request) {
    const auto least = std::min_element(prefills_.begin(), prefills_.end(), [&](const Prefill& a, const Prefill& b) {
      return std::max(a.free_at, now_) < std::max(b.free_at, now_);
    });
    progress_[request].prefill = static_cast<std::uint32_t>(least - prefills_.begin());
    least->free_at = std::max(least->free_at, now_) + requests_[request].input_tokens / shape_.prefill_tokens_per_s;
    least->queue.push_back(request);
    if (least->queue.size() == 1) compute(*least);
  }

  void compute(const Prefill& prefill) {
    const std::uint32_t request = prefill.queue.front();
    Progress& at = progress_[request];
    at.begun_at = now_;
    at.computed_at = now_ + requests_[request].input_tokens / shape_.prefill_tokens_per_s;
    at.decode = policy_->choose(known_loads());
    loads_[at.decode].blocks += blocks_of(requests_[request]);
    add(at.computed_at, What::computed, at.prefill, request);
    at.room_wanted_at = now_;
    decodes_[at.decode].waiting.push_back(request);
    admit(at.decode);
  }

  void on_computed(std::uint32_t node) {
    Prefill& prefill = prefills_[node];
    prefill.queue.pop_front();
    if (!prefill.queue.empty()) compute(prefill);
  }

  const std::vector<pd::DecodeLoad>& known_loads() {
    if (shape_.stale_s <= 0) return loads_;
    const auto period = static_cast<std::uint64_t>(std::min(now_ / shape_.stale_s, 1e18));  // fits the type
    if (period != known_period_) known_ = loads_;
    known_period_ = period;
    return known_;
  }

  void admit(std::uint32_t node) {
    Decode& decode = decodes_[node];
    while (!decode.waiting.empty()) {
      const std::uint32_t request = decode.waiting.front();
      const auto tokens = static_cast<double>(total_tokens(requests_[request]));
      if (tokens > decode.room_tokens) return;
      decode.room_tokens -= tokens;
      decode.waiting.pop_front();
      Progress& at = progress_[request];
      at.room_s = now_ - at.room_wanted_at;
      const double first_layer_at = at.begun_at + (at.computed_at - at.begun_at) / shape_.model.layers;
      add(std::max(now_, first_layer_at), What::flow_begins, node, request);
    }
  }

  void on_flow_begins(std::uint32_t node, std::uint32_t request) {
    Ingress& ingress = decodes_[node].ingress;
    ingress.look(now_, shape_.link.bytes_per_s);
    ingress.flows.push({.until = ingress.served + requests_[request].input_tokens * token_bytes_, .request = request});
    foresee(node);
  }

  void foresee(std::uint32_t node) {
    Ingress& ingress = decodes_[node].ingress;
    if (ingress.flows.empty()) return;
    const double left = std::max(ingress.flows.top().until - ingress.served, 0.0);
    add(now_ + left * static_cast<double>(ingress.flows.size()) / shape_.link.bytes_per_s, What::flow_ends, node,
        ++ingress.version);
  }

  void on_flow_ends(std::uint32_t node, std::uint32_t version) {
    Ingress& ingress = decodes_[node].ingress;
    if (version != ingress.version) return;  // another flow came or went since
    ingress.look(now_, shape_.link.bytes_per_s);
    const std::uint32_t request = ingress.flows.top().request;
    ingress.flows.pop();
    // Faster than the layers were computed: the last one ends it.
    const double last_layer_s =
        requests_[request].input_tokens * double{1} * shape_.model.token_layer_bytes / shape_.link.bytes_per_s;
    const double there = std::max(now_, progress_[request].computed_at + last_layer_s) + shape_.link.latency_s;
    add(there, What::kv_there, node, request);
    foresee(node);
  }

  void on_kv_there(std::uint32_t node, std::uint32_t request) {
    Decode& decode = decodes_[node];
    decode.arrived.push_back(request);
    if (!decode.stepping) step(node);
  }

  void step(std::uint32_t node) {
    Decode& decode = decodes_[node];
    for (const std::uint32_t request : decode.arrived) {
      decode.batch.push_back(request);
      decode.context_tokens += requests_[request].input_tokens;
    }
    decode.arrived.clear();
    decode.stepping = !decode.batch.empty();
    if (!decode.stepping) return;
    const double kv_s = static_cast<double>(decode.context_tokens) * token_bytes_ / shape_.memory_bytes_per_s;
    const double step_s = decode.factor * (shape_.step_s + kv_s);
    if (now_ < last_arrival_) outcome_.busy += std::min(step_s, last_arrival_ - now_);
    add(now_ + step_s, What::step_ends, node, 0);
  }

  void on_step_ends(std::uint32_t node) {
    Decode& decode = decodes_[node];
    decode.context_tokens += decode.batch.size();
    outcome_.tokens += decode.batch.size();
    if (now_ <= last_arrival_) outcome_.tokens_per_s += static_cast<double>(decode.batch.size());
    std::erase_if(decode.batch, [&](std::uint32_t request) {
      Progress& at = progress_[request];
      if (++at.made == 1) at.first_token_at = now_;
      if (at.made < requests_[request].output_tokens) return false;
      finish(decode, request);
      return true;
    });
    admit(node);
    step(node);
  }

  void finish(Decode& decode, std::uint32_t request) {
    const pd::Request& asked = requests_[request];
    const Progress& at = progress_[request];
    decode.context_tokens -= total_tokens(asked);
    decode.room_tokens += static_cast<double>(total_tokens(asked));
    loads_[at.decode].blocks -= blocks_of(asked);
    outcome_.requests += 1;
    outcome_.first_token_s.push_back(at.first_token_at - asked.arrival_s);
    outcome_.room_s.push_back(at.room_s);
    if (at.made > 1) outcome_.token_s.push_back((now_ - at.first_token_at) / (at.made - 1));
  }

  const Shape& shape_;
  const std::vector<pd::Request>& requests_;
  std::unique_ptr<pd::Policy> policy_;
  double token_bytes_;
  std::vector<Prefill> prefills_;
  std::vector<Decode> decodes_;
  std::vector<Progress> progress_;
  std::vector<pd::DecodeLoad> loads_;
  std::vector<pd::DecodeLoad> known_;  // as they were
  std::uint64_t known_period_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_order_ = 0;
  double now_ = 0;
  double last_arrival_;
  Outcome outcome_;
};

}  // namespace

std::string problem_of(const Shape& shape, const std::vector<pd::Request>& requests) {
  if (shape.prefills == 0 || shape.decodes == 0) return "a fleet has at least one Prefill and one Decode";
  if (requests.empty()) return "no requests";
  const double token_bytes = static_cast<double>(shape.model.layers) * shape.model.token_layer_bytes;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const double bytes = static_cast<double>(total_tokens(requests[i])) * token_bytes;
    if (bytes > shape.decode_bytes) {
      return fmt::format("request {} needs {:.1f} GB of KV, and a Decode has {:.1f} GB: raise --decode-gb", i,
                         bytes / 1e9, shape.decode_bytes / 1e9);
    }
  }
  return {};
}

Outcome run(const Shape& shape, const std::vector<pd::Request>& requests, std::string_view policy) {
  return Fleet(shape, requests, policy).run();
}

double quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto at = static_cast<std::size_t>(share * static_cast<double>(sorted.size()));
  return sorted[std::min(at, sorted.size() - 1)];
}

}  // namespace fleet
