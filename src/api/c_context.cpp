// SPDX-License-Identifier: Apache-2.0
//
// hixl/context.h: a rank of this process, its memory, and what it tells about itself.
#include <hixl/context.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include <hixl/inspect_text.hpp>

#include "api/regions.hpp"
#include "api/world.hpp"

using namespace hixl;
using namespace hixl::api;

hixl_status_t hixl_init_sized(hixl_ctx_t* ctx, const hixl_init_info_t* info, size_t info_size) {
  return guarded([&]() -> Result<void> {
    if (ctx == nullptr) return missing_argument();
    *ctx = nullptr;
    const auto options = options_of(info, info_size);
    if (!options) return fail(options.error());
    const auto view = open_view(*options);
    if (!view) return fail(view.error());
    *ctx = *view;
    return {};
  });
}

hixl_status_t hixl_finalize_timeout(hixl_ctx_t ctx, int timeout_ms) {
  return guarded([&] { return close_view(ctx, timeout_ms); });
}

hixl_status_t hixl_finalize(hixl_ctx_t ctx) {
  constexpr int k_drain_ms = 5000;  // as Runtime::stop()
  return hixl_finalize_timeout(ctx, k_drain_ms);
}

int hixl_rank(hixl_ctx_t ctx) {
  return guarded_or(-1, [&]() -> Result<int> {
    const Inside<View> view(ctx);
    if (!view) return view.error();
    return static_cast<int>(view->runtime().rank());
  });
}

int hixl_size(hixl_ctx_t ctx) {
  return guarded_or(-1, [&]() -> Result<int> {
    const Inside<View> view(ctx);
    if (!view) return view.error();
    return static_cast<int>(view->runtime().world_size());
  });
}

// ---- memory ----

hixl_status_t hixl_alloc(hixl_ctx_t ctx, size_t size, void** data) {
  return guarded([&]() -> Result<void> {
    if (data == nullptr) return missing_argument(Stage::memory);
    *data = nullptr;
    const Inside<View> view(ctx);
    if (!view) return view.error();
    const auto region = view->runtime().allocate(size);
    if (!region) return fail(region.error());
    *data = region->data;
    return {};
  });
}

hixl_status_t hixl_register(hixl_ctx_t ctx, void* data, size_t size) {
  return guarded([&]() -> Result<void> {
    const Inside<View> view(ctx);
    if (!view) return view.error();
    const auto region = view->runtime().register_memory(data, size);
    if (!region) return fail(region.error());
    return {};
  });
}

hixl_status_t hixl_deregister(hixl_ctx_t ctx, void* data) {
  return guarded([&]() -> Result<void> {
    const Inside<View> view(ctx);
    if (!view) return view.error();
    if (const auto allowed = may_wait(view.note()); !allowed) return allowed;
    const auto region = region_at(view->runtime(), data);
    if (!region) return fail(region.error());
    return end_region(*view->engine, *region);
  });
}

hixl_status_t hixl_free(hixl_ctx_t ctx, void* data) { return hixl_deregister(ctx, data); }

hixl_status_t hixl_check_access(hixl_ctx_t ctx, uint64_t remote_addr, size_t size, int rank) {
  return guarded([&]() -> Result<void> {
    const Inside<View> view(ctx);
    if (!view) return view.error();
    const RemoteAddress remote{.rank = rank_of(rank), .address = remote_addr};
    return view->runtime().check_access(remote, size, Rights::write);
  });
}

hixl_status_t hixl_check_local(hixl_ctx_t ctx, uint64_t local_addr, size_t size) {
  return guarded([&]() -> Result<void> {
    const Inside<View> view(ctx);
    if (!view) return view.error();
    return view->runtime().check_access(pointer_of(local_addr), size, Rights::read);
  });
}

// ---- seeing inside ----

static Result<std::string> report_of(Runtime& runtime, hixl_report_t what, bool json) {
  const auto say = [json](const auto& value) { return json ? to_json(value) : to_text(value); };
  switch (what) {
    case HIXL_REPORT_REGIONS: {
      const auto regions = runtime.dump_regions();
      if (!regions) return fail(regions.error());
      return say(*regions);
    }
    case HIXL_REPORT_LINKS: {
      const std::vector<LinkInfo> links = runtime.links();
      return say(std::span<const LinkInfo>(links));
    }
    case HIXL_REPORT_OUTSTANDING: {
      const auto operations = runtime.outstanding();
      if (!operations) return fail(operations.error());
      return say(std::span<const OperationInfo>(*operations));
    }
    case HIXL_REPORT_COUNTERS:
      return say(runtime.counters());
    default:
      return fail(ErrorCode::invalid_argument, {.stage = Stage::options, .limit = HIXL_REPORT_COUNTERS});
  }
}

hixl_status_t hixl_report(hixl_ctx_t ctx, hixl_report_t what, int json, char* text, size_t size, size_t* needed) {
  return guarded([&]() -> Result<void> {
    if (needed != nullptr) *needed = 0;
    if (text == nullptr && size > 0) return missing_argument();
    if (size > 0) *text = '\0';
    const Inside<View> view(ctx);
    if (!view) return view.error();
    const auto report = report_of(view->runtime(), what, json != 0);
    if (!report) return fail(report.error());
    if (needed != nullptr) *needed = report->size() + 1;
    if (size == 0) return {};
    const std::size_t shown = std::min(size - 1, report->size());
    std::copy_n(report->data(), shown, text);
    text[shown] = '\0';
    return {};
  });
}

hixl_status_t hixl_dump_regions(hixl_ctx_t ctx) {
  return guarded([&]() -> Result<void> {
    const Inside<View> view(ctx);
    if (!view) return view.error();
    const auto report = report_of(view->runtime(), HIXL_REPORT_REGIONS, false);
    if (!report) return fail(report.error());
    static_cast<void>(std::fputs(report->c_str(), stdout));
    return {};
  });
}
