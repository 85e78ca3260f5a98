#include "gipo/vla/torch/vla_network.h"

#include <fmt/format.h>

#include "gipo/core/error.h"

namespace gipo::vla {
namespace {

void want(bool good, const std::string& what) {
  if (!good) throw Error("large model: " + what);
}

}  // namespace

std::size_t Network::find(const std::string& name) const {
  const auto found = index_.find(name);
  GIPO_CHECK(found != index_.end());
  return found->second;
}
// A tensor, or `count` of the same width that follow each other as one.
Tensor Network::view(std::size_t index, const Tensor& flat, std::size_t count) const {
  const Arrays::Place& place = arrays_.places[index];
  std::vector<std::int64_t> shape(tensors_[index].shape.begin(), tensors_[index].shape.end());
  auto size = static_cast<std::int64_t>(tensors_[index].size());
  for (std::size_t i = index + 1; i < index + count; ++i) {
    GIPO_CHECK(arrays_.places[i].begin == place.begin + size && arrays_.places[i].flat == place.flat);
    size += static_cast<std::int64_t>(tensors_[i].size());
    shape[0] += static_cast<std::int64_t>(tensors_[i].shape[0]);
  }
  return flat.narrow(0, place.begin, size).view(shape);
}
Tensor Network::value(const std::string& name, std::size_t count) const {
  const std::size_t index = find(name);
  return view(index, flat_of(index).value, count);
}
// Undefined where it is not trained. cleared: it is added to, so that it must be zero before the first time.
Tensor Network::by(const std::string& name, bool cleared, std::size_t count) {
  const std::size_t index = find(name);
  if (!is_trained(index)) return {};
  const Tensor t = view(index, flat_of(index).gradient, count);
  if (cleared) cleared_.push_back(t);
  return t;
}

Linear Network::linear(const std::string& name) {
  return {value(name + ".weight"), value(name + ".bias"), by(name + ".weight", false), by(name + ".bias", true), {}};
}
LayerNorm Network::layer_norm(const std::string& name) {
  return {value(name + ".weight"), value(name + ".bias"), by(name + ".weight", true), by(name + ".bias", true),
          c_.layer_epsilon};
}
// Several of a layer's products as one, with their adapters.
Linear Network::products(const std::string& layer, const std::vector<std::string>& names) {
  const auto weight = [&](const std::string& name) { return "language_model.model." + layer + name + ".weight"; };
  Linear l{value(weight(names[0]), names.size()), {}, by(weight(names[0]), false, names.size()), {}, {}};
  if (fp8_ && l.weight.size(0) % 16 == 0 && l.weight.size(1) % 16 == 0) {
    l.fp8 = make_fp8(l.weight.size(0), l.weight.size(1), device_);
  }
  if (lora_.rank == 0) return l;
  const auto adapter = [&](const std::string& name, const char* which) {
    return "base_model.model." + ("language_model.model." + layer + name) + which;
  };
  Linear::Adapter a;
  a.a = value(adapter(names[0], ".lora_A.weight"), names.size());
  a.by_a = by(adapter(names[0], ".lora_A.weight"), false, names.size());
  for (const std::string& name : names) {
    a.b.push_back(value(adapter(name, ".lora_B.weight")));
    a.by_b.push_back(by(adapter(name, ".lora_B.weight"), false));
  }
  a.scale = lora_.scale();
  l.adapter = a;
  return l;
}
std::pair<Tensor, Tensor> Network::adapter_of(std::size_t index) const {
  const std::string& name = tensors_[index].name;
  if (lora_.rank == 0 || !name.starts_with("language_model.model.layers.")) return {};
  const std::string stem = "base_model.model." + name.substr(0, name.rfind(".weight"));
  const auto a = index_.find(stem + ".lora_A.weight"), b = index_.find(stem + ".lora_B.weight");
  if (a == index_.end()) return {};
  return {value(a->second), value(b->second)};
}

Network::Network(const VlaSetup& setup, at::Device device, at::ScalarType type, bool fp8)
    : c_(setup.config),
      lora_(setup.train.lora),
      recompute_(setup.recompute),
      device_(device),
      type_(type),
      fp8_(fp8),
      tensors_(vla_tensors(c_, lora_)) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
  table_ =
      rotation_table(c_.around_prompt(kMostCameras) + c_.longest_prompt, c_.width / c_.heads, c_.rope_theta, device_);
}

void Network::bind(Arrays arrays) {
  arrays_ = std::move(arrays);
  cleared_.clear();
  layers_.clear();
  projector_ = {}, proprio_ = {}, value_ = {};
  towers_ = {};
  by_head_ = Tensor();

  for (std::size_t t = 0; t < 2; ++t) build_tower(towers_[t], c_.towers[t]);
  for (const char* name : {"projector.fc1", "projector.fc2", "projector.fc3"})
    projector_.layers.push_back(linear(name));
  if (c_.proprio > 0) proprio_.layers = {linear("proprio_projector.fc1"), linear("proprio_projector.fc2")};
  for (const char* name : {"value_head.fc1", "value_head.fc2", "value_head.fc3"}) value_.layers.push_back(linear(name));
  embedding_ = value("language_model.model.embed_tokens.weight");
  by_embedding_ = by("language_model.model.embed_tokens.weight", true);
  norm_ = value("language_model.model.norm.weight");
  by_norm_ = by("language_model.model.norm.weight", true);
  const Tensor head = value("language_model.lm_head.weight"), by_head = by("language_model.lm_head.weight", true);
  head_ = head.narrow(0, c_.first_action, c_.choices);
  if (by_head.defined()) by_head_ = by_head.narrow(0, c_.first_action, c_.choices);
  for (std::int64_t i = 0; i < c_.layers; ++i) {
    const std::string layer = fmt::format("layers.{}.", i), whole = "language_model.model." + layer;
    Layer l;
    l.norm1 = value(whole + "input_layernorm.weight");
    l.by_norm1 = by(whole + "input_layernorm.weight", true);
    l.norm2 = value(whole + "post_attention_layernorm.weight");
    l.by_norm2 = by(whole + "post_attention_layernorm.weight", true);
    if (i + 1 < c_.layers) {
      l.qkv = products(layer, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
    } else {
      l.q = products(layer, {"self_attn.q_proj"});
      l.kv = products(layer, {"self_attn.k_proj", "self_attn.v_proj"});
    }
    l.o = products(layer, {"self_attn.o_proj"});
    l.gate_up = products(layer, {"mlp.gate_proj", "mlp.up_proj"});
    l.down = products(layer, {"mlp.down_proj"});
    layers_.push_back(std::move(l));
  }
}

void Network::take_fp8(bool frozen) {
  for (const Layer& layer : layers_) {
    for (const Linear* l : {&layer.qkv, &layer.q, &layer.kv, &layer.o, &layer.gate_up, &layer.down}) {
      if (l->fp8 && (frozen || l->by_weight.defined())) to_fp8(l->weight, *l->fp8);
    }
  }
}

void Network::build_tower(Tower& tower, const TowerConfig& config) {
  const std::string name = "vision_backbone." + config.name + ".";
  const std::int64_t pixels = 3 * c_.patch * c_.patch;
  tower.config = &config;
  tower.patch = linear(name + "patch_embed.proj");
  tower.patch.weight = tower.patch.weight.view({config.width, pixels});
  if (tower.patch.by_weight.defined()) tower.patch.by_weight = tower.patch.by_weight.view({config.width, pixels});
  tower.position = value(name + "pos_embed");
  tower.by_position = by(name + "pos_embed", true);
  if (config.registers > 0) {
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string token = name + (i == 0 ? "cls_token" : "reg_token");
      tower.prefix[i] = value(token);
      tower.by_prefix[i] = by(token, true);
    }
  }
  std::vector<float> scale, shift;
  for (std::size_t i = 0; i < 3; ++i) {
    scale.push_back(1 / (255 * config.deviation[i]));
    shift.push_back(-config.mean[i] / config.deviation[i]);
  }
  tower.scale = at::tensor(scale, at::kFloat).view({3, 1}).to(device_);
  tower.shift = at::tensor(shift, at::kFloat).view({3, 1}).to(device_);
  for (std::int64_t i = 0; i < config.blocks(); ++i) {
    const std::string b = fmt::format("{}blocks.{}.", name, i);
    Block block{layer_norm(b + "norm1"),
                layer_norm(b + "norm2"),
                linear(b + "attn.qkv"),
                linear(b + "attn.proj"),
                linear(b + "mlp.fc1"),
                linear(b + "mlp.fc2"),
                {},
                {},
                {},
                {}};
    if (config.layer_scale) {
      block.scale1 = value(b + "ls1.scale_factor"), block.by_scale1 = by(b + "ls1.scale_factor", true);
      block.scale2 = value(b + "ls2.scale_factor"), block.by_scale2 = by(b + "ls2.scale_factor", true);
    }
    tower.blocks.push_back(std::move(block));
  }
}

void Network::check(const VlaInputs& in) const {
  want(in.n > 0, "no samples");
  want(in.cameras >= 1 && in.cameras <= kMostCameras,
       fmt::format("{} cameras: wanted 1 to {}", in.cameras, kMostCameras));
  const std::int64_t bytes = in.n * in.cameras * c_.image * c_.image * 3;
  want(static_cast<std::int64_t>(in.images.size()) == bytes,
       fmt::format("{} bytes of images: wanted {} for {} samples of {} images of {} x {} x 3", in.images.size(), bytes,
                   in.n, in.cameras, c_.image, c_.image));
  want(static_cast<std::int64_t>(in.proprio.size()) == in.n * c_.proprio,
       fmt::format("{} numbers of proprio: wanted {} for each of {} samples", in.proprio.size(), c_.proprio, in.n));
  check_prompts(in);
}

void Network::check_prompts(const VlaInputs& in) const {
  want(static_cast<std::int64_t>(in.prompts.size()) == in.n,
       fmt::format("{} prompts for {} samples", in.prompts.size(), in.n));
  for (const auto& prompt : in.prompts) {
    want(prompt.size() >= 2 && static_cast<std::int64_t>(prompt.size()) <= c_.longest_prompt,
         fmt::format("a prompt of {} tokens: wanted 2 to {}", prompt.size(), c_.longest_prompt));
    for (const std::int32_t token : prompt) {
      want(token >= 0 && token < c_.vocabulary, fmt::format("token {}: wanted 0 to {}", token, c_.vocabulary - 1));
    }
  }
}

Tensor Network::images_of(const VlaInputs& in) const {
  return on_device(in.images, {in.n * in.cameras, c_.image, c_.image, 3}, at::kByte);
}
Tensor Network::proprio_of(const VlaInputs& in) const {
  return c_.proprio > 0 ? on_device(in.proprio, {in.n, c_.proprio}, at::kFloat).to(type_) : Tensor();
}

// Those of all samples in the order of their rows.
Tensor Network::tokens_of(const VlaInputs& in) const {
  std::vector<std::int64_t> tokens;
  for (const auto& prompt : in.prompts) {
    tokens.insert(tokens.end(), prompt.begin(), prompt.end());
    tokens.push_back(c_.stop_token);
  }
  return at::tensor(tokens, at::kLong).to(device_);
}

Rows Network::find_rows(const VlaInputs& in) const {
  Rows r;
  r.n = in.n, r.cameras = in.cameras;
  std::vector<std::int64_t> sizes, token_rows, patch_rows, proprio_rows, used_rows;
  std::vector<std::int64_t> positions, used_positions;
  const std::int64_t patches = in.cameras * c_.patches();
  for (const auto& prompt : in.prompts) {
    const std::int64_t begin = r.rows;
    std::int64_t row = begin;
    token_rows.push_back(row++);
    for (std::int64_t i = 0; i < patches; ++i) patch_rows.push_back(row++);
    if (c_.proprio > 0) proprio_rows.push_back(row++);
    for (std::size_t i = 1; i < prompt.size(); ++i) token_rows.push_back(row++);
    // Each row says the token after it, so that the first action comes from the prompt's last one.
    for (std::int64_t i = 0; i < c_.actions(); ++i) {
      used_rows.push_back(row - 1 + i);
      used_positions.push_back(row - 1 + i - begin);
    }
    row += c_.actions();
    token_rows.push_back(row++);
    for (std::int64_t i = begin; i < row; ++i) positions.push_back(i - begin);
    sizes.push_back(row - begin);
    r.rows = row;
  }
  const auto whole = [&](const std::vector<std::int64_t>& v, at::ScalarType type) {
    return at::tensor(v, type).to(device_);
  };
  r.all = make_lengths(sizes, device_);
  r.used = make_lengths(std::vector<std::int64_t>(static_cast<std::size_t>(in.n), c_.actions()), device_);
  for (std::size_t t = 0; t < 2; ++t) {
    const std::int64_t size = c_.towers[t].prefix() + c_.patches();
    r.images[t] = make_lengths(std::vector<std::int64_t>(static_cast<std::size_t>(in.n * in.cameras), size), device_);
  }
  r.tokens = tokens_of(in), r.token_rows = whole(token_rows, at::kLong);
  r.patch_rows = whole(patch_rows, at::kLong), r.proprio_rows = whole(proprio_rows, at::kLong);
  r.used_rows = whole(used_rows, at::kLong);
  r.positions = whole(positions, at::kInt), r.used_positions = whole(used_positions, at::kInt);
  return r;
}

}  // namespace gipo::vla
