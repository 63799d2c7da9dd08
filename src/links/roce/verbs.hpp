// SPDX-License-Identifier: Apache-2.0
//
// The part of verbs that a RoCE link asks of the world, as interfaces: the kernel's (ibv_verbs.cpp) and one of the
// simulated world (links/sim). Work requests, completions and attributes are those of rdma-core's public header, so
// that nothing is translated on the data path; what has a life of its own is a class here, and ends by destruction.
//
// Loop-bound, but for what may take long and may come from the threads of a Worker: Device::register_memory(), the
// destruction of a MemoryRegion, and QueuePair::modify() to RTR, for which the kernel asks the network who the peer is.
// Everything made of a device ends before it.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <hixl/result.hpp>

#include "runtime/event_port.hpp"
#include "runtime/worker.hpp"

namespace hixl::links::roce {

/// Memory that the card may reach. Destruction ends that: when it returns, the card touches the memory no more, and a
/// request of the peer under this key is answered with an access error.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  [[nodiscard]] virtual std::uint32_t local_key() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t remote_key() const noexcept = 0;
};

/// Where completions of one or several queue pairs appear. Destroyed after these.
class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  /// Takes completions; how many. DEVICE-fatal states (the queue overran, the device is gone) are an error, for good.
  [[nodiscard]] virtual Result<std::size_t> poll(std::span<ibv_wc> out) = 0;
  /// The next completion that comes makes the watch of watch_completions() ready. One that came before may not: after
  /// arming, poll once more before sleeping.
  [[nodiscard]] virtual Result<void> arm() = 0;
  /// Takes back what made the watch ready. Called from on_ready().
  virtual void acknowledge() = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<runtime::Watch>> watch_completions(runtime::EventPort& port,
                                                                                  runtime::WatchEvents& events) = 0;
};

/// A reliable-connected queue pair. Destruction: nothing of it reaches memory any more, on either side, and none of
/// its completions comes out of its queue afterwards.
class QueuePair {
 public:
  virtual ~QueuePair() = default;
  [[nodiscard]] virtual std::uint32_t number() const noexcept = 0;
  /// ibv_modify_qp: the error has os_error.
  [[nodiscard]] virtual Result<void> modify(ibv_qp_attr attributes, int mask) = 0;
  /// Posts a chain with one doorbell. On failure `*refused` is the first that was not taken. LIMIT_REACHED: no room
  /// in the queue.
  [[nodiscard]] virtual Result<void> post_send(ibv_send_wr& chain, ibv_send_wr** refused) = 0;
  [[nodiscard]] virtual Result<void> post_receive(ibv_recv_wr& chain) = 0;
  /// What the card says the state is; an error when the device is gone.
  [[nodiscard]] virtual Result<ibv_qp_state> state() = 0;
};

/// An address of a port: which of its table, and of which sort.
struct Gid {
  ibv_gid value{};
  std::uint32_t index = 0;
  bool v2 = true;                 ///< RoCE v2 (UDP); false: RoCE v1 or InfiniBand
  std::uint32_t prefix_bits = 0;  ///< of 128, its network's mask; 0: unknown
};

/// Something that happened to a device, not to one request.
struct DeviceEvent {
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
  std::uint32_t port = 0;        ///< of port and GID events
  std::uint32_t queue_pair = 0;  ///< number, of queue pair events
};

/// One opened device with one protection domain.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
  [[nodiscard]] virtual const ibv_device_attr& limits() const noexcept = 0;
  /// NUMA node of the card; -1: none, or unknown.
  [[nodiscard]] virtual int numa_node() const noexcept = 0;
  /// Fails when the device is gone (os_error).
  [[nodiscard]] virtual Result<ibv_port_attr> port(std::uint32_t number) = 0;
  [[nodiscard]] virtual Result<std::vector<Gid>> gids(std::uint32_t port) = 0;

  /// `access`: ibv_access_flags, as few as needed. Thread-safe; takes as long as pinning takes. MEMLOCK_LIMIT (limit =
  /// that, length = asked), LIMIT_REACHED (larger than the device allows: limit), NO_MEMORY, MEMORY_UNMAPPED, OS_ERROR.
  [[nodiscard]] virtual Result<std::unique_ptr<MemoryRegion>> register_memory(void* data, std::size_t size,
                                                                              int access) = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<CompletionQueue>> create_completion_queue(std::uint32_t depth) = 0;
  struct QueuePairOptions {
    std::uint32_t send_depth = 0;
    std::uint32_t receive_depth = 0;
    std::uint32_t inline_bytes = 0;
    std::uint32_t send_segments = 1;  ///< of one work request
  };
  /// Room and sizes as granted come back in `options`, which may be more than was asked for.
  [[nodiscard]] virtual Result<std::unique_ptr<QueuePair>> create_queue_pair(CompletionQueue& completions,
                                                                             QueuePairOptions& options) = 0;
  /// Whether the device was taken away, for drivers that say nothing of it while it is open and have the administrator
  /// wait until it is closed. Cheap; asked once in a while.
  [[nodiscard]] virtual bool gone() { return false; }
  /// The next event; nothing: none waits. Called from on_ready() of the watch until it gives nothing.
  [[nodiscard]] virtual std::optional<DeviceEvent> next_event() = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<runtime::Watch>> watch_events(runtime::EventPort& port,
                                                                             runtime::WatchEvents& events) = 0;
};

using runtime::Job;
using runtime::Worker;

/// The cards of this host. Owner: whoever makes the link factories.
class Verbs {
 public:
  virtual ~Verbs() = default;
  /// Names of the devices that are there now. TRANSPORT_UNAVAILABLE with os_error: the system has no RDMA at all.
  [[nodiscard]] virtual Result<std::vector<std::string>> device_names() = 0;
  /// TRANSPORT_UNAVAILABLE: gone (ENODEV), no permission on the device file (EACCES), or what the system says.
  [[nodiscard]] virtual Result<std::unique_ptr<Device>> open(const std::string& name) = 0;
  /// For what may take long. `threads`: how many jobs may be worked on at once.
  [[nodiscard]] virtual Result<std::unique_ptr<Worker>> make_worker(runtime::Loop& loop, std::uint32_t threads) = 0;
};

}  // namespace hixl::links::roce
