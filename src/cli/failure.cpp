// SPDX-License-Identifier: Apache-2.0
#include "failure.hpp"

#include <arpa/inet.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <hixl/diagnosis.hpp>

#include "routes.hpp"

namespace hixl::cli {

namespace {

/// The literal of an error's address, or `otherwise`.
std::string host_of(const Error& error, const std::string& otherwise) {
  if (error.detail.port == 0) return otherwise;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (inet_ntop(AF_INET6, error.detail.host.data(), text.data(), text.size()) == nullptr) return otherwise;
  const std::string host = text.data();
  constexpr std::string_view k_mapped = "::ffff:";
  return host.starts_with(k_mapped) && host.find('.') != std::string::npos ? host.substr(k_mapped.size()) : host;
}

Step step_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::host_unresolved:
      return Step::resolve;
    case ErrorCode::no_route:
    case ErrorCode::family_mismatch:
      return Step::no_route;
    case ErrorCode::connect_refused:
      return Step::refused;
    case ErrorCode::connect_timeout:
      return Step::filtered;
    case ErrorCode::version_mismatch:
      return Step::version;
    case ErrorCode::wrong_job:
    case ErrorCode::access_denied:
    case ErrorCode::security_required:
      return Step::authentication;
    case ErrorCode::transport_unavailable:
      return Step::link;
    case ErrorCode::rank_conflict:
      return Step::busy;
    case ErrorCode::fd_limit:
    case ErrorCode::no_memory:
    case ErrorCode::no_space:
    case ErrorCode::memlock_limit:
    case ErrorCode::address_in_use:
    case ErrorCode::address_not_local:
      return Step::local;
    default:
      break;
  }
  // A deadline that passed says by its errno what stood in the way.
  if (error.detail.stage == Stage::connect) {
    if (error.detail.os_error == ECONNREFUSED) return Step::refused;
    if (error.detail.os_error == ENETUNREACH || error.detail.os_error == EHOSTUNREACH) return Step::no_route;
    return Step::filtered;
  }
  return Step::handshake;
}

}  // namespace

std::string_view name(Step step) noexcept {
  switch (step) {
    case Step::none:
      return "none";
    case Step::transfer:
      return "transfer";
    case Step::resolve:
      return "resolve";
    case Step::no_route:
      return "no_route";
    case Step::refused:
      return "refused";
    case Step::filtered:
      return "filtered";
    case Step::handshake:
      return "handshake";
    case Step::version:
      return "version";
    case Step::authentication:
      return "authentication";
    case Step::link:
      return "link";
    case Step::busy:
      return "busy";
    case Step::local:
      return "local";
  }
  return "unknown";
}

Failure failure_of(const Error& error, const std::string& place) {
  const Step step = step_of(error);
  Failure failure{step, place + ": " + error.message(), std::string(remedy(error.code))};
  switch (step) {
    case Step::no_route:
      failure.remedy = route_advice(host_of(error, place));
      break;
    case Step::refused:
    case Step::filtered:
      failure.remedy =
          "the answering side is reached, and its data port is not: open the port in the firewalls between, "
          "or give it a fixed one (hixl_diag serve --data-port N)";
      break;
    case Step::handshake:
      failure.remedy =
          "see what listens there (ss -ltnp); hixl_diag calls hixl_diag serve, or a program with HIXL_DIAG";
      break;
    case Step::authentication:
      failure.remedy = "name the job that was given to the answering side (--job, HIXL_JOB)";
      break;
    case Step::busy:
      failure.message = place + ": all " + std::to_string(k_diagnosis_callers) + " places of callers are taken (" +
                        std::string(name(error.code)) + ")";
      failure.remedy = "wait until another caller has ended";
      break;
    default:
      break;
  }
  return failure;
}

Failure failure_of_connect(int os_error, const std::string& host, const std::string& place) {
  const std::string what = place + ": " + std::strerror(os_error) + " (errno " + std::to_string(os_error) + ")";
  switch (os_error) {
    case ECONNREFUSED:
      return {Step::refused, what + ": the host answers, and nobody listens at this port",
              "start hixl_diag serve --bind " + host + " there, or check --port"};
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
      return {Step::no_route, what, route_advice(host)};
    case ETIMEDOUT:
      return {Step::filtered, what + ": packets to this port are swallowed on the way, or the host is down",
              "check that the host is up, and that no firewall drops the port (nft list ruleset, iptables -S)"};
    case EACCES:
    case EPERM:
      return {Step::filtered, what + ": a rule of this host forbids it",
              "look for the rule: nft list ruleset, iptables -S OUTPUT"};
    default:
      return {Step::local, what, "see the error number"};
  }
}

Json to_json(const Failure& failure) {
  return {{"ok", false}, {"stage", name(failure.step)}, {"message", failure.message}, {"remedy", failure.remedy}};
}

std::string to_text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }

}  // namespace hixl::cli
