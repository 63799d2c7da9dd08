// SPDX-License-Identifier: Apache-2.0
//
// Text and JSON of what inspect.hpp holds. Text: a heading and one aligned line a row, for people. JSON: an array of
// objects for lists, else one object; addresses and numbers that name a life are strings of hexadecimal digits, since
// many readers of JSON keep only 53 bits of a number, times are in nanoseconds. Both are made of UTF-8 and end without
// a newline (JSON) or with one (text). They look at nothing but their argument, on any thread.
#pragma once

#include <span>
#include <string>

#include <hixl/inspect.hpp>
#include <hixl/result.hpp>

namespace hixl {

[[nodiscard]] std::string to_text(const Counters& counters);
[[nodiscard]] std::string to_json(const Counters& counters);
[[nodiscard]] std::string to_text(std::span<const LinkInfo> links);
[[nodiscard]] std::string to_json(std::span<const LinkInfo> links);
[[nodiscard]] std::string to_text(const RegionDump& regions);
[[nodiscard]] std::string to_json(const RegionDump& regions);
[[nodiscard]] std::string to_text(std::span<const OperationInfo> operations);
[[nodiscard]] std::string to_json(std::span<const OperationInfo> operations);
/// Of check_access() and other answers without a value.
[[nodiscard]] std::string to_text(const Result<void>& result);
[[nodiscard]] std::string to_json(const Result<void>& result);

}  // namespace hixl
