// SPDX-License-Identifier: Apache-2.0
//
// The shape of Ascend's own HIXL class: engines that are named "ip:port", memory that is registered with them,
// transfers of lists. Programs written against that class compile against this header and run on this library.
//
// What that class restricts is lifted: memory may be registered before or after a connect, and released at any time;
// every function may be called from any thread, after fork and Finalize() too, with a defined answer; any mapped memory
// may be registered, of both types. What this library has no hardware for is accepted and has no effect: see
// docs/c_api.md.
#ifndef HIXL_ASCEND_COMPAT_H
#define HIXL_ASCEND_COMPAT_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hixl {

/// A text. Null counts as empty.
class AscendString {
 public:
  AscendString() = default;
  AscendString(const char* text) : text_(text == nullptr ? "" : text) {}
  AscendString(std::string text) : text_(std::move(text)) {}
  const char* GetString() const { return text_.c_str(); }
  std::size_t GetLength() const { return text_.size(); }
  friend bool operator<(const AscendString& a, const AscendString& b) { return a.text_ < b.text_; }
  friend bool operator==(const AscendString& a, const AscendString& b) { return a.text_ == b.text_; }
  friend bool operator!=(const AscendString& a, const AscendString& b) { return a.text_ != b.text_; }

 private:
  std::string text_;
};

// Before the numbers of the same names, which it would shadow.
enum class TransferStatus { WAITING, COMPLETED, TIMEOUT, FAILED };

/// The numbers are Ascend's. hixl_last_error() (hixl/status.h) tells the whole story of this thread's last failure.
using Status = std::uint32_t;
constexpr Status SUCCESS = 0U;
constexpr Status PARAM_INVALID = 103900U;  ///< the call is wrong: unregistered, out of range, unknown option, …
constexpr Status TIMEOUT = 103901U;        ///< the deadline passed, or nobody is there
constexpr Status NOT_CONNECTED = 103902U;  ///< never connected, or the connection is lost: connect again
constexpr Status ALREADY_CONNECTED = 103903U;
constexpr Status NOTIFY_FAILED = 103904U;  ///< a note could not be delivered, for a reason that has no number here
constexpr Status UNSUPPORTED = 103905U;
constexpr Status RESOURCE_EXHAUSTED = 203900U;  ///< no room now: requests, notes, connections, memory, descriptors
constexpr Status FAILED = 503900U;              ///< everything else

// These enumerations have a type, so that a number which is none of theirs is refused rather than undefined.
enum MemType : int { MEM_DEVICE, MEM_HOST };
struct MemDesc {
  std::uintptr_t addr = 0;
  std::size_t len = 0;
  std::uint8_t reserved[128] = {};
};
using MemHandle = void*;

enum TransferOp : int { READ, WRITE };
struct TransferOpDesc {
  std::uintptr_t local_addr = 0;
  std::uintptr_t remote_addr = 0;
  std::size_t len = 0;
};
struct TransferArgs {
  void* user_data = nullptr;
  std::uint8_t reserved[120] = {};
};
using TransferReq = void*;
struct GetTransferStatusArgs {
  std::uint32_t max_query_count = 0;  ///< 0: no limit
  bool skip_waiting = false;
};
struct TransferResult {
  TransferReq req = nullptr;
  void* user_data = nullptr;
  TransferStatus status = TransferStatus::WAITING;
};

enum class AsyncConnectStatus {
  NOT_CONNECT,
  CONNECT_PENDING,
  CONNECTING,
  CONNECTED,
  CONNECT_FAILED,
  DISCONNECT_PENDING,
  DISCONNECTING
};

/// Texts of at most 1 024 bytes each.
struct NotifyDesc {
  AscendString name;
  AscendString notify_msg;
};

enum FeatureType : int { AUTO_CONNECT = 0, CLIENT_SERVER_COMM = 1 };

/// Owner: the program. Threads: any, but for construction and destruction. Close: Finalize() or destruction.
/// A call with a time takes no longer, whatever it does in it; a slow remote holds up no other. In a forked child every
/// call of a parent's object is FAILED at once (hixl_last_status(): HIXL_ERR_FORKED), its destruction releases nothing,
/// and new objects may be made.
class Hixl {
 public:
  Hixl();
  ~Hixl();
  Hixl(const Hixl&) = delete;
  Hixl& operator=(const Hixl&) = delete;

  /// `local_engine`: "ip:port" or "[v6]:port" is found by others under this name; "ip" alone only connects. Beyond
  /// loopback the option Insecure=1 (or HIXL_INSECURE=1) is needed. Unknown options: PARAM_INVALID. Again: FAILED.
  Status Initialize(const AscendString& local_engine, const std::map<AscendString, AscendString>& options);
  /// Ends all connections and registrations. What is open ends.
  void Finalize();

  /// The same range again gives the same handle. Peers may use it at once, connected before or after.
  Status RegisterMem(const MemDesc& mem, MemType type, MemHandle& mem_handle);
  /// After success nobody touches the range. Null, unknown, or once too often: PARAM_INVALID.
  Status DeregisterMem(MemHandle mem_handle);

  Status Connect(const AscendString& remote_engine, std::int32_t timeout_in_millis = 1000);
  Status Disconnect(const AscendString& remote_engine, std::int32_t timeout_in_millis = 1000);
  /// The same on a thread of the engine, in the order of calls; 128 at most wait (RESOURCE_EXHAUSTED).
  Status ConnectAsync(const AscendString& remote_engine, std::int32_t timeout_in_millis = 1000);
  Status DisconnectAsync(const AscendString& remote_engine, std::int32_t timeout_in_millis = 1000);
  Status GetAsyncConnectStatus(const AscendString& remote_engine, AsyncConnectStatus& status);
  Status GetAsyncConnectStatus(std::map<AscendString, AsyncConnectStatus>& statuses);

  /// All of the list as one operation: every entry is checked before a byte moves. With the option AutoConnect=1 a
  /// remote that is not connected is connected first.
  Status TransferSync(const AscendString& remote_engine, TransferOp operation,
                      const std::vector<TransferOpDesc>& op_descs, std::int32_t timeout_in_millis = 1000);
  Status TransferAsync(const AscendString& remote_engine, TransferOp operation,
                       const std::vector<TransferOpDesc>& op_descs, const TransferArgs& optional_args,
                       TransferReq& req);
  /// May be asked again after the end; the last 4 096 answers are kept. Ends by itself after 30 s: TIMEOUT.
  Status GetTransferStatus(const TransferReq& req, TransferStatus& status);
  /// Of all requests; each end is told once here.
  Status GetTransferStatus(const GetTransferStatusArgs& args, std::vector<TransferResult>& results);

  /// Delivered when it returns, after everything that this thread has finished with the same remote.
  Status SendNotify(const AscendString& remote_engine, const NotifyDesc& notify, std::int32_t timeout_in_millis = 1000);
  /// Takes all that came, of each sender in its order, and at most 64 of each: as many as can be under way. Never
  /// waits.
  Status GetNotifies(std::vector<NotifyDesc>& notifies);

  static Status GetCapability(FeatureType feature, std::int32_t& value);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace hixl

#endif
