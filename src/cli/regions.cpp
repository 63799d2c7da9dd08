// SPDX-License-Identifier: Apache-2.0
//
// hixl_diag regions [HOST]: what a running program has registered, and what it knows of others' memory.
#include <cstdio>
#include <memory>

#include "caller.hpp"
#include "checks.hpp"
#include "verbs.hpp"

namespace hixl::cli {

void add_regions(CLI::App& app, Common& common) {
  auto* const verb = app.add_subcommand("regions", "registered memory of a program that answers (HIXL_DIAG, or serve)");
  const auto dial = std::make_shared<Dial>();
  dial->host = "127.0.0.1";
  verb->add_option("host", dial->host, "where it answers")->capture_default_str()->transform(host_alone());
  add_dial_options(*verb, *dial);
  add_json_option(*verb, common);
  verb->callback([dial, &common] {
    common.run = [dial, &common] {
      using Subject = Diagnosis::Subject;
      const auto text = answer_of(*dial, common.json ? Subject::regions_json : Subject::regions_text);
      if (!text) return report(text.error(), common);
      std::printf("%s%s", text->c_str(), common.json ? "\n" : "");
    };
  });
}

}  // namespace hixl::cli
