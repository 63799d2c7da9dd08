// SPDX-License-Identifier: Apache-2.0
//
// Core's operations of many ranges: batches, pieces gathered and scattered, strides. Every range is checked before a
// byte moves; an error names the first that is wrong.
#include <algorithm>
#include <limits>

#include "core/checks.hpp"
#include "core/core.hpp"

namespace hixl::core {

namespace {

constexpr std::uint64_t k_address_max = std::numeric_limits<std::uint64_t>::max();

Error at_entry(Error error, std::size_t index) {
  error.detail.entry = static_cast<std::uint32_t>(index);
  return error;
}

Result<void> check_count(std::size_t count) {
  if (count > 0 && count <= k_batch_entries_max) return {};
  return fail(ErrorCode::invalid_argument,
              {.stage = Stage::options, .length = count, .limit = count == 0 ? 1 : k_batch_entries_max});
}

/// Bytes from the start of the first block to the end of the last.
Result<std::uint64_t> footprint(const Strided& strided, std::uint64_t address, std::uint64_t stride, Stage side) {
  if (strided.blocks <= 1) return strided.block_bytes;
  const std::uint64_t stride_max = (k_address_max - strided.block_bytes) / (strided.blocks - 1);
  if (stride <= stride_max) return stride * (strided.blocks - 1) + strided.block_bytes;
  return fail(ErrorCode::invalid_argument, {.stage = side, .address = address, .length = stride, .limit = stride_max});
}

}  // namespace

template <class Fill>
Result<Request> Core::post_filled(Rank rank, const OpOptions& options, Fill&& fill) {
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  if (const auto usable = check_links(options.links, rank); !usable) return fail(usable.error());
  const auto deadline = deadline_of(options.timeout);
  if (!deadline) return fail(deadline.error());
  const auto acquired = requests_->acquire();
  if (!acquired) return fail(acquired.error());
  peer::Operation& operation = operations_[acquired->slot];
  if (const Result<void> filled = fill(operation); !filled) {
    operation.reset();
    requests_->abandon(acquired->slot);
    return fail(filled.error());
  }
  operation.plan.finish(operation.batch);
  operation.kind = peer::Operation::Kind::transfer;
  operation.rank = rank;
  operation.links = options.links;
  operation.deadline = *deadline;
  const auto single = operation.single.verb == TransferVerb::put ? OperationVerb::put : OperationVerb::get;
  return submit(
      operation, *acquired, options,
      {operation.batch.empty() ? single : OperationVerb::batch, operation.signal.wanted, operation.total_bytes()});
}

/// Entries of one region share its pin.
void Core::share_pin(peer::Operation& operation, peer::Entry& entry, memory::Pin&& pin) {
  if (!pin) return;
  entry.device = &pin.device();
  if (operation.pins.empty() || operation.pins.back().id() != pin.id()) operation.pins.push_back(std::move(pin));
}

Result<void> Core::add_entry(peer::Operation& operation, const BatchEntry& item) {
  peer::Entry entry;
  if (const auto filled = fill_entry(entry, item.verb, item.local, item.remote, item.size); !filled) return filled;
  auto pin = pin_local(item.local, item.size, local_need(item.verb));
  if (!pin) return fail(pin.error());
  share_pin(operation, entry, std::move(*pin));
  // Should all be empty, one stands for them.
  if (operation.batch.empty()) operation.single = entry;
  operation.plan.add(
      operation.batch, entry,
      item.verb == TransferVerb::put ? item.remote.address : reinterpret_cast<std::uint64_t>(item.local));
  return {};
}

Result<void> Core::add_entries(peer::Operation& operation, std::span<const BatchEntry> items, const Signal* signal) {
  const Rank rank = items.front().remote.rank;
  operation.batch.reserve(items.size());
  if (signal != nullptr) {
    if (const auto filled = fill_signal(operation.signal, *signal, rank); !filled) return filled;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const BatchEntry& item = items[i];
    Result<void> added =
        item.remote.rank == rank
            ? add_entry(operation, item)
            : Result<void>(fail(ErrorCode::invalid_argument,
                                {.rank = item.remote.rank, .stage = Stage::remote_check, .limit = rank}));
    if (added && signal != nullptr && item.verb == TransferVerb::put) {
      added = check_apart(*signal, item.remote, item.size);
    }
    if (!added) return fail(at_entry(added.error(), i));
  }
  return {};
}

Result<Request> Core::post_batch(std::span<const BatchEntry> entries, const Signal* signal, const OpOptions& options) {
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  if (const auto valid = check_count(entries.size()); !valid) return fail(valid.error());
  return post_filled(entries.front().remote.rank, options,
                     [&](peer::Operation& operation) { return add_entries(operation, entries, signal); });
}

Result<void> Core::add_pieces(peer::Operation& operation, TransferVerb verb, std::span<const LocalPiece> pieces,
                              const RemoteAddress& remote) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].size > k_address_max - total) {
      return fail(at_entry(Error(ErrorCode::invalid_argument, {.rank = remote.rank,
                                                               .stage = Stage::local_check,
                                                               .address = remote.address,
                                                               .length = pieces[i].size,
                                                               .limit = k_address_max - total}),
                           i));
    }
    total += pieces[i].size;
  }
  peer::Entry entry;
  if (const auto filled = fill_entry(entry, verb, nullptr, remote, total); !filled) return filled;
  operation.single = entry;
  operation.single.size = 0;  // stands for all if none has bytes
  operation.batch.reserve(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    auto pin = pin_local(pieces[i].data, pieces[i].size, local_need(verb));
    if (!pin) return fail(at_entry(pin.error(), i));
    entry.local = static_cast<std::byte*>(pieces[i].data);
    entry.size = pieces[i].size;
    share_pin(operation, entry, std::move(*pin));
    operation.plan.add(operation.batch, entry,
                       verb == TransferVerb::put ? entry.offset : reinterpret_cast<std::uint64_t>(entry.local));
    entry.offset += entry.size;
  }
  return {};
}

Result<Request> Core::post_pieces(TransferVerb verb, std::span<const LocalPiece> pieces, const RemoteAddress& remote,
                                  const OpOptions& options) {
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  if (const auto valid = check_count(pieces.size()); !valid) return fail(valid.error());
  return post_filled(remote.rank, options,
                     [&](peer::Operation& operation) { return add_pieces(operation, verb, pieces, remote); });
}

Result<Request> Core::post_strided(TransferVerb verb, const Strided& strided, const OpOptions& options) {
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  const auto local = reinterpret_cast<std::uint64_t>(strided.local);
  const bool put = verb == TransferVerb::put;
  const bool empty = strided.blocks == 0 || strided.block_bytes == 0;
  if (strided.blocks > 1) {
    // Blocks that overlap where they are written have no defined end; where they are read they are a mistake.
    const auto check = [&](std::uint64_t address, std::uint64_t stride, Stage side, bool written) -> Result<void> {
      if (stride >= strided.block_bytes) return {};
      return fail(written ? ErrorCode::overlap : ErrorCode::invalid_argument, {.rank = strided.remote.rank,
                                                                               .stage = side,
                                                                               .address = address,
                                                                               .length = stride,
                                                                               .limit = strided.block_bytes});
    };
    if (const auto ok = check(local, strided.local_stride, Stage::local_check, !put); !ok) return fail(ok.error());
    if (const auto ok = check(strided.remote.address, strided.remote_stride, Stage::remote_check, put); !ok) {
      return fail(ok.error());
    }
  }
  const auto here = empty ? 0 : footprint(strided, local, strided.local_stride, Stage::local_check);
  if (!here) return fail(here.error());
  const auto there = empty ? 0 : footprint(strided, strided.remote.address, strided.remote_stride, Stage::remote_check);
  if (!there) return fail(there.error());
  return post_filled(strided.remote.rank, options, [&](peer::Operation& operation) -> Result<void> {
    peer::Entry& entry = operation.single;
    if (const auto filled = fill_entry(entry, verb, strided.local, strided.remote, *there); !filled) return filled;
    auto pin = pin_local(strided.local, *here, local_need(verb));
    if (!pin) return fail(pin.error());
    if (*pin) entry.device = &pin->device();
    operation.pin = std::move(*pin);
    entry.size = strided.blocks * strided.block_bytes;  // no more than the footprint
    const bool gapless = strided.local_stride == strided.block_bytes && strided.remote_stride == strided.block_bytes;
    if (empty || strided.blocks == 1 || gapless) return {};
    entry.block = strided.block_bytes;
    entry.local_stride = strided.local_stride;
    entry.remote_stride = strided.remote_stride;
    return {};
  });
}

}  // namespace hixl::core
