// SPDX-License-Identifier: Apache-2.0
#include "movement.hpp"

#include <algorithm>
#include <utility>

namespace hixl::kv {

namespace {

/// Enough to keep every kind of link busy while the loop hears of an end and posts the next.
constexpr std::size_t k_flights_max = 8;
constexpr std::uint64_t k_bytes_in_flight_max = std::uint64_t{128} << 20U;
/// A batch: long enough that its own cost does not show, short enough that the first ends while the last is cut.
constexpr std::size_t k_entries_max = 4'096;
constexpr std::uint64_t k_batch_bytes_max = std::uint64_t{32} << 20U;

}  // namespace

Transfer::State::State(Parts&& parts) : parts_(std::move(parts)), layers_(parts_.plan.layers().size()) {
  if (parts_.options.layered) return;
  for (std::uint32_t place = 0; place < layers_.size(); ++place) queue_.push_back(place);
}

bool Transfer::State::layer_by_layer() const noexcept { return parts_.arrivals.has_value(); }

Result<void> Transfer::State::begin() {
  const Lock lock(mutex_);
  parts_.home->begin_step(parts_.gate);
  auto posted = parts_.home->runtime.fetch_add(parts_.gate.at, gate::one(parts_.gate.access),
                                               {.timeout = time_left(), .callback = {on_entered, this}});
  if (!posted) {
    parts_.home->end_step(parts_.gate, {});
    return fail(posted.error());
  }
  entry_ = std::move(*posted);
  return {};
}

void Transfer::State::never_began() {
  auto& home = *parts_.home;
  const auto self = home.take_out(this);
  {
    const std::lock_guard guard(home.mutex);
    parts_.local->uses -= 1;
    if (parts_.mark) home.marks.end(*parts_.mark, false, 0);
  }
  {
    const Lock lock(mutex_);
    stage_ = Stage::ended;
  }
  home.left_gate(parts_.remote->rank);
}

void Transfer::State::on_entered(void* context, const Completion& completion) {
  static_cast<State*>(context)->entered(completion);
}

void Transfer::State::entered(const Completion& completion) {
  const auto self = shared_from_this();
  Lock lock(mutex_);
  entry_ = {};
  stage_ = Stage::moving;
  if (!completion.result) {
    Error why = completion.result.error();
    parts_.home->end_step(parts_.gate, {.doubtful = why.code == ErrorCode::outcome_unknown});
    // Whether the gate has counted us is unknown, but nothing was moved.
    if (why.code == ErrorCode::outcome_unknown) why.code = ErrorCode::peer_lost;
    if (!error_) error_ = why;
  } else {
    inside_ = true;
    parts_.home->end_step(parts_.gate, {.inside = GateBook::k_entered});
    if (!error_ && gate::ask(completion.value, parts_.gate.generation, parts_.gate.access) != gate::Answer::admitted) {
      error_ = parts_.home->refused(parts_.gate, completion.value);
    }
  }
  advance();
  finish_if_over(std::move(lock), true);
}

/// Cuts pieces of the layers that may move into batch_, as many as fit; where arrivals are told, of one layer.
void Transfer::State::fill() {
  const bool alone = layer_by_layer();
  const auto touch = [&](std::uint32_t place) {
    batch_layers_.push_back(place);
    layers_[place].flights += 1;
  };
  if (!to_tell_.empty()) {
    touch(to_tell_.front());
    to_tell_.pop_front();
    return;
  }
  const auto full = [&] { return batch_.size() >= k_entries_max || batch_bytes_ >= k_batch_bytes_max; };
  if (cutting_) touch(layer_cut_);
  while (!full()) {
    if (!cutting_) {
      if (queue_.empty() || (alone && !batch_layers_.empty())) return;
      layer_cut_ = queue_.front();
      queue_.pop_front();
      cut_ = parts_.plan.begin_layer(parts_.plan.layers().first + layer_cut_);
      cut_over_ = false;
      cutting_ = true;
      touch(layer_cut_);
    }
    if (piece_at_ == pieces_.size()) {
      pieces_.clear();
      piece_at_ = 0;
      // Not more than a batch takes, since the loop waits meanwhile.
      cut_over_ = parts_.plan.cut(cut_, k_entries_max, pieces_);
    }
    while (piece_at_ < pieces_.size() && !full()) add_to_batch(pieces_[piece_at_++]);
    if (!cut_over_ || piece_at_ < pieces_.size()) continue;
    layers_[layer_cut_].posted_all = true;
    cutting_ = false;
  }
}

void Transfer::State::add_to_batch(const Piece& piece) {
  const bool put = parts_.verb == TransferVerb::put;
  const std::uint64_t here = put ? piece.source : piece.target;
  const std::uint64_t there = put ? piece.target : piece.source;
  const TensorAddress& local = parts_.local->tensors[put ? piece.source_tensor : piece.target_tensor];
  const TensorAddress& remote = parts_.remote->tensors[put ? piece.target_tensor : piece.source_tensor];
  batch_.push_back({.verb = parts_.verb,
                    .local = reinterpret_cast<void*>(local.address + here),
                    .remote = {.rank = parts_.remote->rank,
                               .address = remote.address + there,
                               .region = remote.region,
                               .incarnation = parts_.remote->directory.incarnation},
                    .size = piece.bytes});
  batch_bytes_ += piece.bytes;
}

/// All other bytes of the layer are there, or in this batch.
bool Transfer::State::completes_layer() const noexcept {
  const Layer& layer = layers_[batch_layers_.front()];
  return layer_by_layer() && layer.posted_all && layer.flights == 1;
}

Result<Request> Transfer::State::post(Flight& flight) {
  Runtime& runtime = parts_.home->runtime;
  const OpOptions options{.timeout = time_left(), .callback = {on_flight, &flight}};
  if (!flight.tells) {
    // Layers without bytes end as all others do: later, on the loop thread.
    return batch_.empty() ? runtime.flush_async(parts_.home->own_rank, options) : runtime.batch(batch_, options);
  }
  RemoteAddress word = *parts_.arrivals;
  const std::uint32_t layer = parts_.plan.target_layer() + batch_layers_.front() - parts_.arrivals_first;
  word.address += std::uint64_t{layer} * k_word_bytes;
  const Signal signal{.word = word, .value = parts_.gate.generation};
  if (batch_.empty()) return runtime.put_with_signal(parts_.home->region.data, word, 0, signal, options);
  return runtime.batch_with_signal(batch_, signal, options);
}

void Transfer::State::advance() {
  starved_ = false;
  while (stage_ == Stage::moving && !error_ && flights_.size() < k_flights_max &&
         bytes_in_flight_ < k_bytes_in_flight_max) {
    if (batch_layers_.empty()) fill();
    if (batch_layers_.empty()) return;
    Flight& flight = flights_.emplace_back();
    flight.owner = this;
    flight.bytes = batch_bytes_;
    flight.tells = completes_layer();
    auto posted = post(flight);
    if (!posted) {
      flights_.pop_back();
      if (posted.error().code == ErrorCode::busy) {
        starved_ = true;  // tried again when a flight lands, or by the keeper
        return;
      }
      stop_with(posted.error());
      return;
    }
    flight.request = std::move(*posted);
    flight.layers = std::move(batch_layers_);
    bytes_in_flight_ += batch_bytes_;
    batch_.clear();
    batch_layers_.clear();
    batch_bytes_ = 0;
  }
}

void Transfer::State::on_flight(void* context, const Completion& completion) {
  auto& flight = *static_cast<Flight*>(context);
  flight.owner->landed(flight, completion);
}

void Transfer::State::landed(Flight& flight, const Completion& completion) {
  const auto self = shared_from_this();
  std::vector<std::uint32_t> arrived;
  Lock lock(mutex_);
  bytes_in_flight_ -= flight.bytes;
  if (completion.result) {
    bytes_done_ += flight.bytes;
    for (const std::uint32_t place : flight.layers) {
      Layer& layer = layers_[place];
      if (--layer.flights > 0 || !layer.posted_all) continue;
      if (layer_by_layer() && !flight.tells) {
        to_tell_.push_back(place);
        continue;
      }
      layers_done_ += 1;
      arrived.push_back(place);
    }
  } else {
    stop_with(completion.result.error());
  }
  flights_.remove_if([&](const Flight& at) { return &at == &flight; });
  advance();
  if (parts_.options.on_layer.function != nullptr && !arrived.empty()) {
    telling_ = true;
    lock.unlock();
    for (const std::uint32_t place : arrived) {
      parts_.options.on_layer.function(parts_.options.on_layer.context, parts_.plan.layers().first + place);
    }
    lock.lock();
    telling_ = false;
  }
  finish_if_over(std::move(lock), true);
}

bool Transfer::State::all_there() const noexcept { return layers_done_ == layers_.size(); }

/// Posts nothing more, and asks what is under way to end. The first error stays; when all is there, it is too late.
void Transfer::State::stop_with(const Error& why) {
  if (all_there()) return;
  if (!error_) error_ = why;
  static_cast<void>(entry_.cancel());
  for (Flight& flight : flights_) static_cast<void>(flight.request.cancel());
}

bool Transfer::State::over() const noexcept {
  if (stage_ != Stage::moving || !flights_.empty() || telling_) return false;
  return error_ || all_there();
}

void Transfer::State::finish_if_over(Lock lock, bool on_loop) {
  if (!over()) return;
  stage_ = Stage::ending;
  const Result<void> result = error_ ? Result<void>(fail(*error_)) : Result<void>();
  const Progress progress = progress_locked();
  const bool inside = std::exchange(inside_, false);
  lock.unlock();
  auto& home = *parts_.home;
  home.begin_errand();  // until the program has been told
  const std::shared_ptr<State> self = home.take_out(this);
  {
    const std::lock_guard guard(home.mutex);
    parts_.local->uses -= 1;
    if (parts_.mark) home.marks.end(*parts_.mark, result.has_value(), parts_.mark_tokens);
  }
  // Not before: whoever sees the end may move the same sequence, or take the cache back.
  lock.lock();
  stage_ = Stage::ended;
  lock.unlock();
  if (inside) {
    home.leave(parts_.gate, parts_.options.release && result);
  } else {
    home.left_gate(parts_.remote->rank);
  }
  const TransferCallback& callback = parts_.options.callback;
  if (callback.function != nullptr && on_loop) {
    callback.function(callback.context, result, progress);
  } else if (callback.function != nullptr) {
    home.hop([self, result, progress] {
      const TransferCallback& told = self->parts_.options.callback;
      told.function(told.context, result, progress);
    });
  }
  home.end_errand();
}

Progress Transfer::State::progress_locked() const noexcept {
  return {.bytes_total = parts_.plan.layer_bytes() * layers_.size(),
          .bytes_done = bytes_done_,
          .layers_total = static_cast<std::uint32_t>(layers_.size()),
          .layers_done = layers_done_};
}

// ---- Transfer's ----

Result<void> Transfer::State::query() {
  const Lock lock(mutex_);
  if (stage_ != Stage::ended) return fail(parts_.home->error_of(ErrorCode::busy, parts_.remote->rank));
  return error_ ? Result<void>(fail(*error_)) : Result<void>();
}

Result<void> Transfer::State::wait(Timeout timeout) {
  Instant deadline = Instant::max();
  if (timeout != k_default_timeout) {
    const auto wanted = parts_.home->deadline_of(timeout);
    if (!wanted) return fail(wanted.error());
    deadline = *wanted;
  }
  if (const auto ended = query(); ended || ended.error().code != ErrorCode::busy) return ended;
  auto& home = *parts_.home;
  const auto pass = home.enter();
  if (!pass) return fail(pass.error());
  const auto ended = [this] {
    const Lock lock(mutex_);
    return stage_ == Stage::ended;
  };
  // close() ends it, and this wait with it.
  if (const auto waited = home.watch(deadline, home.stopping, ended); !waited && !ended()) return waited;
  return query();
}

Progress Transfer::State::progress() {
  const Lock lock(mutex_);
  return progress_locked();
}

Result<void> Transfer::State::ready(std::uint32_t layer) {
  Lock lock(mutex_);
  const Range& layers = parts_.plan.layers();
  const Rank rank = parts_.remote->rank;
  if (!parts_.options.layered) return fail(parts_.home->error_of(ErrorCode::invalid_argument, rank));
  if (layer < layers.first || layer >= layers.last) {
    return fail(ErrorCode::out_of_range,
                {.rank = rank, .stage = hixl::Stage::kv, .length = layer, .limit = layers.last});
  }
  if (error_) return fail(*error_);
  Layer& place = layers_[layer - layers.first];
  if (std::exchange(place.named, true)) {
    return fail(ErrorCode::already_exists, {.rank = rank, .stage = hixl::Stage::kv, .length = layer});
  }
  queue_.push_back(layer - layers.first);
  advance();
  finish_if_over(std::move(lock), false);
  return {};
}

void Transfer::State::end_early(const Error& why) {
  Lock lock(mutex_);
  if (stage_ >= Stage::ending || error_) return;
  stop_with(why);
  finish_if_over(std::move(lock), false);
}

bool Transfer::State::look(Instant now) {
  Lock lock(mutex_);
  if (stage_ >= Stage::ending) return false;
  if (now >= parts_.deadline && !error_) {
    stop_with(parts_.home->error_of(ErrorCode::deadline_exceeded, parts_.remote->rank));
  }
  if (starved_) advance();
  const bool starved = starved_;
  finish_if_over(std::move(lock), false);
  return starved;
}

}  // namespace hixl::kv
