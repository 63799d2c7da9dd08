// SPDX-License-Identifier: Apache-2.0
#include "core/addresses.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "group/rendezvous.hpp"
#include "runtime/interfaces.hpp"
#include "wire/store_messages.hpp"

namespace hixl::core {

namespace {

/// One item of `bind` or `advertise`: a host, or host:port. A lone IPv6 address needs no brackets.
Result<runtime::Address> one_address(const char* option, const std::string& item) {
  const bool brackets = item.size() > 2 && item.front() == '[' && item.back() == ']';
  const bool with_port = !brackets && (item.front() == '[' || std::count(item.begin(), item.end(), ':') == 1);
  auto address = with_port ? runtime::Address::parse(item)
                           : runtime::Address::of_host(brackets ? item.substr(1, item.size() - 2) : item, 0);
  if (!address) {
    log::error("option {}=\"{}\": {}; it is a name, an IPv4 or an IPv6 address, with \":port\" or without", option,
               item, what(address.error().code));
    address.error().detail.stage = Stage::bind;
  }
  return address;
}

/// What stands between commas, blanks around it taken away.
Result<std::vector<runtime::Address>> addresses(const char* option, const std::string& text) {
  std::vector<runtime::Address> all;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::size_t first = text.find_first_not_of(' ', begin);
    const std::size_t last = text.find_last_not_of(' ', end - 1);
    if (end == begin || first >= end) {
      log::error("option {}=\"{}\" has an empty item between its commas", option, text);
      return fail(ErrorCode::invalid_argument, {.stage = Stage::bind, .length = all.size()});
    }
    auto address = one_address(option, text.substr(first, last - first + 1));
    if (!address) return fail(address.error());
    all.push_back(std::move(*address));
    begin = end + 1;
  }
  if (all.size() > wire::k_addresses_max) {
    log::error("option {} names {} addresses; {} is the limit", option, all.size(), wire::k_addresses_max);
    return fail(ErrorCode::invalid_argument,
                {.stage = Stage::bind, .length = all.size(), .limit = wire::k_addresses_max});
  }
  return all;
}

Error security_required(const runtime::Address& address) {
  ErrorDetail detail{.stage = Stage::bind};
  address.name_in(detail);
  return Error(ErrorCode::security_required, detail);
}

}  // namespace

Result<std::vector<Listening>> addresses_to_bind(const RuntimeOptions& options) {
  const auto bound = addresses("bind", options.bind);
  if (!bound) return fail(bound.error());
  std::vector<Listening> all;
  for (const runtime::Address& address : *bound) {
    if (!address.loopback() && !options.insecure) return fail(security_required(address));
    all.push_back({.bind = address, .told = {}});
  }
  if (options.advertise.empty()) return all;
  const auto told = addresses("advertise", options.advertise);
  if (!told) return fail(told.error());
  if (told->size() != all.size()) {
    log::error("bind names {} addresses and advertise {}: each of the first needs one of the second, in the same order",
               all.size(), told->size());
    return fail(ErrorCode::invalid_argument,
                {.rank = options.rank, .stage = Stage::bind, .length = told->size(), .limit = all.size()});
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const runtime::Address& address = (*told)[i];
    if (address.wildcard() || address.text().size() + std::string("65535").size() > wire::k_address_bytes_max) {
      log::error("option advertise=\"{}\" is nothing that others could call", options.advertise);
      return fail(ErrorCode::invalid_argument,
                  {.rank = options.rank, .stage = Stage::bind, .length = options.advertise.size()});
    }
    const int ours = all[i].bind.literal_family();
    const int theirs = address.literal_family();
    if (ours != 0 && theirs != 0 && ours != theirs) {
      log::error("bind={} and advertise={} are of different families: nobody who calls the second reaches the first",
                 all[i].bind.host, address.host);
      ErrorDetail detail{.rank = options.rank, .stage = Stage::bind};
      address.name_in(detail);
      return fail(ErrorCode::family_mismatch, detail);
    }
    all[i].told = address;
  }
  return all;
}

Result<runtime::Address> address_to_tell(const RuntimeOptions& options, const Listening& listening,
                                         const runtime::Address& bound) {
  runtime::Address told = bound;
  if (listening.told) {
    told.host = listening.told->host;
    if (listening.told->port != 0) told.port = listening.told->port;
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
                 bound.host, options.store, near->host);
      ErrorDetail detail{.rank = options.rank, .stage = Stage::bind};
      near->name_in(detail);
      return fail(ErrorCode::family_mismatch, detail);
    }
    log::error("bind={}: no address of this host faces the store {}: {}", bound.host, options.store,
               near.error().message());
  } else {
    log::error("bind={}: nothing says which address of this host others should call; set advertise (HIXL_ADVERTISE)",
               bound.host);
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
