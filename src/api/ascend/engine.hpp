// SPDX-License-Identifier: Apache-2.0
//
// What is behind hixl::Hixl. An engine that can be found hosts a small world of its own: it is rank 0, and its store is
// at the address that is its name. Who connects joins that world as another rank, with a runtime for this one remote,
// so that a remote's trouble stays with it, and nobody has to agree on numbers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <hixl/ascend_compat.h>
#include <hixl/channel.hpp>
#include <hixl/offers.hpp>

#include "api/deadline.hpp"
#include "api/world.hpp"

namespace hixl::api {

/// Ranks of an engine's world: itself, and who connects. Ascend allows 512 connections.
inline constexpr std::uint32_t k_engine_world = 513;
/// All rings for notes, one for each rank that may connect.
inline constexpr std::uint32_t k_notes_tag = 0x4e00'0000;
inline constexpr RingShape k_notes_shape{.slots = 64, .bytes = 8192};

struct AscendOptions {
  bool auto_connect = false;
  bool insecure = false;
};
/// PARAM_INVALID names nothing: the log does. Options of Ascend's that mean nothing here are accepted.
[[nodiscard]] Result<AscendOptions> ascend_options(const std::map<AscendString, AscendString>& options);

/// "10.0.0.1:1234", "[::1]:1234", "10.0.0.1".
struct EngineName {
  std::string host;  ///< without brackets
  std::uint16_t port = 0;
  [[nodiscard]] std::string store_url() const;
  [[nodiscard]] std::string bind() const;  ///< a free port of that host
};
[[nodiscard]] Result<EngineName> engine_name(const AscendString& text);

[[nodiscard]] Status status_of(const Error& error) noexcept;
/// Remembers it for hixl_last_error().
[[nodiscard]] Status failed(const Error& error) noexcept;
[[nodiscard]] Status failed(Status status, const Error& error) noexcept;

/// A remote engine that this one is connected with.
struct RemoteEngine {
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<MessageSender> notes;  // after the runtime, before which it goes
  std::atomic<bool> outdated{false};     ///< it has released memory that this side knew; relaxed: only a hint
};

/// A registration, with every runtime of the engine.
struct RegisteredRange {
  MemDesc mem;
  std::uint64_t references = 1;
};

/// A transfer that somebody may ask for.
struct OpenTransfer {
  Request request;
  void* user_data = nullptr;
  std::weak_ptr<RemoteEngine> remote{};  ///< which goes with its disconnect
  bool told = false;                     ///< by the list of all
  bool ended = false;                    ///< somebody has been told so
};

}  // namespace hixl::api

namespace hixl {

class Hixl::State {
 public:
  State();
  ~State();
  /// This is a child of the process that made it.
  [[nodiscard]] bool forked() const { return api::World::get().handles.epoch() != epoch_; }
  Status initialize(const AscendString& local_engine, const std::map<AscendString, AscendString>& options);
  void finalize();

  Status register_mem(const MemDesc& mem, MemHandle& handle);
  Status deregister_mem(MemHandle handle);

  Status connect(const std::string& remote, std::int32_t timeout_ms);
  Status disconnect(const std::string& remote, std::int32_t timeout_ms);
  /// NOT_CONNECTED, or connects first where that is asked for.
  [[nodiscard]] Result<std::shared_ptr<api::RemoteEngine>> remote(const std::string& name,
                                                                  const api::Deadline& deadline, Status& status);

  Status transfer(const std::string& remote, TransferOp operation, const std::vector<TransferOpDesc>& descs,
                  std::int32_t timeout_ms);
  Status transfer_async(const std::string& remote, TransferOp operation, const std::vector<TransferOpDesc>& descs,
                        void* user_data, TransferReq& req);
  Status transfer_status(TransferReq req, TransferStatus& status);
  Status transfer_statuses(const GetTransferStatusArgs& args, std::vector<TransferResult>& results);

  Status send_notify(const std::string& remote, const NotifyDesc& notify, std::int32_t timeout_ms);
  Status get_notifies(std::vector<NotifyDesc>& notifies);

  // ---- later (ascend/later.cpp) ----
  Status later(const std::string& remote, bool connecting, std::int32_t timeout_ms);
  Status later_status(const std::string& remote, AsyncConnectStatus& status);
  Status later_statuses(std::map<AscendString, AsyncConnectStatus>& statuses);

 private:
  [[nodiscard]] Status ready() const;
  [[nodiscard]] Result<void> open_door(const api::EngineName& name);
  class Connecting;
  [[nodiscard]] Status connect(const std::string& remote, const api::Deadline& deadline);
  [[nodiscard]] Status begin_connecting(const std::string& remote, const api::Deadline& deadline, std::uint64_t& life);
  [[nodiscard]] Result<std::unique_ptr<Runtime>> join(const api::EngineName& name, const api::Deadline& deadline);
  [[nodiscard]] Result<std::shared_ptr<api::RemoteEngine>> make_remote(const std::string& remote,
                                                                       const api::Deadline& deadline);
  [[nodiscard]] Result<Region> register_with(Runtime& runtime, const MemDesc& mem) const;
  void set_standing(const std::string& remote, AsyncConnectStatus status);
  void end_later();

  const std::uint32_t epoch_ = api::World::get().handles.epoch();
  mutable std::mutex mutex_;  // guards what is below; not held while a remote is waited for
  bool initialized_ = false;
  std::uint64_t life_ = 0;  // how often it was initialized
  api::AscendOptions options_{};
  std::string name_;
  std::shared_ptr<Runtime> door_;  // rank 0 of the own world; null: cannot be found
  Region notes_region_{};
  std::vector<std::unique_ptr<MessageReceiver>> notes_;  // by rank - 1
  std::set<std::string> connecting_;                     // remotes to which a thread makes the connection
  std::condition_variable connected_;                    // or not: one of them is through
  std::map<std::string, std::shared_ptr<api::RemoteEngine>> remotes_;
  std::atomic<std::uint64_t> joins_{0};  // relaxed: only a guess
  std::uint64_t last_handle_ = 0;
  std::map<std::uint64_t, api::RegisteredRange> memory_;
  std::uint64_t last_transfer_ = 0;
  std::map<std::uint64_t, api::OpenTransfer> transfers_;
  std::deque<std::uint64_t> ended_transfers_;  // oldest first

  class Later;
  std::unique_ptr<Later> later_;                        // null: nobody asked for it yet
  std::map<std::string, AsyncConnectStatus> standing_;  // of remotes
};

}  // namespace hixl
