// SPDX-License-Identifier: Apache-2.0
#include "core/addresses.hpp"

#include <sys/socket.h>

#include <utility>

#include "base/log.hpp"
#include "group/rendezvous.hpp"
#include "runtime/interfaces.hpp"
#include "wire/store_messages.hpp"

namespace hixl::core {

namespace {

/// A host without a port, as `bind` and `advertise` have it; "[::1]" is understood as well.
Result<runtime::Address> host_option(const char* option, const std::string& host) {
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  auto address = runtime::Address::of_host(brackets ? host.substr(1, host.size() - 2) : host, 0);
  if (!address) {
    log::error("option {}=\"{}\": {}; it is a name, an IPv4 or an IPv6 address, without port", option, host,
               what(address.error().code));
    address.error().detail.stage = Stage::bind;
  }
  return address;
}

Error security_required(const runtime::Address& address) {
  ErrorDetail detail{.stage = Stage::bind};
  address.name_in(detail);
  return Error(ErrorCode::security_required, detail);
}

}  // namespace

Result<runtime::Address> address_to_bind(const RuntimeOptions& options) {
  auto bound = host_option("bind", options.bind);
  if (!bound) return bound;
  if (!bound->loopback() && !options.insecure) return fail(security_required(*bound));
  if (options.advertise.empty()) return bound;
  const auto told = host_option("advertise", options.advertise);
  if (!told) return told;
  if (told->wildcard() || told->text().size() + std::string("65535").size() > wire::k_address_bytes_max) {
    log::error("option advertise=\"{}\" is nothing that others could call", options.advertise);
    return fail(ErrorCode::invalid_argument,
                {.rank = options.rank, .stage = Stage::bind, .length = options.advertise.size()});
  }
  const int ours = bound->literal_family();
  const int theirs = told->literal_family();
  if (ours != 0 && theirs != 0 && ours != theirs) {
    log::error("bind={} and advertise={} are of different families: nobody who calls the second reaches the first",
               options.bind, options.advertise);
    ErrorDetail detail{.rank = options.rank, .stage = Stage::bind};
    told->name_in(detail);
    return fail(ErrorCode::family_mismatch, detail);
  }
  return bound;
}

Result<runtime::Address> address_to_tell(const RuntimeOptions& options, const runtime::Address& bound) {
  runtime::Address told = bound;
  if (!options.advertise.empty()) {
    const auto host = host_option("advertise", options.advertise);
    if (!host) return host;
    told.host = host->host;
    return told;
  }
  if (!bound.wildcard()) return told;
  const bool v4 = bound.host == "0.0.0.0";
  told.host = v4 ? "127.0.0.1" : "::1";
  if (options.store.empty()) return told;
  const auto store = runtime::Address::parse(options.store);
  if (store && (store->family == runtime::Address::Family::unix_abstract || store->loopback())) return told;
  // A store that is hosted here at a wildcard, or a file, says nothing about which network the others are in.
  if (store && !store->wildcard()) {
    const auto near = runtime::address_towards(*store);
    if (near && (near->literal_family() == AF_INET) == v4) {
      told.host = near->host;
      return told;
    }
    if (near) {
      log::error("bind={} listens on one family, and the store {} is reached from {}, which is of the other",
                 options.bind, options.store, near->host);
      ErrorDetail detail{.rank = options.rank, .stage = Stage::bind};
      near->name_in(detail);
      return fail(ErrorCode::family_mismatch, detail);
    }
    log::error("bind={}: no address of this host faces the store {}: {}", options.bind, options.store,
               near.error().message());
  } else {
    log::error("bind={}: nothing says which address of this host others should call; set advertise (HIXL_ADVERTISE)",
               options.bind);
  }
  return fail(ErrorCode::invalid_argument, {.rank = options.rank, .stage = Stage::bind});
}

Result<std::unique_ptr<group::StoreServer>> host_store(runtime::Loop& loop, const std::string& url, bool insecure) {
  if (const auto path = group::rendezvous_path(url); !path || !path->empty()) {
    log::error("{} is a file, which nobody hosts", url);
    return fail(ErrorCode::invalid_argument, {.stage = Stage::rendezvous});
  }
  const auto address = runtime::Address::parse(url);
  if (!address) return fail(address.error());
  if (!address->loopback() && !insecure) return fail(security_required(*address));
  auto server = group::StoreServer::listen(loop, *address);
  // "localhost" is what /etc/hosts makes of it.
  if (server && !(*server)->address().loopback() && !insecure) return fail(security_required((*server)->address()));
  return server;
}

}  // namespace hixl::core
