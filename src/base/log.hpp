// SPDX-License-Identifier: Apache-2.0
//
// The library's log: one spdlog logger named "hixl", level from HIXL_LOG (trace … error, off; default warn).
// Text is formatted only when the level is on. One file includes spdlog.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace hixl::log {

enum class Level { trace, debug, info, warn, error };

[[nodiscard]] bool enabled(Level level) noexcept;
void write(Level level, std::string_view text) noexcept;

template <class... Args>
void emit(Level level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (!enabled(level)) return;
  try {
    write(level, fmt::format(format, std::forward<Args>(args)...));
  } catch (...) {
    write(level, "(a log line could not be formatted)");
  }
}
template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) noexcept {
  emit(Level::debug, format, std::forward<Args>(args)...);
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) noexcept {
  emit(Level::info, format, std::forward<Args>(args)...);
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) noexcept {
  emit(Level::warn, format, std::forward<Args>(args)...);
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) noexcept {
  emit(Level::error, format, std::forward<Args>(args)...);
}

}  // namespace hixl::log
