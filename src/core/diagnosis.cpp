// SPDX-License-Identifier: Apache-2.0
//
// hixl::Diagnosis: a store and rank 0 of a world of callers, over the public interface alone.
#include <hixl/diagnosis.hpp>

#include <utility>

#include <hixl/offers.hpp>
#include <hixl/store.hpp>

#include "runtime/address.hpp"

namespace hixl {

namespace {

/// This rank posts nothing and offers one region, so that little memory is enough.
constexpr std::uint32_t k_requests = 64;
constexpr std::uint32_t k_regions = 256;

}  // namespace

class Diagnosis::State {
 public:
  std::unique_ptr<Store> store;
  std::unique_ptr<Runtime> rank;  // destroyed first: it leaves the store in order
};

Result<std::unique_ptr<Diagnosis>> Diagnosis::open(const DiagnosisOptions& options) {
  const auto address = runtime::Address::parse(options.address);
  if (!address) return fail(address.error());
  auto state = std::make_unique<State>();
  auto store = Store::create("tcp://" + options.address, options.insecure);
  if (!store) return fail(store.error());
  state->store = std::move(*store);
  RuntimeOptions own;
  own.rank = 0;
  own.world_size = world_size();
  own.store = state->store->url();
  own.job = world_of(options.job);
  own.bind = options.bind.empty() ? address->host : options.bind;
  own.advertise = options.advertise;
  own.insecure = options.insecure;
  own.links = options.links;
  own.requests_max = k_requests;
  own.regions_max = k_regions;
  auto rank = Runtime::create(own);
  if (!rank) return fail(rank.error());
  state->rank = std::move(*rank);
  const auto region = state->rank->allocate(std::size_t{k_diagnosis_callers} * k_diagnosis_bytes_max,
                                            {.rights = Rights::read | Rights::write, .tag = k_diagnosis_tag});
  if (!region) return fail(region.error());
  if (const auto offered = Offers::add(*state->rank, {&*region, 1}); !offered) return fail(offered.error());
  return std::unique_ptr<Diagnosis>(new Diagnosis(std::move(state)));
}

Diagnosis::Diagnosis(std::unique_ptr<State> state) : state_(std::move(state)) {}
Diagnosis::~Diagnosis() = default;

std::string Diagnosis::world_of(const std::string& job) { return "hixl_diag/" + job; }

std::string Diagnosis::address() const { return state_->store->url().substr(std::string_view("tcp://").size()); }

}  // namespace hixl
