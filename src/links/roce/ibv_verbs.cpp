// SPDX-License-Identifier: Apache-2.0
//
// Verbs on libibverbs: devices, their ports and events. Queues are in ibv_queues.cpp.
#include "links/roce/ibv_verbs.hpp"

#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <fstream>
#include <utility>

#include "base/log.hpp"
#include "links/roce/ibv_queues.hpp"

namespace hixl::links::roce {
namespace {

tl::unexpected<Error> os_failure(ErrorCode code, int number, std::uint64_t length = 0, std::uint64_t limit = 0) {
  return fail(code, {.stage = Stage::memory, .os_error = number, .length = length, .limit = limit});
}

/// Whether the kernel holds this process to its limit of locked memory.
bool held_to_memlock() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return true;
  return (data[CAP_IPC_LOCK / 32].effective & (1U << (CAP_IPC_LOCK % 32))) == 0;
}

/// The network masks of this host's addresses, as bits of an IPv6 address.
std::uint32_t prefix_bits_of(const ibv_gid& gid, const ifaddrs* all) {
  const auto bits_of = [](const std::uint8_t* mask, std::size_t size) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < size; ++i) bits += static_cast<std::uint32_t>(std::popcount(mask[i]));
    return bits;
  };
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr) continue;
    if (one->ifa_addr->sa_family == AF_INET) {
      const auto* const address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
      const auto* const mask = reinterpret_cast<const sockaddr_in*>(one->ifa_netmask);
      const bool mapped = gid.raw[10] == 0xff && gid.raw[11] == 0xff && gid.global.subnet_prefix == 0;
      const auto* const raw = reinterpret_cast<const std::uint8_t*>(&address->sin_addr);
      if (!mapped || !std::equal(raw, raw + 4, gid.raw + 12)) continue;
      return 96 + bits_of(reinterpret_cast<const std::uint8_t*>(&mask->sin_addr), 4);
    }
    if (one->ifa_addr->sa_family == AF_INET6) {
      const auto* const address = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
      const auto* const mask = reinterpret_cast<const sockaddr_in6*>(one->ifa_netmask);
      if (!std::equal(gid.raw, gid.raw + 16, address->sin6_addr.s6_addr)) continue;
      return bits_of(mask->sin6_addr.s6_addr, 16);
    }
  }
  return 0;
}

class IbvMemoryRegion final : public MemoryRegion {
 public:
  explicit IbvMemoryRegion(ibv_mr* region) noexcept : region_(region) {}
  IbvMemoryRegion(const IbvMemoryRegion&) = delete;
  IbvMemoryRegion& operator=(const IbvMemoryRegion&) = delete;
  /// Fails only when the device is gone, and with it the registration.
  ~IbvMemoryRegion() override {
    if (const int error = ibv_dereg_mr(region_); error != 0) {
      log::debug("ibv_dereg_mr: errno {}", error);
    }
  }
  [[nodiscard]] std::uint32_t local_key() const noexcept override { return region_->lkey; }
  [[nodiscard]] std::uint32_t remote_key() const noexcept override { return region_->rkey; }

 private:
  ibv_mr* region_;
};

class IbvDevice final : public Device {
 public:
  explicit IbvDevice(ibv_context* context) : context_(context), name_(ibv_get_device_name(context->device)) {}
  IbvDevice(const IbvDevice&) = delete;
  IbvDevice& operator=(const IbvDevice&) = delete;
  ~IbvDevice() override {
    if (domain_ != nullptr) ibv_dealloc_pd(domain_);
    ibv_close_device(context_);
  }
  [[nodiscard]] Result<void> prepare();

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] const ibv_device_attr& limits() const noexcept override { return limits_; }
  [[nodiscard]] int numa_node() const noexcept override { return numa_node_; }
  [[nodiscard]] Result<ibv_port_attr> port(std::uint32_t number) override;
  [[nodiscard]] Result<std::vector<Gid>> gids(std::uint32_t port) override;
  [[nodiscard]] Result<std::unique_ptr<MemoryRegion>> register_memory(void* data, std::size_t size,
                                                                      int access) override;
  [[nodiscard]] Result<std::unique_ptr<CompletionQueue>> create_completion_queue(std::uint32_t depth) override {
    return create_ibv_completion_queue(context_, depth);
  }
  [[nodiscard]] Result<std::unique_ptr<QueuePair>> create_queue_pair(CompletionQueue& completions,
                                                                     QueuePairOptions& options) override {
    return create_ibv_queue_pair(domain_, completions, options);
  }
  [[nodiscard]] bool gone() override { return ::access(context_->device->dev_path, F_OK) != 0; }
  [[nodiscard]] std::optional<DeviceEvent> next_event() override;
  [[nodiscard]] Result<std::unique_ptr<runtime::Watch>> watch_events(runtime::EventPort& port,
                                                                     runtime::WatchEvents& events) override {
    return port.watch(context_->async_fd, events);
  }

 private:
  ibv_context* context_;
  ibv_pd* domain_ = nullptr;
  const std::string name_;
  ibv_device_attr limits_{};
  int numa_node_ = -1;
};

Result<void> IbvDevice::prepare() {
  if (const int error = ibv_query_device(context_, &limits_); error != 0) {
    return os_failure(ErrorCode::transport_unavailable, error);
  }
  domain_ = ibv_alloc_pd(context_);
  if (domain_ == nullptr) return os_failure(ErrorCode::transport_unavailable, errno);
  const int flags = ::fcntl(context_->async_fd, F_GETFL);
  if (flags < 0 || ::fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return os_failure(ErrorCode::transport_unavailable, errno);
  }
  std::ifstream node(std::string(context_->device->ibdev_path) + "/device/numa_node");
  if (!(node >> numa_node_)) numa_node_ = -1;  // a software device hangs on no bus
  return {};
}

Result<ibv_port_attr> IbvDevice::port(std::uint32_t number) {
  ibv_port_attr attributes{};
  const int error = ibv_query_port(context_, static_cast<std::uint8_t>(number), &attributes);
  if (error != 0) return os_failure(ErrorCode::transport_unavailable, error);
  return attributes;
}

Result<std::vector<Gid>> IbvDevice::gids(std::uint32_t port) {
  const auto attributes = this->port(port);
  if (!attributes) return fail(attributes.error());
  std::vector<ibv_gid_entry> entries(static_cast<std::size_t>(std::max(attributes->gid_tbl_len, 0)) *
                                     limits_.phys_port_cnt);
  const ssize_t count = ibv_query_gid_table(context_, entries.data(), entries.size(), 0);
  if (count < 0) return os_failure(ErrorCode::transport_unavailable, static_cast<int>(-count));
  std::vector<Gid> found;
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) interfaces = nullptr;
  for (const ibv_gid_entry& entry : std::span(entries).first(static_cast<std::size_t>(count))) {
    if (entry.port_num != port) continue;
    found.push_back({.value = entry.gid,
                     .index = entry.gid_index,
                     .v2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2,
                     .prefix_bits = prefix_bits_of(entry.gid, interfaces)});
  }
  if (interfaces != nullptr) ::freeifaddrs(interfaces);
  return found;
}

Result<std::unique_ptr<MemoryRegion>> IbvDevice::register_memory(void* data, std::size_t size, int access) {
  if (limits_.max_mr_size != 0 && size > limits_.max_mr_size) {
    return os_failure(ErrorCode::limit_reached, 0, size, limits_.max_mr_size);
  }
  ibv_mr* const region = ibv_reg_mr(domain_, data, size, access);
  if (region != nullptr) return std::unique_ptr<MemoryRegion>(std::make_unique<IbvMemoryRegion>(region));
  const int error = errno;
  rlimit memlock{};
  ::getrlimit(RLIMIT_MEMLOCK, &memlock);
  if (error == ENOMEM && memlock.rlim_cur != RLIM_INFINITY && held_to_memlock()) {
    return os_failure(ErrorCode::memlock_limit, error, size, memlock.rlim_cur);
  }
  if (error == ENOMEM) return os_failure(ErrorCode::no_memory, error, size);
  return os_failure(error == EFAULT ? ErrorCode::memory_unmapped : ErrorCode::os_error, error, size);
}

std::optional<DeviceEvent> IbvDevice::next_event() {
  ibv_async_event event{};
  if (ibv_get_async_event(context_, &event) != 0) return std::nullopt;
  DeviceEvent told{.type = event.event_type};
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      told.queue_pair = event.element.qp->qp_num;
      break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      told.port = static_cast<std::uint32_t>(event.element.port_num);
      break;
    default:
      break;
  }
  ibv_ack_async_event(&event);
  return told;
}

/// The list of devices that libibverbs found, for as long as it is looked at.
class DeviceList {
 public:
  DeviceList() : list_(ibv_get_device_list(&count_)), error_(list_ == nullptr ? errno : 0) {}
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (list_ != nullptr) ibv_free_device_list(list_);
  }
  [[nodiscard]] std::span<ibv_device*> devices() const { return {list_, static_cast<std::size_t>(count_)}; }
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  int count_ = 0;
  ibv_device** list_;
  int error_;
};

class IbvVerbs final : public Verbs {
 public:
  [[nodiscard]] Result<std::vector<std::string>> device_names() override {
    const DeviceList list;
    if (list.error() != 0) return os_failure(ErrorCode::transport_unavailable, list.error());
    std::vector<std::string> names;
    for (ibv_device* device : list.devices()) names.emplace_back(ibv_get_device_name(device));
    std::sort(names.begin(), names.end());
    return names;
  }

  [[nodiscard]] Result<std::unique_ptr<Device>> open(const std::string& name) override {
    const DeviceList list;
    if (list.error() != 0) return os_failure(ErrorCode::transport_unavailable, list.error());
    for (ibv_device* device : list.devices()) {
      if (name != ibv_get_device_name(device)) continue;
      errno = 0;
      ibv_context* const context = ibv_open_device(device);
      if (context == nullptr) {
        const int error = errno;
        // libibverbs looks for the file elsewhere when it may not open it, and tells of that.
        const std::string file = std::string("/dev/infiniband/") + device->dev_name;
        if (::access(file.c_str(), R_OK | W_OK) != 0 && errno == EACCES) {
          log::warn("RDMA device {}: no permission to open {}", name, file);
          return os_failure(ErrorCode::transport_unavailable, EACCES);
        }
        return os_failure(ErrorCode::transport_unavailable, error);
      }
      auto opened = std::make_unique<IbvDevice>(context);
      if (const Result<void> ready = opened->prepare(); !ready) return fail(ready.error());
      return std::unique_ptr<Device>(std::move(opened));
    }
    return os_failure(ErrorCode::transport_unavailable, ENODEV);
  }

  [[nodiscard]] Result<std::unique_ptr<Worker>> make_worker(runtime::Loop& loop, std::uint32_t threads) override {
    return runtime::make_worker_threads(loop, threads);
  }
};

}  // namespace

std::shared_ptr<Verbs> make_ibv_verbs() { return std::make_shared<IbvVerbs>(); }

}  // namespace hixl::links::roce
