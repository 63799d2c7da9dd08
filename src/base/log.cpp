// SPDX-License-Identifier: Apache-2.0
//
// The logger. It is built by hand and never registered, so that a program which uses spdlog itself keeps its own
// registry, default logger, levels and patterns untouched.
#include "base/log.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>

namespace hixl::log {
namespace {

constexpr spdlog::level::level_enum spdlog_level(Level level) noexcept {
  switch (level) {
    case Level::trace:
      return spdlog::level::trace;
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::optional<spdlog::level::level_enum> parse_level(std::string_view text) noexcept {
  struct Entry {
    std::string_view name;
    spdlog::level::level_enum level;
  };
  static constexpr std::array<Entry, 6> entries{{{"trace", spdlog::level::trace},
                                                 {"debug", spdlog::level::debug},
                                                 {"info", spdlog::level::info},
                                                 {"warn", spdlog::level::warn},
                                                 {"error", spdlog::level::err},
                                                 {"off", spdlog::level::off}}};
  for (const Entry& entry : entries) {
    if (entry.name == text) return entry.level;
  }
  return std::nullopt;
}

/// Standard error without a lock of its own, since a forked child may inherit a lock held by a thread that it does not
/// have (spdlog's own sink shares one with all others of the process). A line is formatted by a copy of the formatter
/// and written in one piece; the C library locks its stream, and opens that lock in a child.
class StandardError final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->clone()->format(message, text);
    (void)std::fwrite(text.data(), 1, text.size(), stderr);
  }
  void flush() override { (void)std::fflush(stderr); }
  // Both are called before the first line.
  void set_pattern(const std::string& pattern) override {
    formatter_ = std::make_unique<spdlog::pattern_formatter>(pattern);
  }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override { formatter_ = std::move(formatter); }

 private:
  std::unique_ptr<spdlog::formatter> formatter_ = std::make_unique<spdlog::pattern_formatter>();
};

/// Null when there is no memory for it: the library then runs without a log.
spdlog::logger* make_logger() noexcept {
  try {
    auto logger = std::make_unique<spdlog::logger>("hixl", std::make_shared<StandardError>());
    // Process and thread, because the ranks of a test or a job share one terminal.
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%f %n %P/%t %l: %v");
    logger->set_level(spdlog::level::warn);
    logger->flush_on(spdlog::level::trace);
    if (const char* text = std::getenv("HIXL_LOG"); text != nullptr && *text != '\0') {
      if (const auto level = parse_level(text)) {
        logger->set_level(*level);
      } else {
        logger->warn("HIXL_LOG={} is no level; using warn (trace, debug, info, warn, error, off)", text);
      }
    }
    return logger.release();
  } catch (...) {
    return nullptr;
  }
}

/// Made at the first line and never destroyed: threads may log until the process ends.
spdlog::logger* logger() noexcept {
  static spdlog::logger* const instance = make_logger();
  return instance;
}

}  // namespace

bool enabled(Level level) noexcept {
  const spdlog::logger* log = logger();
  return log != nullptr && log->should_log(spdlog_level(level));
}

void write(Level level, std::string_view text) noexcept {
  spdlog::logger* log = logger();
  if (log == nullptr) return;
  try {
    log->log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
  } catch (...) {
    // spdlog hands what it cannot write to its own error handler; what comes through here has nowhere to go.
  }
}

}  // namespace hixl::log
