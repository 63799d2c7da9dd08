// SPDX-License-Identifier: Apache-2.0
//
// hixl_diag serve: the answering side, for a host on which no program of the library runs.
#include <csignal>
#include <cstdio>
#include <memory>

#include <hixl/diagnosis.hpp>

#include "checks.hpp"
#include "reach.hpp"
#include "settings.hpp"
#include "verbs.hpp"

namespace hixl::cli {

namespace {

struct Serve {
  std::string bind = "127.0.0.1";
  std::uint16_t port = k_diagnosis_port;
  std::uint16_t data_port = 0;
  std::string advertise;
  std::string job;
  std::string links;
  bool insecure = false;
};

/// "host:port", "[v6]:port"
std::string with_port(const std::string& host, std::uint16_t port) {
  const bool bare_v6 = host.find(':') != std::string::npos && host.front() != '[';
  return (bare_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

void run(const Serve& serve, Common& common) {
  auto settings = settings_with(serve.links);
  if (!settings) return report(settings.error(), common);
  if (!serve.advertise.empty()) {
    if (const auto unknown = unresolved(serve.advertise)) {
      return report({unknown->step, "--advertise " + unknown->message, unknown->remedy}, common);
    }
  }
  // Blocked before there is another thread, so that they wait for us.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const std::string place = with_port(serve.bind, serve.port);
  const auto diagnosis = Diagnosis::open({.address = place,
                                          .bind = with_port(serve.bind, serve.data_port),
                                          .advertise = serve.advertise,
                                          .job = serve.job,
                                          .insecure = serve.insecure,
                                          .like = std::move(*settings)});
  if (!diagnosis) {
    Failure failure{Step::local, place + ": " + diagnosis.error().message(),
                    std::string(remedy(diagnosis.error().code))};
    if (diagnosis.error().code == ErrorCode::security_required) {
      failure.remedy = "say --insecure if the network is trusted: what answers is neither encrypted nor authenticated";
    } else if (diagnosis.error().code == ErrorCode::invalid_argument && serve.advertise.empty()) {
      failure.remedy =
          "name one address of this host (--bind 10.0.1.25), or say which one others shall use (--advertise)";
    }
    return report(failure, common);
  }
  const std::string address = (*diagnosis)->address();
  if (common.json) {
    std::printf("%s\n", Json{{"ok", true}, {"address", address}}.dump().c_str());
  } else {
    std::printf("answers at %s until Ctrl-C; ask with: hixl_diag --ping HOST --port %s\n", address.c_str(),
                address.substr(address.rfind(':') + 1).c_str());
  }
  std::fflush(stdout);
  int number = 0;
  sigwait(&signals, &number);
}

}  // namespace

void add_serve(CLI::App& app, Common& common) {
  auto* const verb = app.add_subcommand("serve", "answer those who ping, until Ctrl-C");
  const auto serve = std::make_shared<Serve>();
  verb->add_option("--bind", serve->bind, "address of this host to listen at")->capture_default_str();
  verb->add_option("--port", serve->port, "port; 0 takes a free one")->capture_default_str()->check(whole(0, 65'535));
  verb->add_option("--data-port", serve->data_port, "port that carries the data; 0 takes a free one")
      ->capture_default_str()
      ->check(whole(0, 65'535));
  verb->add_option("--advertise", serve->advertise, "address that callers shall use for the data instead of --bind");
  verb->add_option("--job", serve->job, "callers have to name the same")->envname("HIXL_JOB");
  verb->add_option("--links", serve->links, "kinds of links that may be used, as HIXL_LINKS");
  verb->add_flag("--insecure", serve->insecure, "allow an address beyond loopback; the network must be trusted");
  add_json_option(*verb, common);
  verb->callback([serve, &common] { common.run = [serve, &common] { run(*serve, common); }; });
}

}  // namespace hixl::cli
