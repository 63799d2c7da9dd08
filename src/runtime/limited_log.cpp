// SPDX-License-Identifier: Apache-2.0
#include "runtime/limited_log.hpp"

#include "runtime/loop.hpp"

namespace hixl::runtime {

LimitedLog::~LimitedLog() { flush(k_never); }

bool LimitedLog::admit(log::Level level, const log::Topic& topic) {
  if (!log::enabled(level)) return false;
  const Instant now = loop_.now();
  flush(now);
  if (quota_.admit(level, topic, now)) return true;
  if (!active()) loop_.start(*this, quota_.due());
  return false;
}

void LimitedLog::on_timer() {
  flush(loop_.now());
  if (const Instant due = quota_.due(); due != k_never) loop_.start(*this, due);
}

void LimitedLog::flush(Instant now) {
  quota_.flush(now, [](log::Level level, const log::Topic& topic, std::uint64_t count) {
    if (topic.whom == log::k_nobody) {
      log::emit(level, "{}: {} more suppressed", topic.kind, count);
    } else {
      log::emit(level, "{} {}: {} more suppressed", topic.kind, topic.whom, count);
    }
  });
}

}  // namespace hixl::runtime
