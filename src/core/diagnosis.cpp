// SPDX-License-Identifier: Apache-2.0
//
// hixl::Diagnosis: a store, rank 0 of a world of callers, and the thread that answers their questions.
#include <hixl/diagnosis.hpp>

#include <string_view>
#include <utility>

#include <hixl/offers.hpp>
#include <hixl/store.hpp>

#include "base/log.hpp"
#include "core/answering.hpp"
#include "core/runtime_state.hpp"
#include "runtime/address.hpp"

namespace hixl {

namespace {

/// This rank posts nothing and offers one region and an answer for each caller, so that little memory is enough.
constexpr std::uint32_t k_requests = 64;
constexpr std::uint32_t k_regions = 256;

RuntimeOptions options_of(const DiagnosisOptions& options, const std::string& host, const std::string& store) {
  RuntimeOptions own = options.like;
  own.rank = 0;
  own.world_size = Diagnosis::world_size();
  own.store = store;
  own.host_store = false;
  own.guest = false;  // callers are
  own.job = Diagnosis::world_of(options.job);
  own.bind = options.bind.empty() ? host : options.bind;
  own.advertise = options.advertise;
  own.insecure = options.insecure;
  own.requests_max = k_requests;
  own.regions_max = k_regions;
  own.peers_max = 2 * k_diagnosis_callers;
  own.diagnosis.clear();
  own.hbm_bytes = 0;
  own.sweep_period = {};
  own.sweep_hook = {};
  return own;
}

/// RuntimeOptions::diagnosis with the rank added where it ends with '+'.
Result<std::string> place_of(const RuntimeOptions& options) {
  constexpr std::uint32_t k_port_max = 65'535;
  const bool added = options.diagnosis.ends_with('+');
  auto address = runtime::Address::parse(options.diagnosis.substr(0, options.diagnosis.size() - (added ? 1 : 0)));
  if (address && address->family != runtime::Address::Family::tcp) {
    address = fail(ErrorCode::invalid_argument, {.stage = Stage::options});
  }
  if (!address) {
    log::error("option diagnosis=\"{}\": {}; it is host:port, or host:port+ for the port plus the rank",
               options.diagnosis, what(address.error().code));
    return fail(address.error());
  }
  const std::uint32_t port = address->port + (added ? options.rank : 0);
  if (port > k_port_max) {
    log::error("option diagnosis=\"{}\": with rank {} that is port {}; {} is the last", options.diagnosis, options.rank,
               port, k_port_max);
    return fail(ErrorCode::invalid_argument,
                {.rank = options.rank, .stage = Stage::options, .length = port, .limit = k_port_max});
  }
  address->port = static_cast<std::uint16_t>(port);
  return address->text();
}

}  // namespace

class Diagnosis::State {
 public:
  std::unique_ptr<Store> store;
  std::unique_ptr<Runtime> rank;  // leaves the store in order, so it goes first
  std::unique_ptr<core::Answering> answering;
};

Result<std::unique_ptr<Diagnosis>> Diagnosis::open(const DiagnosisOptions& options, Runtime* about) {
  const auto address = runtime::Address::parse(options.address);
  if (!address) return fail(address.error());
  auto state = std::make_unique<State>();
  auto store = Store::create("tcp://" + options.address, options.insecure);
  if (!store) return fail(store.error());
  state->store = std::move(*store);
  auto rank = Runtime::create(options_of(options, address->host, state->store->url()));
  if (!rank) return fail(rank.error());
  state->rank = std::move(*rank);
  const auto region = state->rank->allocate(k_region_bytes, {.rights = Rights::all, .tag = k_diagnosis_tag});
  if (!region) return fail(region.error());
  state->answering = std::make_unique<core::Answering>(*state->rank, *region,
                                                       RuntimeDoor::core(about != nullptr ? *about : *state->rank));
  std::unique_ptr<Diagnosis> opened(new Diagnosis(std::move(state)));  // from here on it closes in order
  if (const auto started = opened->state_->answering->start(); !started) return fail(started.error());
  if (const auto offered = Offers::add(*opened->state_->rank, {&*region, 1}); !offered) return fail(offered.error());
  return opened;
}

Result<std::unique_ptr<Runtime>> RuntimeDoor::open(std::unique_ptr<core::Core> core) {
  const RuntimeOptions& options = core->options();
  std::unique_ptr<Runtime> runtime(new Runtime(std::make_unique<Runtime::State>(std::move(core))));
  if (options.diagnosis.empty()) return runtime;
  auto place = place_of(options);
  if (!place) return fail(place.error());
  auto diagnosis = Diagnosis::open({.address = *place,
                                    .bind = {},
                                    .advertise = {},
                                    .job = options.job,
                                    .insecure = options.insecure,
                                    .like = options},
                                   runtime.get());
  if (!diagnosis) {
    log::error("option diagnosis=\"{}\": nobody can be answered at {}: {}", options.diagnosis, *place,
               diagnosis.error().message());
    return fail(diagnosis.error());
  }
  runtime->state_->diagnosis = std::move(*diagnosis);
  return runtime;
}

Diagnosis::Diagnosis(std::unique_ptr<State> state) : state_(std::move(state)) {}

/// A forked child has none of the threads: its copy stays until it ends.
Diagnosis::~Diagnosis() {
  if (RuntimeDoor::core(*state_->rank).forked()) {
    static_cast<void>(state_.release());
  } else {
    state_->answering->close();
  }
}

std::string Diagnosis::world_of(const std::string& job) { return "hixl_diag/" + job; }

std::string Diagnosis::address() const { return state_->store->url().substr(std::string_view("tcp://").size()); }

}  // namespace hixl
