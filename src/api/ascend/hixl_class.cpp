// SPDX-License-Identifier: Apache-2.0
//
// hixl::Hixl: every call goes to its State; nothing that is thrown leaves.
#include <hixl/ascend_compat.h>

#include <new>

#include "api/ascend/engine.hpp"

namespace hixl {

namespace {

/// Nothing of the parent's is touched in a forked child: threads that held its locks are not there.
template <class State, class Call>
Status whole(const State& state, Call&& call) noexcept {
  try {
    if (state.forked()) return api::failed(FAILED, Error(ErrorCode::forked, {.stage = Stage::options}));
    return call();
  } catch (const std::bad_alloc&) {
    return api::failed(Error(ErrorCode::no_memory));
  } catch (...) {
    return api::failed(Error(ErrorCode::internal));
  }
}

}  // namespace

Hixl::Hixl() : state_(std::make_unique<State>()) {}
Hixl::~Hixl() {
  // Nothing of the parent's can be released in a forked child.
  if (whole(*state_, [] { return SUCCESS; }) != SUCCESS) static_cast<void>(state_.release());
}

Status Hixl::Initialize(const AscendString& local_engine, const std::map<AscendString, AscendString>& options) {
  return whole(*state_, [&] { return state_->initialize(local_engine, options); });
}

void Hixl::Finalize() {
  static_cast<void>(whole(*state_, [&] {
    state_->finalize();
    return SUCCESS;
  }));
}

Status Hixl::RegisterMem(const MemDesc& mem, MemType type, MemHandle& mem_handle) {
  mem_handle = nullptr;
  return whole(*state_, [&] {
    if (type != MEM_DEVICE && type != MEM_HOST) {
      return api::failed(Error(ErrorCode::invalid_argument, {.stage = Stage::memory}));
    }
    return state_->register_mem(mem, mem_handle);
  });
}

Status Hixl::DeregisterMem(MemHandle mem_handle) {
  return whole(*state_, [&] { return state_->deregister_mem(mem_handle); });
}

Status Hixl::Connect(const AscendString& remote_engine, std::int32_t timeout_in_millis) {
  return whole(*state_, [&] { return state_->connect(remote_engine.GetString(), timeout_in_millis); });
}

Status Hixl::Disconnect(const AscendString& remote_engine, std::int32_t timeout_in_millis) {
  return whole(*state_, [&] { return state_->disconnect(remote_engine.GetString(), timeout_in_millis); });
}

Status Hixl::ConnectAsync(const AscendString& remote_engine, std::int32_t timeout_in_millis) {
  return whole(*state_, [&] { return state_->later(remote_engine.GetString(), true, timeout_in_millis); });
}

Status Hixl::DisconnectAsync(const AscendString& remote_engine, std::int32_t timeout_in_millis) {
  return whole(*state_, [&] { return state_->later(remote_engine.GetString(), false, timeout_in_millis); });
}

Status Hixl::GetAsyncConnectStatus(const AscendString& remote_engine, AsyncConnectStatus& status) {
  status = AsyncConnectStatus::NOT_CONNECT;
  return whole(*state_, [&] { return state_->later_status(remote_engine.GetString(), status); });
}

Status Hixl::GetAsyncConnectStatus(std::map<AscendString, AsyncConnectStatus>& statuses) {
  statuses.clear();
  return whole(*state_, [&] { return state_->later_statuses(statuses); });
}

Status Hixl::TransferSync(const AscendString& remote_engine, TransferOp operation,
                          const std::vector<TransferOpDesc>& op_descs, std::int32_t timeout_in_millis) {
  return whole(*state_,
               [&] { return state_->transfer(remote_engine.GetString(), operation, op_descs, timeout_in_millis); });
}

Status Hixl::TransferAsync(const AscendString& remote_engine, TransferOp operation,
                           const std::vector<TransferOpDesc>& op_descs, const TransferArgs& optional_args,
                           TransferReq& req) {
  req = nullptr;
  return whole(*state_, [&] {
    return state_->transfer_async(remote_engine.GetString(), operation, op_descs, optional_args.user_data, req);
  });
}

Status Hixl::GetTransferStatus(const TransferReq& req, TransferStatus& status) {
  status = TransferStatus::FAILED;
  return whole(*state_, [&] { return state_->transfer_status(req, status); });
}

Status Hixl::GetTransferStatus(const GetTransferStatusArgs& args, std::vector<TransferResult>& results) {
  results.clear();
  return whole(*state_, [&] { return state_->transfer_statuses(args, results); });
}

Status Hixl::SendNotify(const AscendString& remote_engine, const NotifyDesc& notify, std::int32_t timeout_in_millis) {
  return whole(*state_, [&] { return state_->send_notify(remote_engine.GetString(), notify, timeout_in_millis); });
}

Status Hixl::GetNotifies(std::vector<NotifyDesc>& notifies) {
  notifies.clear();
  return whole(*state_, [&] { return state_->get_notifies(notifies); });
}

Status Hixl::GetCapability(FeatureType feature, std::int32_t& value) {
  value = 0;
  if (feature != AUTO_CONNECT && feature != CLIENT_SERVER_COMM) {
    return api::failed(Error(ErrorCode::invalid_argument, {.stage = Stage::options}));
  }
  value = 1;
  return SUCCESS;
}

}  // namespace hixl
