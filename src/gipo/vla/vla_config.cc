#include "gipo/vla/vla_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "gipo/config/did_you_mean.h"
#include "gipo/core/error.h"
#include "gipo/io/json_text.h"

namespace gipo {
namespace {

using nlohmann::json;
using Fill = VlaTensor::Fill;

constexpr const char* kTimmModels[2] = {"vit_large_patch14_reg4_dinov2", "vit_so400m_patch14_siglip_224"};

// The smaller ones keep 224 pixels, the tokens and the heads of the first.
const std::map<std::string, VlaConfig>& presets() {
  static const std::map<std::string, VlaConfig> all = [] {
    const auto resized = [](std::array<std::int64_t, 4> dino, std::array<std::int64_t, 4> siglip,
                            std::array<std::int64_t, 4> language) {
      VlaConfig c;
      for (int t = 0; t < 2; ++t) {
        TowerConfig& tower = c.towers[static_cast<std::size_t>(t)];
        const auto& sizes = t == 0 ? dino : siglip;
        tower.width = sizes[0], tower.depth = sizes[1], tower.heads = sizes[2], tower.hidden = sizes[3];
      }
      c.width = language[0], c.layers = language[1], c.heads = language[2], c.hidden = language[3];
      return c;
    };
    VlaConfig small = resized({128, 5, 4, 512}, {128, 5, 4, 512}, {256, 6, 4, 704});
    small.image = 112;
    small.vocabulary = 2304;  // a tokeniser of its own; the last 256 are actions
    small.first_action = 2048;
    return std::map<std::string, VlaConfig>{
        {"7b", VlaConfig{}},
        {"1b", resized({384, 12, 6, 1536}, {384, 12, 6, 1536}, {2048, 16, 16, 5632})},
        {"10m", small}};
  }();
  return all;
}

// Each size with its key, for reading and writing alike.
template <class Config, class F>
void each_size(Config& c, F&& f) {
  f("image", c.image), f("patch", c.patch), f("width", c.width), f("layers", c.layers), f("heads", c.heads);
  f("hidden", c.hidden), f("vocabulary", c.vocabulary), f("first_action", c.first_action), f("choices", c.choices);
  f("stop_token", c.stop_token), f("chunk", c.chunk), f("dims", c.dims), f("proprio", c.proprio);
  f("longest_prompt", c.longest_prompt), f("value_hidden_1", c.value_hidden[0]), f("value_hidden_2", c.value_hidden[1]);
  f("rms_epsilon", c.rms_epsilon), f("rope_theta", c.rope_theta);
  for (std::size_t t = 0; t < 2; ++t) {
    auto& tower = c.towers[t];
    const std::string prefix = tower.name + ".";
    f(prefix + "width", tower.width), f(prefix + "depth", tower.depth), f(prefix + "heads", tower.heads);
    f(prefix + "hidden", tower.hidden), f(prefix + "registers", tower.registers);
  }
}

void read_number(const json& from, const std::string& key, auto& to, const std::string& where) {
  const auto found = from.find(key);
  if (found == from.end() || found->is_null()) return;
  if (!found->is_number()) throw Error(fmt::format("{}: {} = {}: wanted a number", where, key, found->dump()));
  to = found->get<std::remove_reference_t<decltype(to)>>();
}

std::string text_at(const json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// What OpenVLA's own config.json says of its parts.
VlaConfig published(const json& root, const std::string& where) {
  const std::string model = text_at(root, "model_type"), arch = text_at(root, "arch_specifier");
  if (model != "openvla" || !arch.ends_with("fused-gelu-mlp")) {
    throw Error(
        fmt::format("{}: model_type = {}, arch_specifier = {}: wanted openvla with a fused-gelu-mlp, or a config "
                    "that gipo wrote",
                    where, model.empty() ? "none" : model, arch.empty() ? "none" : arch));
  }
  const json towers = root.value("timm_model_ids", json::array());
  for (std::size_t t = 0; t < 2; ++t) {
    const std::string name = towers.size() == 2 && towers[t].is_string() ? towers[t].get<std::string>() : "";
    if (!name.starts_with(kTimmModels[t])) {
      throw Error(fmt::format("{}: timm_model_ids = {}: wanted {} and {}", where, towers.dump(), kTimmModels[0],
                              kTimmModels[1]));
    }
  }
  VlaConfig c;
  const json text = root.value("text_config", json::object());
  read_number(text, "hidden_size", c.width, where);
  read_number(text, "num_hidden_layers", c.layers, where);
  read_number(text, "num_attention_heads", c.heads, where);
  read_number(text, "intermediate_size", c.hidden, where);
  read_number(text, "vocab_size", c.vocabulary, where);
  read_number(text, "rms_norm_eps", c.rms_epsilon, where);
  read_number(text, "rope_theta", c.rope_theta, where);
  std::int64_t shared = c.heads;
  read_number(text, "num_key_value_heads", shared, where);
  if (shared != c.heads) throw Error(fmt::format("{}: num_key_value_heads = {}: wanted {}", where, shared, c.heads));
  return c;
}

}  // namespace

VlaConfig vla_preset(const std::string& name) {
  const auto found = presets().find(name);
  if (found != presets().end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, config] : presets()) names.push_back(known);
  throw Error(
      fmt::format("model {} is not known{}; known: {}", name, did_you_mean(name, names), fmt::join(names, ", ")));
}

void set_vla_size(VlaConfig& config, const std::string& key, const std::string& number) {
  std::vector<std::string> keys;
  bool found = false;
  each_size(config, [&](const std::string& known, auto& value) {
    keys.push_back(known);
    if (known != key) return;
    found = true;
    const char* const last = number.data() + number.size();
    const auto [end, fault] = std::from_chars(number.data(), last, value);
    if (fault != std::errc() || end != last) throw Error(fmt::format("{} = {}: wanted a number", key, number));
  });
  if (found) return;
  throw Error(
      fmt::format("{} is no size of a model{}; known: {}", key, did_you_mean(key, keys), fmt::join(keys, ", ")));
}

void check_config(const VlaConfig& c) {
  const auto want = [](bool good, const std::string& what) {
    if (!good) throw Error("large model: " + what);
  };
  each_size(c, [&](const std::string& key, const auto& value) {
    const bool may_be_0 = key == "proprio" || key.ends_with("registers");
    want(value > 0 || (may_be_0 && value == 0), fmt::format("{} = {}: wanted a positive number", key, value));
    want(value <= 1e9, fmt::format("{} = {}: wanted at most 1e9", key, value));
  });
  want(c.image % c.patch == 0, fmt::format("image = {}: wanted a multiple of patch = {}", c.image, c.patch));
  const auto check_heads = [&](const std::string& of, std::int64_t width, std::int64_t heads, std::int64_t hidden) {
    want(width % heads == 0 && width / heads % 8 == 0,
         fmt::format("{}width = {}, {}heads = {}: wanted a width that is a multiple of 8 times the heads", of, width,
                     of, heads));
    want(hidden % 8 == 0, fmt::format("{}hidden = {}: wanted a multiple of 8", of, hidden));
  };
  for (const TowerConfig& t : c.towers) {
    check_heads(t.name + ".", t.width, t.heads, t.hidden);
    want(t.depth >= 2, fmt::format("{}.depth = {}: wanted 2 or more, as the last block is not run", t.name, t.depth));
  }
  check_heads("", c.width, c.heads, c.hidden);
  want(c.choices == 256, fmt::format("choices = {}: wanted 256", c.choices));
  want(c.first_action + c.choices <= c.vocabulary,
       fmt::format("first_action = {}: wanted at most vocabulary - choices = {}", c.first_action,
                   c.vocabulary - c.choices));
  want(c.stop_token < c.vocabulary, fmt::format("stop_token = {}: wanted below {}", c.stop_token, c.vocabulary));
}

VlaConfig parse_vla_config(const std::string& text, const std::string& where) {
  const auto root = parse_json<json>(text, where);
  if (!root.is_object()) throw Error(where + ": no JSON object");
  VlaConfig config;
  const auto own = root.find("gipo_openvla_oft");
  if (own == root.end()) {
    config = published(root, where);
  } else {
    if (!own->is_object()) throw Error(where + ": gipo_openvla_oft: no JSON object");
    each_size(config, [&](const std::string& key, auto& value) { read_number(*own, key, value, where); });
    for (TowerConfig& t : config.towers) t.layer_scale = own->value(t.name + ".layer_scale", t.layer_scale);
  }
  try {
    check_config(config);
  } catch (const Error& e) {
    throw Error(where + ": " + e.what());
  }
  return config;
}

std::string vla_config_text(const VlaConfig& c) {
  json sizes = json::object();
  each_size(c, [&](const std::string& key, const auto& value) { sizes[key] = value; });
  for (const TowerConfig& t : c.towers) sizes[t.name + ".layer_scale"] = t.layer_scale;
  const json root{{"model_type", "openvla"},
                  {"arch_specifier", "no-align+fused-gelu-mlp"},
                  {"timm_model_ids", {kTimmModels[0], kTimmModels[1]}},
                  {"text_config",
                   {{"model_type", "llama"},
                    {"hidden_size", c.width},
                    {"num_hidden_layers", c.layers},
                    {"num_attention_heads", c.heads},
                    {"intermediate_size", c.hidden},
                    {"vocab_size", c.vocabulary},
                    {"rms_norm_eps", c.rms_epsilon},
                    {"rope_theta", c.rope_theta}}},
                  {"gipo_openvla_oft", sizes}};
  return root.dump(2) + "\n";
}

std::uint64_t VlaTensor::size() const {
  std::uint64_t n = 1;
  for (const std::uint64_t d : shape) n *= d;
  return n;
}

std::vector<VlaTensor> vla_tensors(const VlaConfig& c, const LoraConfig& lora) {
  std::vector<VlaTensor> all;
  const auto add = [&](VlaPart part, const std::string& name, std::initializer_list<std::int64_t> shape,
                       Fill fill = Fill::kNormal) {
    VlaTensor t{name, {}, part, fill};
    for (const std::int64_t d : shape) t.shape.push_back(static_cast<std::uint64_t>(d));
    all.push_back(std::move(t));
  };
  const auto linear = [&](VlaPart part, const std::string& name, std::int64_t out, std::int64_t in) {
    add(part, name + ".weight", {out, in});
    add(part, name + ".bias", {out}, Fill::kZero);
  };
  for (const TowerConfig& t : c.towers) {
    const std::string tower = "vision_backbone." + t.name + ".";
    const VlaPart part = VlaPart::kVision;
    add(part, tower + "patch_embed.proj.weight", {t.width, 3, c.patch, c.patch});
    add(part, tower + "patch_embed.proj.bias", {t.width}, Fill::kZero);
    add(part, tower + "pos_embed", {1, c.patches(), t.width});
    if (t.registers > 0) {
      add(part, tower + "cls_token", {1, 1, t.width});
      add(part, tower + "reg_token", {1, t.registers, t.width});
    }
    for (std::int64_t i = 0; i < t.blocks(); ++i) {
      const std::string block = fmt::format("{}blocks.{}.", tower, i);
      const auto norm = [&](const char* name) {
        add(part, block + name + ".weight", {t.width}, Fill::kOne);
        add(part, block + name + ".bias", {t.width}, Fill::kZero);
      };
      norm("norm1");
      linear(part, block + "attn.qkv", 3 * t.width, t.width);
      linear(part, block + "attn.proj", t.width, t.width);
      if (t.layer_scale) add(part, block + "ls1.scale_factor", {t.width}, Fill::kOne);
      norm("norm2");
      linear(part, block + "mlp.fc1", t.hidden, t.width);
      linear(part, block + "mlp.fc2", t.width, t.hidden);
      if (t.layer_scale) add(part, block + "ls2.scale_factor", {t.width}, Fill::kOne);
    }
  }
  const std::int64_t features = c.features();
  linear(VlaPart::kProjector, "projector.fc1", 4 * features, features);
  linear(VlaPart::kProjector, "projector.fc2", c.width, 4 * features);
  linear(VlaPart::kProjector, "projector.fc3", c.width, c.width);
  const VlaPart part = VlaPart::kLanguage;
  add(part, "language_model.model.embed_tokens.weight", {c.vocabulary, c.width});
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = fmt::format("language_model.model.layers.{}.", i);
    add(part, layer + "input_layernorm.weight", {c.width}, Fill::kOne);
    for (const char* name : {"q", "k", "v", "o"})
      add(part, layer + "self_attn." + name + "_proj.weight", {c.width, c.width});
    add(part, layer + "post_attention_layernorm.weight", {c.width}, Fill::kOne);
    add(part, layer + "mlp.gate_proj.weight", {c.hidden, c.width});
    add(part, layer + "mlp.up_proj.weight", {c.hidden, c.width});
    add(part, layer + "mlp.down_proj.weight", {c.width, c.hidden});
  }
  add(part, "language_model.model.norm.weight", {c.width}, Fill::kOne);
  add(part, "language_model.lm_head.weight", {c.vocabulary, c.width});
  // The names that PEFT gives them.
  for (std::int64_t i = 0; lora.rank > 0 && i < c.layers; ++i) {
    const std::string layer = fmt::format("base_model.model.language_model.model.layers.{}.", i);
    const auto pair = [&](std::initializer_list<const char*> names, std::int64_t out, std::int64_t in) {
      for (const char* name : names) add(VlaPart::kAdapter, layer + name + ".lora_A.weight", {lora.rank, in});
      for (const char* name : names)
        add(VlaPart::kAdapter, layer + name + ".lora_B.weight", {out, lora.rank}, Fill::kZero);
    };
    pair({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, c.width, c.width);
    pair({"self_attn.o_proj"}, c.width, c.width);
    pair({"mlp.gate_proj", "mlp.up_proj"}, c.hidden, c.width);
    pair({"mlp.down_proj"}, c.width, c.hidden);
  }
  if (c.proprio > 0) {
    linear(VlaPart::kProprio, "proprio_projector.fc1", c.width, c.proprio);
    linear(VlaPart::kProprio, "proprio_projector.fc2", c.width, c.width);
  }
  linear(VlaPart::kValue, "value_head.fc1", c.value_hidden[0], c.width);
  linear(VlaPart::kValue, "value_head.fc2", c.value_hidden[1], c.value_hidden[0]);
  linear(VlaPart::kValue, "value_head.fc3", 1, c.value_hidden[1]);
  return all;
}

bool is_unused_tensor(const VlaConfig& c, const std::string& name) {
  return std::ranges::any_of(c.towers, [&](const TowerConfig& t) {
    const std::string tower = "vision_backbone." + t.name + ".";
    return name.starts_with(fmt::format("{}blocks.{}.", tower, t.depth - 1)) || name.starts_with(tower + "norm.") ||
           name.starts_with(tower + "attn_pool.");
  });
}

bool is_trained(const VlaTrainConfig& train, VlaPart part) {
  if (!train.train) return false;
  switch (part) {
    case VlaPart::kVision:
      return train.lora.rank == 0 && !train.frozen_vision;
    case VlaPart::kProjector:
    case VlaPart::kLanguage:
      return train.lora.rank == 0;
    case VlaPart::kAdapter:
    case VlaPart::kProprio:
    case VlaPart::kValue:
      return true;
  }
  GIPO_NOT_REACHED();
}

}  // namespace gipo
