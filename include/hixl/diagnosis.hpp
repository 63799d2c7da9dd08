// SPDX-License-Identifier: Apache-2.0
//
// The answering side of hixl_diag: a small world of its own, beside whatever world the process is in. Rank 0 is here
// and offers one region; whoever asks joins as another rank, and puts and gets by the library's own data path.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <hixl/options.hpp>
#include <hixl/runtime.hpp>
#include <hixl/types.hpp>

namespace hixl {

/// Where hixl_diag calls unless told otherwise: the port of the field's articles.
inline constexpr std::uint16_t k_diagnosis_port = 9'999;
/// Who may call at the same time: ranks 1 … 64 of that world. Each has memory of its own here, so that no caller ever
/// sees another one's bytes.
inline constexpr std::uint32_t k_diagnosis_callers = 64;
/// Largest put of a caller.
inline constexpr std::uint32_t k_diagnosis_bytes_max = 64U << 10U;
/// Names the region and, by its last digit, the version of what is agreed here.
inline constexpr std::uint32_t k_diagnosis_tag = 0xd1a6'0001U;

struct DiagnosisOptions {
  /// "host:port", "[v6]:port"; port 0 takes a free one. Beyond loopback needs `insecure`.
  std::string address = "127.0.0.1:9999";
  /// RuntimeOptions::bind and ::advertise of the answering rank, whose port carries the data. Empty: the host of
  /// `address` and a free port.
  std::string bind{};
  std::string advertise{};
  std::string job{};  ///< callers name the same, or are refused with WRONG_JOB; no secret, and no protection
  bool insecure = false;
  /// Links, RDMA, times and polling of the answering rank. What says who and where, and the sizes, are its own.
  RuntimeOptions like{};
};

/// Owner: the program. Threads: any; a store and a rank with a thread each, and one that answers questions, asleep
/// while nobody calls. Close: destruction; callers then see PEER_GONE.
class Diagnosis {
 public:
  /// Errors as of Store::create() and Runtime::create(): ADDRESS_IN_USE, ADDRESS_NOT_LOCAL, SECURITY_REQUIRED,
  /// INVALID_ARGUMENT, TRANSPORT_UNAVAILABLE, NO_MEMORY, …
  /// `about`: the runtime that questions are about, which outlives this object; null: the answering rank itself.
  [[nodiscard]] static Result<std::unique_ptr<Diagnosis>> open(const DiagnosisOptions& options,
                                                               Runtime* about = nullptr);
  ~Diagnosis();
  Diagnosis(const Diagnosis&) = delete;
  Diagnosis& operator=(const Diagnosis&) = delete;
  /// "127.0.0.1:9999", with the real port.
  [[nodiscard]] std::string address() const;

  // ---- for callers ----
  [[nodiscard]] static constexpr std::uint32_t world_size() noexcept { return 1 + k_diagnosis_callers; }
  /// RuntimeOptions::job of that world: never the name of a job that moves data.
  [[nodiscard]] static std::string world_of(const std::string& job);
  /// Where a caller's own bytes are in the region.
  [[nodiscard]] static constexpr std::uint64_t offset_of(Rank caller) noexcept {
    return std::uint64_t{caller - 1} * k_diagnosis_bytes_max;
  }

  // ---- questions. A caller puts its question word, with a signal that adds 1 to the bell; the answer is a region that
  // is then offered under the tag that the question names. ----
  enum class Subject : std::uint32_t { links_text = 1, links_json = 2, regions_text = 3, regions_json = 4 };
  static constexpr std::uint64_t k_bell_offset = std::uint64_t{k_diagnosis_callers} * k_diagnosis_bytes_max;
  static constexpr std::uint64_t k_line_bytes = 64;  ///< words of different ranks share no cache line
  [[nodiscard]] static constexpr std::uint64_t question_offset(Rank caller) noexcept {
    return k_bell_offset + k_line_bytes * caller;
  }
  static constexpr std::uint64_t k_region_bytes = k_bell_offset + k_line_bytes * (1 + k_diagnosis_callers);
  /// Tags of answers are below the highest bit, which k_diagnosis_tag has.
  static constexpr std::uint32_t k_answer_tags = 0x7fff'ffffU;
  /// `tag` is drawn anew for each question. 0 asks nothing, and lets the last answer go.
  [[nodiscard]] static constexpr std::uint64_t question(Subject subject, std::uint32_t tag) noexcept {
    return std::uint64_t{tag & k_answer_tags} << 32U | static_cast<std::uint32_t>(subject);
  }
  /// What an answer begins with; `bytes` of UTF-8 follow.
  struct AnswerHead {
    std::uint64_t code = 0;  ///< an ErrorCode; not ok: there is no answer
    std::uint64_t bytes = 0;
  };

 private:
  class State;
  explicit Diagnosis(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hixl
