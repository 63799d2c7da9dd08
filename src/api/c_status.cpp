// SPDX-License-Identifier: Apache-2.0
//
// hixl/status.h: texts of the error list, and this thread's last failure.
#include <hixl/status.h>

#include <algorithm>
#include <array>

#include "api/world.hpp"

using namespace hixl;
using namespace hixl::api;

// The C header spells the list of hixl/error.hpp out; neither may have what the other has not.
#define HIXL_SAME(name, number, kind, what, remedy) static_cast<int>(ErrorCode::name),
static constexpr std::array k_codes{HIXL_ERROR_CODES(HIXL_SAME)};
#undef HIXL_SAME

const char* hixl_strerror(hixl_status_t status) {
  switch (status) {
#define HIXL_TEXT(name, number, kind, what, remedy) \
  case number:                                      \
    return what "; " remedy;
    HIXL_ERROR_CODES(HIXL_TEXT)
#undef HIXL_TEXT
    default:
      return "not a status of this library; compare the versions of header and library";
  }
}

const char* hixl_status_name(hixl_status_t status) {
  const bool known = std::ranges::find(k_codes, status) != k_codes.end();
  return known ? name(static_cast<ErrorCode>(status)).data() : "UNKNOWN";
}

int hixl_status_kind(hixl_status_t status) {
  const bool known = std::ranges::find(k_codes, status) != k_codes.end();
  return static_cast<int>(known ? kind(static_cast<ErrorCode>(status)) : ErrorKind::give_up);
}

const char* hixl_last_error(void) {
  try {
    ThreadNote& note = World::get().note();
    note.text = note.failure.code == ErrorCode::ok ? std::string() : note.failure.message();
    return note.text.c_str();
  } catch (...) {
    return "";
  }
}

hixl_status_t hixl_last_status(void) {
  try {
    return static_cast<hixl_status_t>(World::get().note().failure.code);
  } catch (...) {
    return HIXL_OK;
  }
}

int hixl_missing_ranks(int* ranks, int max) {
  try {
    const ErrorDetail& detail = World::get().note().failure.detail;
    const auto known = std::min<std::size_t>(detail.missing_count, detail.missing.size());
    for (std::size_t i = 0; ranks != nullptr && max > 0 && i < std::min(known, static_cast<std::size_t>(max)); ++i) {
      ranks[i] = static_cast<int>(detail.missing[i]);
    }
    return static_cast<int>(detail.missing_count);
  } catch (...) {
    return 0;
  }
}
