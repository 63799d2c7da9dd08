// SPDX-License-Identifier: Apache-2.0
//
// hixl_diag mem: how large a buffer for the KV cache of a model has to be, by the library's own layouts.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <hixl/kv/layout.hpp>

#include "checks.hpp"
#include "system.hpp"
#include "verbs.hpp"

namespace hixl::cli {

namespace {

constexpr std::uint64_t k_huge_page_bytes = 2U << 20U;  // of x86 and arm64 with 4 KiB pages

constexpr std::uint64_t k_tokens_max = std::uint64_t{1} << 50U;  // beyond every machine; a wrapped -1 is more

struct Model {
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t dtype_bytes = 2;
  std::uint32_t block_tokens = 16;
  std::uint64_t tokens = 0;
  std::uint32_t headroom = kv::k_headroom_percent;
  std::uint32_t tensor_parallel = 1;
  std::uint32_t pipeline_parallel = 1;
  std::string form = "separate";
};

const std::map<std::string, kv::Form> k_forms = {{"separate", kv::Form::separate},
                                                 {"block_interleaved", kv::Form::block_interleaved},
                                                 {"token_interleaved", kv::Form::token_interleaved},
                                                 {"latent", kv::Form::latent}};

// Beyond every model; what their product may be, the layout says.
constexpr std::uint64_t k_layers_max = 65'536;
constexpr std::uint64_t k_heads_max = 1U << 20U;
constexpr std::uint64_t k_dim_max = 1U << 24U;

/// Of the rank with the most: heads and layers that do not divide are rounded up, and a head is never split.
kv::Layout layout_of(const Model& model) {
  const auto share = [](std::uint32_t whole, std::uint32_t parts) { return whole / parts + (whole % parts != 0); };
  const kv::Form form = k_forms.at(model.form);
  return {.form = form,
          .order = kv::Order::token_major,
          .dtype_bytes = model.dtype_bytes,
          .layers = share(model.layers, model.pipeline_parallel),
          .kv_heads = share(model.kv_heads, form == kv::Form::latent ? 1 : model.tensor_parallel),
          .head_dim = model.head_dim,
          .block_tokens = model.block_tokens};
}

void run(const Model& model, Common& common) {
  const kv::Layout layout = layout_of(model);
  const auto token = kv::kv_bytes(layout, 1);
  const auto all = kv::kv_bytes(layout, model.tokens);
  const auto blocks = kv::blocks_for(layout, model.tokens, model.headroom);
  const auto buffer = blocks ? kv::cache_bytes(layout, *blocks) : fail(blocks.error());
  for (const auto& result : {token, all, blocks, buffer}) {
    if (result) continue;
    return report({Step::local, "this geometry: " + result.error().message(), "check the numbers of the model"},
                  common);
  }
  const std::string available_text = System("").field("/proc/meminfo", "MemAvailable");
  const std::uint64_t available = std::strtoull(available_text.c_str(), nullptr, 10) << 10U;  // the file has KiB
  const std::uint64_t huge_pages = *buffer / k_huge_page_bytes + (*buffer % k_huge_page_bytes != 0);
  const bool fits = *buffer <= available;
  if (common.json) {
    const Json json = {{"ok", fits},
                       {"layout", kv::to_text(layout)},
                       {"token_bytes", *token},
                       {"kv_bytes", *all},
                       {"headroom_percent", model.headroom},
                       {"blocks", *blocks},
                       {"buffer_bytes", *buffer},
                       {"huge_pages_2m", huge_pages},
                       {"available_bytes", available}};
    std::printf("%s\n", to_text(json).c_str());
  } else {
    std::printf("layout      %s\n", kv::to_text(layout).c_str());
    std::printf("a token     %s\n", bytes_text(*token).c_str());
    std::printf("all tokens  %s\n", bytes_text(*all).c_str());
    std::printf("buffer      %s (%llu bytes): %llu blocks, %u %% head-room\n", bytes_text(*buffer).c_str(),
                static_cast<unsigned long long>(*buffer), static_cast<unsigned long long>(*blocks), model.headroom);
    std::printf("huge pages  %llu of 2 MiB, if asked for (sysctl vm.nr_hugepages)\n",
                static_cast<unsigned long long>(huge_pages));
    std::printf("this host   %s available: the buffer %s\n", bytes_text(available).c_str(),
                fits ? "fits" : "does not fit");
  }
  common.exit_code = fits ? 0 : 1;
}

std::vector<std::string> names_of_forms() {
  std::vector<std::string> names;
  for (const auto& [name, form] : k_forms) names.push_back(name);
  return names;
}

}  // namespace

void add_mem(CLI::App& app, Common& common) {
  auto* const verb = app.add_subcommand("mem", "how large a rank's buffer for the KV cache of a model must be");
  const auto model = std::make_shared<Model>();
  verb->add_option("--layers", model->layers, "layers of the model")->required()->check(whole(1, k_layers_max));
  verb->add_option("--kv-heads", model->kv_heads, "KV heads of a layer; latent: 1")
      ->required()
      ->check(whole(1, k_heads_max));
  verb->add_option("--head-dim", model->head_dim, "numbers of a head; latent: of the latent vector")
      ->required()
      ->check(whole(1, k_dim_max));
  verb->add_option("--tokens", model->tokens, "tokens that are in the cache at once, of all sequences")
      ->required()
      ->check(whole(1, k_tokens_max));
  verb->add_option("--dtype-bytes", model->dtype_bytes, "bytes of a number")
      ->capture_default_str()
      ->check(whole(1, 16));
  verb->add_option("--block-tokens", model->block_tokens, "tokens of a block")
      ->capture_default_str()
      ->check(whole(1, 1U << 20U));
  verb->add_option("--form", model->form, "how keys and values lie")
      ->capture_default_str()
      ->check(CLI::IsMember(names_of_forms()));
  verb->add_option("--headroom", model->headroom, "percent beyond the tokens, for longer ones and blocks in flight")
      ->capture_default_str()
      ->check(whole(0, 1000));
  verb->add_option("--tp", model->tensor_parallel, "ranks that share the heads")
      ->capture_default_str()
      ->check(whole(1, 65'536));
  verb->add_option("--pp", model->pipeline_parallel, "ranks that share the layers")
      ->capture_default_str()
      ->check(whole(1, 4'096));
  add_json_option(*verb, common);
  verb->callback([model, &common] { common.run = [model, &common] { run(*model, common); }; });
}

}  // namespace hixl::cli
