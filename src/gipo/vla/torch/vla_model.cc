// The large model on libtorch, its gradients written out: what of a layer is kept, and what is computed again, is said here
// and nowhere else.
#include "gipo/vla/vla_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "gipo/core/error.h"
#include "gipo/vla/torch/vla_layers.h"

namespace gipo {
namespace {

using namespace vla;

constexpr std::int64_t kAlign = 8;  // parameters; AdamW's kernel takes as many at a time

// Where what lies in the rows of a batch: for each sample the token that begins a text, patches, proprio, the prompt's other
// tokens, zeros for the actions, the token that ends it.
struct Rows {
  std::int64_t n = 0, cameras = 0, rows = 0;
  Lengths all, used;
  std::array<Lengths, 2> images;                                   // of each tower's tokens
  Tensor tokens, token_rows, patch_rows, proprio_rows, used_rows;  // int64
  Tensor positions, used_positions;                                // int32
};

struct Forward {  // what of a forward the gradient needs
  Rows rows;
  std::array<TowerState, 2> towers;
  std::vector<Tensor> projector, proprio, value;
  std::vector<LayerState> layers;
  Tensor last, hidden;  // before and after the last norm, [n * actions, width]
};

class TorchLargeModel final : public LargeModel {
 public:
  TorchLargeModel(const VlaSetup& setup, at::Device device)
      : LargeModel(setup),
        c_(this->setup().config),
        device_(device),
        type_(device.is_cuda() ? at::kBFloat16 : at::kFloat) {
    const c10::InferenceMode guard;
    if (device.is_cuda() && setup.deterministic) {
      at::globalContext().setDeterministicAlgorithms(true, false);
      at::globalContext().setDeterministicFillUninitializedMemory(false);
    }
    lay_out();
    build();
    const std::int64_t longest = c_.around_prompt(kMostCameras) + c_.longest_prompt;
    table_ = rotation_table(longest, c_.width / c_.heads, c_.rope_theta, device_);
  }

  void fill(std::uint64_t seed) override {
    const c10::InferenceMode guard;
    at::Generator random = at::globalContext().defaultGenerator(device_).clone();
    random.set_current_seed(seed);
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      const Tensor t = view(i, Array::kValue);
      switch (tensors()[i].fill) {
        case VlaTensor::Fill::kNormal:
          t.normal_(0, 0.02, random);
          break;
        case VlaTensor::Fill::kZero:
          t.zero_();
          break;
        case VlaTensor::Fill::kOne:
          t.fill_(1);
          break;
      }
    }
    if (trained_.low.defined()) trained_.low.zero_();
  }

  void set_tensor(std::size_t index, TensorType type, std::string_view bytes) override {
    const c10::InferenceMode guard;
    const at::ScalarType from = type == TensorType::kF32    ? at::kFloat
                                : type == TensorType::kBF16 ? at::kBFloat16
                                                            : at::kHalf;
    const Tensor to = view(index, Array::kValue);
    // copy_ alone reads these bytes.
    const Tensor source = at::from_blob(const_cast<char*>(bytes.data()), {to.numel()}, at::TensorOptions(from));
    const Tensor low = type_ == at::kBFloat16 && is_trained(index) ? view(index, Array::kLow) : Tensor();
    if (!low.defined() || from != at::kFloat) {
      to.view(-1).copy_(source);
      if (low.defined()) low.zero_();
      return;
    }
    const Tensor bits = source.to(device_).view(at::kInt), high = (bits + 0x8000).bitwise_right_shift(16);
    to.view(-1).view(at::kShort).copy_(high);
    low.view(-1).copy_(bits - high.bitwise_left_shift(16));
  }

  TensorType tensor_type() const override { return type_ == at::kFloat ? TensorType::kF32 : TensorType::kBF16; }

  void get_tensor(std::size_t index, bool merged, const std::function<void(std::string_view)>& take) override {
    const c10::InferenceMode guard;
    Tensor value = view(index, Array::kValue);
    if (merged) {
      const auto [a, b] = adapter_of(index);
      if (a.defined()) {
        value = at::addmm(value.to(at::kFloat), b.to(at::kFloat), a.to(at::kFloat), 1, setup().train.lora.scale())
                    .to(type_);
      }
    }
    hand_over(value, take);
  }

  std::vector<float> gradient(std::size_t index) override {
    const c10::InferenceMode guard;
    if (!is_trained(index)) throw Error(tensors()[index].name + " is not trained: it has no gradient");
    return to_host(view(index, Array::kGradient));
  }

  VlaOutputs infer(const VlaInputs& inputs) override {
    const c10::InferenceMode guard;
    check(inputs);
    if (!device_.is_cuda()) {
      Forward f;
      f.rows = find_rows(inputs);
      const Tensor hidden = run(f, images_of(inputs), proprio_of(inputs), false);
      return {to_host(logits_of(hidden)), to_host(values_of(f, hidden, nullptr))};
    }
    Recorded& r = recorded(inputs);
    r.images.copy_(images_of(inputs));
    if (r.proprio.defined()) r.proprio.copy_(proprio_of(inputs));
    r.rows.tokens.copy_(tokens_of(inputs));
    r.work->replay();
    return {to_host(r.logits), to_host(r.values)};
  }

  VlaFigures accumulate(const VlaSamples& s, const VlaObjective& objective, std::int64_t total) override {
    const c10::InferenceMode guard;
    if (!setup().train.train) throw Error("large model: it was made without training");
    check(s.inputs);
    check_samples(s, objective);
    graphs_.clear();  // the memory of recorded inference is needed, and weights are about to change
    if (first_) {
      for (const Tensor& t : cleared_) t.zero_();
    }
    Forward f;
    f.rows = find_rows(s.inputs);
    f.hidden = run(f, images_of(s.inputs), proprio_of(s.inputs), true);
    VlaFigures figures;
    const Tensor by_logits = policy_gradient(f, s, objective, total, figures);
    const Tensor by_hidden = head_gradient(f, by_logits, s, objective, total, figures);
    backward(f, by_hidden);
    first_ = false;
    return figures;
  }

  double step(const VlaStep& step) override {
    const c10::InferenceMode guard;
    GIPO_CHECK(!first_);
    // In pieces, so that places fit into 32 bits.
    Tensor squares = at::zeros({}, at::TensorOptions(device_).dtype(at::kFloat));
    for (const Tensor& piece : trained_.gradient.split(std::int64_t{1} << 28)) {
      squares.add_(at::linalg_vector_norm(piece, 2, std::nullopt, false, at::kFloat).square_());
    }
    const Tensor norm = squares.sqrt_();
    ++steps_;
    for (const Group& group : groups_) {
      const double rate = group.value_head ? step.value_rate : step.rate, n = static_cast<double>(steps_);
      AdamWStep<float> s;
      s.beta1 = static_cast<float>(step.beta1), s.beta2 = static_cast<float>(step.beta2);
      s.epsilon = static_cast<float>(step.epsilon);
      s.rate = static_cast<float>(rate / (1 - std::pow(step.beta1, n)));
      s.second_scale = static_cast<float>(1 / (1 - std::pow(step.beta2, n)));
      s.keep = static_cast<float>(1 - rate * step.weight_decay);
      s.scale = 1;
      const auto at = [&](const Tensor& t) { return t.narrow(0, group.begin, group.end - group.begin); };
      run_adamw({type_ == at::kFloat ? Value::kFloat : Value::kBf16, group.end - group.begin,
                 at(trained_.value).mutable_data_ptr(),
                 trained_.low.defined() ? at(trained_.low).mutable_data_ptr<std::int16_t>() : nullptr,
                 at(trained_.gradient).const_data_ptr(), at(trained_.first).mutable_data_ptr<float>(),
                 at(trained_.second).mutable_data_ptr<float>(), norm.const_data_ptr<float>(),
                 static_cast<float>(step.max_norm), s},
                device_);
    }
    first_ = true;
    const double size = norm.item<float>();
    if (!std::isfinite(size)) --steps_;
    return size;
  }

  void save_state(const std::function<void(std::string_view)>& take) override {
    const c10::InferenceMode guard;
    GIPO_CHECK(first_);
    take({reinterpret_cast<const char*>(&steps_), sizeof steps_});
    each_state([&](const Tensor& t) { hand_over(t, take); });
  }
  void load_state(const std::function<void(char*, std::size_t)>& give) override {
    const c10::InferenceMode guard;
    give(reinterpret_cast<char*>(&steps_), sizeof steps_);
    each_state([&](const Tensor& t) {
      for (const Tensor& piece : t.split(kPiece)) {
        const Tensor host = at::empty(piece.sizes(), at::TensorOptions(piece.scalar_type()));
        give(static_cast<char*>(host.mutable_data_ptr()), host.nbytes());
        piece.copy_(host);
      }
    });
    first_ = true;
  }

  double peak_bytes() override { return device_.is_cuda() ? device_peak_bytes(device_) : 0; }
  void wait() override { device_wait(device_); }

 private:
  static constexpr std::int64_t kMostCameras = 4, kPiece = std::int64_t{1} << 26;
  enum class Array { kValue, kGradient, kLow };
  struct Flat {
    Tensor value, gradient, low, first, second;
  };
  struct Place {
    bool trained;
    std::int64_t begin;
  };
  struct Group {
    std::int64_t begin, end;
    bool value_head;
  };
  struct Recorded {  // inference of one shape
    Tensor images, proprio, logits, values;
    Rows rows;
    std::unique_ptr<RecordedWork> work;
  };

  // Two arrays: of what is trained and of what is not.
  void lay_out() {
    std::array<std::int64_t, 2> size{};
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      const VlaTensor& t = tensors()[i];
      const bool trained = gipo::is_trained(setup().train, t.part);
      std::int64_t& end = size[trained ? 1 : 0];
      places_.push_back({trained, end});
      index_[t.name] = i;
      const std::int64_t begin = end;
      end += (static_cast<std::int64_t>(t.size()) + kAlign - 1) / kAlign * kAlign;
      if (!trained) continue;
      const bool value_head = t.part == VlaPart::kValue;
      if (groups_.empty() || groups_.back().value_head != value_head) groups_.push_back({begin, end, value_head});
      groups_.back().end = end;
    }
    const at::TensorOptions values = at::TensorOptions(device_).dtype(type_);
    frozen_.value = at::zeros({size[0]}, values);
    trained_.value = at::zeros({size[1]}, values);
    if (size[1] == 0) return;
    trained_.gradient = at::zeros({size[1]}, values);
    if (type_ == at::kBFloat16) trained_.low = at::zeros({size[1]}, values.dtype(at::kShort));
    trained_.first = at::zeros({size[1]}, values.dtype(at::kFloat));
    trained_.second = at::zeros({size[1]}, values.dtype(at::kFloat));
  }

  bool is_trained(std::size_t index) const { return places_[index].trained; }
  std::size_t find(const std::string& name) const {
    const auto found = index_.find(name);
    GIPO_CHECK(found != index_.end());
    return found->second;
  }
  // A tensor, or `count` of the same width that follow each other as one.
  Tensor view(std::size_t index, Array array, std::size_t count = 1) const {
    const Place& place = places_[index];
    const Flat& flat = place.trained ? trained_ : frozen_;
    std::vector<std::int64_t> shape(tensors()[index].shape.begin(), tensors()[index].shape.end());
    std::int64_t size = static_cast<std::int64_t>(tensors()[index].size());
    for (std::size_t i = index + 1; i < index + count; ++i) {
      GIPO_CHECK(places_[i].begin == place.begin + size && places_[i].trained == place.trained);
      size += static_cast<std::int64_t>(tensors()[i].size());
      shape[0] += static_cast<std::int64_t>(tensors()[i].shape[0]);
    }
    const Tensor& whole = array == Array::kValue ? flat.value : array == Array::kGradient ? flat.gradient : flat.low;
    return whole.narrow(0, place.begin, size).view(shape);
  }
  Tensor value(const std::string& name, std::size_t count = 1) const { return view(find(name), Array::kValue, count); }
  // Undefined where it is not trained. cleared: it is added to, so that it must be zero before the first time.
  Tensor by(const std::string& name, bool cleared, std::size_t count = 1) {
    const std::size_t index = find(name);
    if (!is_trained(index)) return {};
    const Tensor t = view(index, Array::kGradient, count);
    if (cleared) cleared_.push_back(t);
    return t;
  }

  Linear linear(const std::string& name) {
    return {value(name + ".weight"), value(name + ".bias"), by(name + ".weight", false), by(name + ".bias", true), {}};
  }
  LayerNorm layer_norm(const std::string& name) {
    return {value(name + ".weight"), value(name + ".bias"), by(name + ".weight", true), by(name + ".bias", true),
            c_.layer_epsilon};
  }
  // Several of a layer's products as one, with their adapters.
  Linear products(const std::string& layer, const std::vector<std::string>& names) {
    const auto weight = [&](const std::string& name) { return "language_model.model." + layer + name + ".weight"; };
    Linear l{value(weight(names[0]), names.size()), {}, by(weight(names[0]), false, names.size()), {}, {}};
    if (setup().train.lora.rank == 0) return l;
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
    a.scale = setup().train.lora.scale();
    l.adapter = a;
    return l;
  }
  std::pair<Tensor, Tensor> adapter_of(std::size_t index) const {
    const std::string& name = tensors()[index].name;
    if (setup().train.lora.rank == 0 || !name.starts_with("language_model.model.layers.")) return {};
    const std::string stem = "base_model.model." + name.substr(0, name.rfind(".weight"));
    const auto a = index_.find(stem + ".lora_A.weight"), b = index_.find(stem + ".lora_B.weight");
    if (a == index_.end()) return {};
    return {view(a->second, Array::kValue), view(b->second, Array::kValue)};
  }

  void build() {
    for (std::size_t t = 0; t < 2; ++t) build_tower(towers_[t], c_.towers[t]);
    for (const char* name : {"projector.fc1", "projector.fc2", "projector.fc3"})
      projector_.layers.push_back(linear(name));
    if (c_.proprio > 0) proprio_.layers = {linear("proprio_projector.fc1"), linear("proprio_projector.fc2")};
    for (const char* name : {"value_head.fc1", "value_head.fc2", "value_head.fc3"})
      value_.layers.push_back(linear(name));
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

  void build_tower(Tower& tower, const TowerConfig& config) {
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

  // ---- Inputs

  void check(const VlaInputs& in) const {
    const auto want = [](bool good, const std::string& what) {
      if (!good) throw Error("large model: " + what);
    };
    want(in.n > 0, "no samples");
    want(in.cameras >= 1 && in.cameras <= kMostCameras,
         fmt::format("{} cameras: wanted 1 to {}", in.cameras, kMostCameras));
    const std::int64_t bytes = in.n * in.cameras * c_.image * c_.image * 3;
    want(static_cast<std::int64_t>(in.images.size()) == bytes,
         fmt::format("{} bytes of images: wanted {} for {} samples of {} images of {} x {} x 3", in.images.size(),
                     bytes, in.n, in.cameras, c_.image, c_.image));
    want(static_cast<std::int64_t>(in.proprio.size()) == in.n * c_.proprio,
         fmt::format("{} numbers of proprio: wanted {} for each of {} samples", in.proprio.size(), c_.proprio, in.n));
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

  void check_samples(const VlaSamples& s, const VlaObjective& objective) const {
    const auto n = static_cast<std::size_t>(s.inputs.n), tokens = n * static_cast<std::size_t>(c_.actions());
    const Surrogate surrogate(objective.surrogate);
    const auto want = [](std::size_t there, std::size_t wanted, const char* what) {
      if (there != wanted) throw Error(fmt::format("large model: {} {}: wanted {}", there, what, wanted));
    };
    want(s.actions.size(), tokens, "actions");
    want(s.behaviour.size(), tokens, "log-probs of the behaviour");
    if (surrogate.centred()) want(s.centre.size(), tokens, "log-probs of the centre");
    want(s.advantage.size(), n, "advantages");
    if (surrogate.reads_age()) want(s.age.size(), n, "ages");
    want(s.target.size(), n, "targets of the value");
    for (const std::int32_t action : s.actions) {
      if (action < 0 || action >= kHeadChoices)
        throw Error(fmt::format("large model: action {}: wanted 0 to 255", action));
    }
    if (!(objective.temperature > 0)) {
      throw Error(fmt::format("large model: temperature {}: wanted above 0", objective.temperature));
    }
  }

  template <class T>
  Tensor on_device(std::span<const T> values, at::IntArrayRef shape, at::ScalarType type) const {
    return at::from_blob(const_cast<T*>(values.data()), shape, at::TensorOptions(type)).to(device_, false, true);
  }
  Tensor images_of(const VlaInputs& in) const {
    return on_device(in.images, {in.n * in.cameras, c_.image, c_.image, 3}, at::kByte);
  }
  Tensor proprio_of(const VlaInputs& in) const {
    return c_.proprio > 0 ? on_device(in.proprio, {in.n, c_.proprio}, at::kFloat).to(type_) : Tensor();
  }

  // Those of all samples in the order of their rows.
  Tensor tokens_of(const VlaInputs& in) const {
    std::vector<std::int64_t> tokens;
    for (const auto& prompt : in.prompts) {
      tokens.insert(tokens.end(), prompt.begin(), prompt.end());
      tokens.push_back(c_.stop_token);
    }
    return at::tensor(tokens, at::kLong).to(device_);
  }

  Rows find_rows(const VlaInputs& in) const {
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

  Recorded& recorded(const VlaInputs& in) {
    std::vector<std::size_t> shape{static_cast<std::size_t>(in.n), static_cast<std::size_t>(in.cameras)};
    for (const auto& prompt : in.prompts) shape.push_back(prompt.size());
    if (const auto found = graphs_.find(shape); found != graphs_.end()) return found->second;
    if (graphs_.size() >= kMostGraphs) graphs_.clear();
    Recorded& r = graphs_[shape];
    r.rows = find_rows(in);
    r.images = images_of(in);
    r.proprio = proprio_of(in);
    device_wait(device_);
    r.work = record_work([this, &r] {
      const c10::InferenceMode guard;
      Forward f;
      f.rows = r.rows;
      const Tensor hidden = run(f, r.images, r.proprio, false);
      r.logits = logits_of(hidden);
      r.values = values_of(f, hidden, nullptr);
    });
    return r;
  }

  // ---- Forward

  // The hidden states that logits come from, [n * actions, width].
  Tensor run(Forward& f, const Tensor& images, const Tensor& proprio, bool keep) const {
    const Rows& rows = f.rows;
    std::vector<Tensor> features(2);
    const auto tower = [&](std::size_t t) {
      features[t] = run_tower(towers_[t], f.towers[t], images, rows.images[t], keep && trains_vision());
    };
    if (keep) {
      tower(0), tower(1);
    } else {
      run_both([&] { tower(0); }, [&] { tower(1); }, device_);
    }
    const bool projector_trained = projector_.layers[0].by_weight.defined();
    const Tensor patches = projector_.forward(at::cat(features, 1), keep && projector_trained ? &f.projector : nullptr);
    Tensor x = at::zeros({rows.rows, c_.width}, embedding_.options());
    x.index_copy_(0, rows.token_rows, embedding_.index_select(0, rows.tokens));
    x.index_copy_(0, rows.patch_rows, patches);
    if (proprio.defined()) {
      x.index_copy_(0, rows.proprio_rows, proprio_.forward(proprio, keep ? &f.proprio : nullptr));
    }
    Tensor y;
    if (keep) f.layers.resize(layers_.size());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      LayerState s;
      std::tie(x, y) = run_layer(i, s, x, y, rows);
      if (keep) f.layers[i] = kept(i, std::move(s));
    }
    auto [last, hidden] = add_norm(x, y, norm_, c_.rms_epsilon);
    if (keep) f.last = last;
    return hidden;
  }

  Tensor patches_of(const Tensor& images) const {  // [images * patches, 3, patch * patch], bytes
    const std::int64_t side = c_.image / c_.patch;
    return images.view({-1, side, c_.patch, side, c_.patch, 3})
        .permute({0, 1, 3, 5, 2, 4})
        .reshape({-1, 3, c_.patch * c_.patch});
  }

  // Features of the patches, [images * patches, width].
  Tensor run_tower(const Tower& tower, TowerState& state, const Tensor& images, const Lengths& lengths,
                   bool keep) const {
    const std::int64_t count = images.size(0), width = tower.config->width, prefix = tower.config->prefix();
    const Tensor patches = patches_of(images).to(at::kFloat).mul_(tower.scale).add_(tower.shift).flatten(1).to(type_);
    Tensor x = tower.patch.forward(patches).view({count, c_.patches(), width}).add_(tower.position);
    if (prefix > 0) {
      x = at::cat({tower.prefix[0].expand({count, -1, -1}), tower.prefix[1].expand({count, -1, -1}), x}, 1);
    }
    const std::int64_t tokens = prefix + c_.patches();
    x = x.reshape({count * tokens, width});
    if (keep) {
      state.patches = patches;
      state.blocks.resize(tower.blocks.size());
    }
    for (std::size_t i = 0; i < tower.blocks.size(); ++i) {
      BlockState s;
      const Tensor begin = x;
      x = run_block(tower, i, s, x, lengths);
      if (!keep) continue;
      if (!keeps(setup().recompute.blocks, i)) s = {};
      if (!tower.config->layer_scale) s.y1 = s.y2 = Tensor();
      s.x = begin;
      state.blocks[i] = std::move(s);
    }
    return x.view({count, tokens, width}).narrow(1, prefix, c_.patches()).reshape({-1, width});
  }

  Tensor run_block(const Tower& tower, std::size_t index, BlockState& s, const Tensor& x,
                   const Lengths& lengths) const {
    const Block& b = tower.blocks[index];
    const std::int64_t heads = tower.config->heads, size = tower.config->width / heads;
    s.x = x;
    Tensor normed;
    const auto norm = [&](const LayerNorm& n, const Tensor& in, Tensor& mean, Tensor& inverse) {
      std::array<Tensor, 3> out = n.forward(in);
      normed = out[0], mean = out[1], inverse = out[2];
    };
    norm(b.norm1, x, s.mean1, s.inverse1);
    s.qkv = b.qkv.forward(normed).view({-1, 3, heads, size});
    s.attended = attend(s.qkv.select(1, 0), s.qkv.select(1, 1), s.qkv.select(1, 2), lengths, lengths);
    s.y1 = b.proj.forward(s.attended.out.view({-1, tower.config->width}));
    s.middle = b.scale1.defined() ? at::addcmul(x, s.y1, b.scale1) : at::add(x, s.y1);
    norm(b.norm2, s.middle, s.mean2, s.inverse2);
    s.hidden = b.fc1.forward(normed);
    s.y2 = b.fc2.forward(at::gelu(s.hidden));
    return b.scale2.defined() ? at::addcmul(s.middle, s.y2, b.scale2) : at::add(s.middle, s.y2);
  }

  // x and what is to be added to it, of the layer before; and of this one.
  std::pair<Tensor, Tensor> run_layer(std::size_t index, LayerState& s, const Tensor& x, const Tensor& y,
                                      const Rows& rows) const {
    Tensor normed;
    std::tie(s.x, normed) = add_norm(x, y, layers_[index].norm1, c_.rms_epsilon);
    const Tensor product = gate_product(run_to_product(index, s, normed, rows));
    return {s.middle, layers_[index].down.forward(product)};
  }

  bool is_last(std::size_t index) const { return index + 1 == layers_.size(); }

  // From the first norm to gate and up.
  const Tensor& run_to_product(std::size_t index, LayerState& s, const Tensor& normed, const Rows& rows) const {
    const Layer& l = layers_[index];
    const std::int64_t size = c_.width / c_.heads;
    Tensor x = s.x;
    if (is_last(index)) {
      s.q = l.q.forward(normed.index_select(0, rows.used_rows)).view({-1, 1, c_.heads, size});
      s.kv = l.kv.forward(normed).view({-1, 2, c_.heads, size});
      rotate(s.q, 1, rows.used_positions, table_, false);
      rotate(s.kv, 1, rows.positions, table_, false);
      s.attended = attend(s.q.select(1, 0), s.kv.select(1, 0), s.kv.select(1, 1), rows.used, rows.all);
      x = x.index_select(0, rows.used_rows);
    } else {
      s.qkv = l.qkv.forward(normed).view({-1, 3, c_.heads, size});
      rotate(s.qkv, 2, rows.positions, table_, false);
      s.attended = attend(s.qkv.select(1, 0), s.qkv.select(1, 1), s.qkv.select(1, 2), rows.all, rows.all);
    }
    Tensor normed2;
    std::tie(s.middle, normed2) =
        add_norm(x, l.o.forward(s.attended.out.view({-1, c_.width})), l.norm2, c_.rms_epsilon);
    s.gate_up = l.gate_up.forward(normed2);
    return s.gate_up;
  }

  static bool keeps(std::int64_t recomputed, std::size_t index) {
    return recomputed >= 0 && static_cast<std::int64_t>(index) >= recomputed;
  }
  LayerState kept(std::size_t index, LayerState s) const {
    const Recompute& r = setup().recompute;
    if (!keeps(r.layers, index)) {
      LayerState only;
      only.x = s.x;
      return only;
    }
    if (!keeps(r.products < 0 ? -1 : r.layers + r.products, index)) s.gate_up = Tensor();
    return s;
  }

  Tensor logits_of(const Tensor& hidden) const { return at::mm(hidden.to(at::kFloat), head_.to(at::kFloat).t()); }
  Tensor first_rows(const Forward& f, const Tensor& hidden) const {
    return hidden.view({f.rows.n, c_.actions(), c_.width}).select(1, 0);
  }
  Tensor values_of(const Forward& f, const Tensor& hidden, std::vector<Tensor>* seen) const {
    return value_.forward(first_rows(f, hidden), seen).to(at::kFloat).view(-1);
  }

  // ---- Gradients

  bool trains_vision() const { return towers_[0].patch.by_weight.defined(); }

  // By the logits; the figures of the policy.
  Tensor policy_gradient(const Forward& f, const VlaSamples& s, const VlaObjective& objective, std::int64_t total,
                         VlaFigures& figures) const {
    const Surrogate surrogate(objective.surrogate);
    const std::int64_t n = s.inputs.n, tokens = c_.actions();
    HeadOptions o;
    o.n = n, o.tokens = tokens;
    o.each = objective.ratio == ChunkRatio::kToken ? 1 : objective.ratio == ChunkRatio::kAction ? c_.dims : tokens;
    o.temperature = static_cast<float>(objective.temperature),
    o.entropy_coef = static_cast<float>(objective.entropy_coef);
    o.weight = 1 / static_cast<float>(total);
    o.surrogate = surrogate.choice();
    o.centred = surrogate.centred(), o.importance_max = static_cast<float>(surrogate.importance_max());
    const std::int64_t ratios = tokens / o.each;
    const Tensor logits = logits_of(f.hidden), by_logits = at::empty_like(logits);
    const auto given = [&](std::span<const float> v) {
      return v.empty() ? Tensor() : on_device(v, {n, static_cast<std::int64_t>(v.size()) / n}, at::kFloat);
    };
    const auto made = [&](std::int64_t width) { return at::empty({n, width}, logits.options()); };
    const auto data = [](const Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; };
    const Tensor action = on_device(s.actions, {n, tokens}, at::kInt), behaviour = given(s.behaviour);
    const Tensor centre = given(o.centred ? s.centre : std::span<const float>()), advantage = given(s.advantage);
    const Tensor age = given(surrogate.reads_age() ? s.age : std::span<const float>());
    const Tensor log_prob = made(tokens), entropy = made(tokens), log_ratio = made(ratios), multiplier = made(ratios),
                 loss = made(ratios);
    HeadArrays a{data(logits),
                 action.const_data_ptr<std::int32_t>(),
                 data(behaviour),
                 data(centre),
                 data(advantage),
                 data(age),
                 log_prob.mutable_data_ptr<float>(),
                 entropy.mutable_data_ptr<float>(),
                 log_ratio.mutable_data_ptr<float>(),
                 multiplier.mutable_data_ptr<float>(),
                 loss.mutable_data_ptr<float>(),
                 nullptr};
    if (o.surrogate.kind == SurrogateKind::kM2po) {
      run_head(o, a, device_);
      Tensor about = log_ratio;
      if (o.centred) about = about - (centre - behaviour).view({n, ratios, o.each}).sum(2);
      o.kept = largest_kept<float>(to_host(about), o.surrogate.first);
    }
    a.d_logits = by_logits.mutable_data_ptr<float>();
    run_head(o, a, device_);
    figures.policy_loss = loss.sum().item<double>() / static_cast<double>(n);
    figures.entropy = entropy.mean().item<double>();
    figures.log_prob = to_host(log_prob), figures.log_ratio = to_host(log_ratio),
    figures.multiplier = to_host(multiplier);
    return by_logits;
  }

  // By the hidden states; those of the action head and of the value head are added.
  Tensor head_gradient(Forward& f, const Tensor& by_logits, const VlaSamples& s, const VlaObjective& objective,
                       std::int64_t total, VlaFigures& figures) const {
    const Tensor values = values_of(f, f.hidden, &f.value);
    const Tensor error = values - on_device(s.target, {s.inputs.n}, at::kFloat);
    figures.value_loss = error.square().mean().item<double>();
    figures.values = to_host(values);
    if (by_head_.defined()) by_head_.add_(at::mm(by_logits.t(), f.hidden.to(at::kFloat)));
    Tensor by_hidden = at::mm(by_logits, head_.to(at::kFloat)).to(type_);
    const Tensor by_values = error.mul(2 * objective.value_coef / static_cast<double>(total)).view({-1, 1}).to(type_);
    const Tensor by_first = value_.gradient(by_values, f.value, objective.value_reaches_trunk, first_);
    if (objective.value_reaches_trunk) first_rows(f, by_hidden).add_(by_first);
    return by_hidden;
  }

  void backward(Forward& f, const Tensor& by_hidden) const {
    const Rows& rows = f.rows;
    Tensor by = norm_gradient(f.last, norm_, by_hidden, {}, by_norm_, c_.rms_epsilon).first;
    for (std::size_t i = layers_.size(); i-- > 0;) {
      by = layer_gradient(i, f.layers[i], by, rows);
      f.layers[i] = {};
    }
    if (!f.proprio.empty()) proprio_.gradient(by.index_select(0, rows.proprio_rows), f.proprio, false, first_);
    if (by_embedding_.defined()) by_embedding_.index_put_({rows.tokens}, by.index_select(0, rows.token_rows), true);
    if (f.projector.empty()) return;
    const Tensor by_features =
        projector_.gradient(by.index_select(0, rows.patch_rows), f.projector, trains_vision(), first_);
    by = Tensor();
    std::int64_t at = 0;
    for (std::size_t t = 0; trains_vision() && t < 2; ++t) {
      const std::int64_t width = towers_[t].config->width;
      tower_gradient(towers_[t], f.towers[t], by_features.narrow(1, at, width), rows.images[t]);
      at += width;
    }
  }

  Tensor layer_gradient(std::size_t index, LayerState& s, const Tensor& by_out, const Rows& rows) const {
    const Layer& l = layers_[index];
    if (!s.middle.defined()) {
      run_to_product(index, s, add_norm(s.x, {}, l.norm1, c_.rms_epsilon).second, rows);
    } else if (!s.gate_up.defined()) {
      s.gate_up = l.gate_up.forward(add_norm(s.middle, {}, l.norm2, c_.rms_epsilon).second);
    }
    const Tensor product = gate_gradient(s.gate_up, l.down.input_gradient(by_out));
    l.down.weight_gradient(by_out, product, first_);
    auto [by_middle, normed2] =
        norm_gradient(s.middle, l.norm2, l.gate_up.input_gradient(s.gate_up), by_out, l.by_norm2, c_.rms_epsilon);
    l.gate_up.weight_gradient(s.gate_up, normed2, first_);
    s.gate_up = s.middle = normed2 = Tensor();

    const Tensor by_attended = l.o.input_gradient(by_middle).view({-1, c_.heads, c_.width / c_.heads});
    l.o.weight_gradient(by_middle, s.attended.out.view({-1, c_.width}), first_);
    if (is_last(index)) return last_gradient(l, s, by_attended, by_middle, rows);
    const auto [by_q, by_k, by_v] = attend_gradient(by_attended, s.qkv.select(1, 0), s.qkv.select(1, 1),
                                                    s.qkv.select(1, 2), s.attended, rows.all, rows.all);
    const Tensor flat = join_rotated({by_q, by_k, by_v}, 2, rows.positions, table_).view({-1, 3 * c_.width});
    const auto [by_x, normed] =
        norm_gradient(s.x, l.norm1, l.qkv.input_gradient(flat), by_middle, l.by_norm1, c_.rms_epsilon);
    l.qkv.weight_gradient(flat, normed, first_);
    return by_x;
  }

  Tensor last_gradient(const Layer& l, const LayerState& s, const Tensor& by_attended, const Tensor& by_middle,
                       const Rows& rows) const {
    const auto [by_q, by_k, by_v] = attend_gradient(by_attended, s.q.select(1, 0), s.kv.select(1, 0), s.kv.select(1, 1),
                                                    s.attended, rows.used, rows.all);
    const Tensor flat_q = join_rotated({by_q}, 1, rows.used_positions, table_).view({-1, c_.width});
    const Tensor flat_kv = join_rotated({by_k, by_v}, 1, rows.positions, table_).view({-1, 2 * c_.width});
    // No row is used twice, so that the order of additions does not matter.
    const Tensor by_normed = l.kv.input_gradient(flat_kv).index_add_(0, rows.used_rows, l.q.input_gradient(flat_q));
    const Tensor by_sum = at::zeros_like(by_normed).index_copy_(0, rows.used_rows, by_middle);
    const auto [by_x, normed] = norm_gradient(s.x, l.norm1, by_normed, by_sum, l.by_norm1, c_.rms_epsilon);
    l.q.weight_gradient(flat_q, normed.index_select(0, rows.used_rows), first_);
    l.kv.weight_gradient(flat_kv, normed, first_);
    return by_x;
  }

  void tower_gradient(const Tower& tower, TowerState& state, const Tensor& by_features, const Lengths& lengths) const {
    const std::int64_t width = tower.config->width, prefix = tower.config->prefix();
    const Tensor in_images = by_features.reshape({-1, c_.patches(), width});
    Tensor by = prefix > 0 ? at::constant_pad_nd(in_images, {0, 0, prefix, 0}) : in_images;
    by = by.reshape({-1, width});
    for (std::size_t i = tower.blocks.size(); i-- > 0;) {
      by = block_gradient(tower, i, state.blocks[i], by, lengths);
      state.blocks[i] = {};
    }
    by = by.view({-1, prefix + c_.patches(), width});
    if (prefix > 0) {
      tower.by_prefix[0].add_(by.narrow(1, 0, 1).sum(0, true));
      tower.by_prefix[1].add_(by.narrow(1, 1, prefix - 1).sum(0, true));
      by = by.narrow(1, prefix, c_.patches());
    }
    tower.by_position.add_(by.sum(0, true));
    tower.patch.weight_gradient(by.reshape({-1, width}), state.patches, first_);
  }

  Tensor block_gradient(const Tower& tower, std::size_t index, BlockState& s, const Tensor& by_out,
                        const Lengths& lengths) const {
    const Block& b = tower.blocks[index];
    const std::int64_t heads = tower.config->heads, width = tower.config->width;
    if (!s.middle.defined()) run_block(tower, index, s, Tensor(s.x), lengths);
    const auto scaled = [](const Tensor& by, const Tensor& y, const Tensor& scale, const Tensor& by_scale) {
      if (!scale.defined()) return by;
      if (by_scale.defined()) by_scale.add_(at::mul(by, y).sum(0));
      return at::mul(by, scale);
    };
    const auto normed = [](const LayerNorm& n, const Tensor& x) { return n.forward(x)[0]; };
    const Tensor by_y2 = scaled(by_out, s.y2, b.scale2, b.by_scale2);
    b.fc2.weight_gradient(by_y2, at::gelu(s.hidden), first_);
    const Tensor by_hidden = at::gelu_backward(b.fc2.input_gradient(by_y2), s.hidden);
    b.fc1.weight_gradient(by_hidden, normed(b.norm2, s.middle), first_);
    const Tensor by_middle =
        b.norm2.gradient(b.fc1.input_gradient(by_hidden), s.middle, s.mean2, s.inverse2).add_(by_out);
    const Tensor by_y1 = scaled(by_middle, s.y1, b.scale1, b.by_scale1);
    b.proj.weight_gradient(by_y1, s.attended.out.view({-1, width}), first_);
    const Tensor by_attended = b.proj.input_gradient(by_y1).view({-1, heads, width / heads});
    const auto [by_q, by_k, by_v] = attend_gradient(by_attended, s.qkv.select(1, 0), s.qkv.select(1, 1),
                                                    s.qkv.select(1, 2), s.attended, lengths, lengths);
    const Tensor by_qkv = join_rotated({by_q, by_k, by_v}, 0, {}, {}).view({-1, 3 * width});
    b.qkv.weight_gradient(by_qkv, normed(b.norm1, s.x), first_);
    return b.norm1.gradient(b.qkv.input_gradient(by_qkv), s.x, s.mean1, s.inverse1).add_(by_middle);
  }

  // ---- Bytes

  static std::vector<float> to_host(const Tensor& t) {
    const Tensor host = t.to(at::kCPU, at::kFloat).contiguous();
    const float* const data = host.const_data_ptr<float>();
    return {data, data + host.numel()};
  }
  static void hand_over(const Tensor& t, const std::function<void(std::string_view)>& take) {
    for (const Tensor& piece : t.reshape(-1).split(kPiece)) {
      const Tensor host = piece.cpu().contiguous();
      take({static_cast<const char*>(host.const_data_ptr()), host.nbytes()});
    }
  }
  void each_state(const std::function<void(const Tensor&)>& f) const {
    for (const Tensor& t : {trained_.low, trained_.first, trained_.second}) {
      if (t.defined()) f(t);
    }
  }

  static constexpr std::size_t kMostGraphs = 8;
  const VlaConfig& c_;
  at::Device device_;
  at::ScalarType type_;
  Flat frozen_, trained_;
  std::vector<Place> places_;  // of each of tensors()
  std::map<std::string, std::size_t> index_;
  std::vector<Group> groups_;
  std::vector<Tensor> cleared_;
  std::int64_t steps_ = 0;
  bool first_ = true;  // no gradient yet

  std::array<Tower, 2> towers_;
  Mlp projector_, proprio_, value_;
  Tensor embedding_, by_embedding_, norm_, by_norm_, head_, by_head_, table_;
  std::vector<Layer> layers_;
  std::map<std::vector<std::size_t>, Recorded> graphs_;
};

}  // namespace

std::unique_ptr<LargeModel> make_large_model(const VlaSetup& setup) {
  check_config(setup.config);
  const at::Device device = find_device(setup.device);
  if (device.is_cuda()) {
    const VlaMemory memory = vla_memory(setup.config, setup.train, true);
    const double there = device_bytes(device);
    if (memory.sum() > there) {
      throw Error(fmt::format("large model: {} has {:.1f} GiB free, and {} are needed before any activation{}",
                              setup.device, there / (1024.0 * 1024 * 1024), memory.words(),
                              setup.train.train && setup.train.lora.rank == 0 ? "; LoRA needs less" : ""));
    }
  }
  return std::make_unique<TorchLargeModel>(setup, device);
}

}  // namespace gipo
