// SPDX-License-Identifier: Apache-2.0
//
// hixl_diag links [HOST]: every kind of link to an answering side, or between two ranks of this host, with its state
// and the reason why it is taken or not.
#include "links.hpp"

#include <unistd.h>

#include <cstdio>
#include <memory>

#include <hixl/inspect_text.hpp>
#include <hixl/runtime.hpp>

#include "caller.hpp"
#include "checks.hpp"
#include "settings.hpp"
#include "verbs.hpp"

namespace hixl::cli {

namespace {

/// Both ranks are here, so what is not there within this time never is.
constexpr std::chrono::seconds k_time{5};

tl::unexpected<Failure> failed(const Error& error) {
  Failure failure{Step::local, "two ranks of this host: " + error.message(), std::string(remedy(error.code))};
  if (error.code == ErrorCode::transport_unavailable) failure.step = Step::link;
  return tl::make_unexpected(std::move(failure));
}

void run(const Dial& dial, bool theirs, Common& common) {
  if (theirs) {
    using Subject = Diagnosis::Subject;
    const auto text = answer_of(dial, common.json ? Subject::links_json : Subject::links_text);
    if (!text) return report(text.error(), common);
    std::printf("%s%s", text->c_str(), common.json ? "\n" : "");
    return;
  }
  std::vector<LinkInfo> links;
  if (dial.host.empty()) {
    auto found = links_of_this_host(dial.links);
    if (!found) return report(found.error(), common);
    links = std::move(*found);
  } else {
    const auto caller = Caller::call(dial);
    if (!caller) return report(caller.error(), common);
    links = caller->runtime->links();
  }
  std::printf("%s%s", (common.json ? to_json(links) : to_text(links)).c_str(), common.json ? "\n" : "");
}

}  // namespace

tl::expected<std::vector<LinkInfo>, Failure> links_of_this_host(const std::string& kinds) {
  auto options = settings_with(kinds);
  if (!options) return tl::make_unexpected(options.error());
  options->world_size = 2;
  options->store = "unix:@hixl-diag-" + std::to_string(::getpid());
  options->bind = "127.0.0.1";
  options->advertise.clear();
  options->connect_timeout = k_time;
  std::vector<std::unique_ptr<Runtime>> ranks;
  for (const Rank rank : {0U, 1U}) {
    options->rank = rank;
    options->host_store = rank == 0;
    auto made = Runtime::create(*options);
    if (!made) return failed(made.error());
    ranks.push_back(std::move(*made));
  }
  constexpr Rank k_other = 1;
  if (const auto warm = ranks[0]->prewarm({&k_other, 1}, k_time); !warm) return failed(warm.error());
  auto links = ranks[0]->links();
  ranks.pop_back();  // the one that hosts the store leaves last
  return links;
}

void add_links(CLI::App& app, Common& common) {
  auto* const verb = app.add_subcommand("links", "kinds of links to a host, or on this host, and why each is taken");
  const auto dial = std::make_shared<Dial>();
  const auto theirs = std::make_shared<bool>(false);
  auto* const host =
      verb->add_option("host", dial->host, "where hixl_diag is answered; without: between two ranks of this host")
          ->transform(host_alone());
  verb->add_flag("--theirs", *theirs, "not the links to it, but those that the program there has")->needs(host);
  add_dial_options(*verb, *dial);
  add_json_option(*verb, common);
  verb->callback([verb, dial, theirs, &common] {
    if (dial->host.empty()) refuse_without_host(*verb);
    common.run = [dial, theirs, &common] { run(*dial, *theirs, common); };
  });
}

}  // namespace hixl::cli
