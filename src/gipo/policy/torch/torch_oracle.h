// For tests: policies of small networks, what they see, and the same networks in double, written down a second time, with the
// gradients of libtorch.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <map>

#include "gipo/core/aligned_vector.h"
#include "gipo/core/random.h"
#include "gipo/policy/torch/torch_nets.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {

using torch::Tensor;

inline constexpr std::size_t kRows = 6;

struct Parameters {
  AlignedVector<float> policy, critic;
  ObservationScale scale;
  PolicyParameters<float> view() const { return {policy, critic, &scale}; }
};

inline Parameters first_parameters(const Policy<float>& policy, const ModelSpec& spec, std::uint64_t seed = 1) {
  Parameters p{AlignedVector<float>(values_of(policy.tensors(Part::kPolicy))),
               AlignedVector<float>(values_of(policy.tensors(Part::kCritic))),
               ObservationScale::identity(spec.observation_size)};
  RandomStream random(seed);
  policy.initialise(Part::kPolicy, p.policy, random);
  policy.initialise(Part::kCritic, p.critic, random);
  return p;
}

// A choice of four from an image, a number and something that the critic alone sees.
inline ModelSpec seeing(const std::string& encoder, std::vector<std::int64_t> shape, PolicyOptions options = {}) {
  EnvSpec env;
  env.id = "T";
  env.action = ActionSpace::discrete(4);
  env.fields = {{"image", DType::kUint8, std::move(shape)},
                {"speed", DType::kFloat32, {2}},
                {"place", DType::kInt32, {2}, Role::kPolicy, {50, 7}},
                {"secret", DType::kFloat32, {1}, Role::kCritic}};
  env.observation_size = floats_of(env.fields);
  options.encoder = encoder;
  const std::vector<Encoder> encoders = choose_encoders(encoder, env.fields, true);
  set_encoders(env, encoders);
  return make_model_spec(options, env, encoders);
}

struct Observations {
  std::vector<std::uint8_t> image;
  std::vector<float> speed, secret;
  std::vector<std::int32_t> place;
  std::vector<const std::byte*> columns;

  explicit Observations(const ModelSpec& spec) {
    RandomStream random(2);
    image.resize(kRows * spec.fields[0].values());
    for (auto& v : image) v = static_cast<std::uint8_t>(random.below(256));
    for (std::size_t r = 0; r < kRows; ++r) {
      for (int i = 0; i < 2; ++i) speed.push_back(static_cast<float>(random.normal()));
      place.push_back(static_cast<std::int32_t>(random.below(50)));
      place.push_back(static_cast<std::int32_t>(random.below(7)));
      secret.push_back(static_cast<float>(random.normal()));
    }
    const auto bytes = [](const auto& v) { return reinterpret_cast<const std::byte*>(v.data()); };
    columns = {bytes(image), bytes(speed), bytes(place), bytes(secret)};
  }
};

struct Oracle {
  std::map<std::string, Tensor> p;

  Oracle(const Policy<float>& policy, const Parameters& parameters) {
    for (const Part part : {Part::kPolicy, Part::kCritic}) {
      const AlignedVector<float>& flat = part == Part::kPolicy ? parameters.policy : parameters.critic;
      for (const TensorSlice& s : policy.tensors(part)) {
        std::vector<float> values(flat.begin() + static_cast<std::ptrdiff_t>(s.offset),
                                  flat.begin() + static_cast<std::ptrdiff_t>(s.offset + s.values()));
        p[s.name] = torch::tensor(values).reshape(s.shape).to(torch::kDouble).requires_grad_();
      }
    }
  }
  Tensor conv(const std::string& name, const Tensor& x, int stride, int padding = 0) {
    return torch::conv2d(x, p.at(name + ".weight"), p.at(name + ".bias"), stride, padding);
  }
  Tensor dense(const std::string& name, const Tensor& x) {
    return torch::matmul(x, p.at(name + ".weight").t()) + p.at(name + ".bias");
  }
  Tensor norm(const std::string& name, const Tensor& x) {
    const Tensor mean = x.mean(-1, true), variance = (x - mean).square().mean(-1, true);
    return (x - mean) / (variance + 1e-5).sqrt() * p.at(name + ".weight") + p.at(name + ".bias");
  }
  Tensor image(const std::string& part, const std::string& encoder, Tensor x) {
    const std::string at = part + ".image.";
    if (encoder == "small") return torch::relu(conv(at + "conv0", x, 1)).flatten(1);
    if (encoder == "nature") {
      x = torch::relu(conv(at + "conv0", x, 4));
      x = torch::relu(conv(at + "conv1", x, 2));
      return torch::relu(conv(at + "conv2", x, 1)).flatten(1);
    }
    if (encoder == "impala") {
      for (const std::string stage : {"0", "1", "2"}) {
        x = torch::max_pool2d(conv(at + stage + ".conv", x, 1, 1), 3, 2, 1);
        for (const std::string block : {".0", ".1"}) {
          const Tensor y = conv(at + stage + block + ".conv0", torch::relu(x), 1, 1);
          x = x + conv(at + stage + block + ".conv1", torch::relu(y), 1, 1);
        }
      }
      return torch::relu(x).flatten(1);
    }
    const auto patch = p.at(at + "patch.weight").size(2);
    x = conv(at + "patch", x, static_cast<int>(patch)).flatten(2).transpose(1, 2) + p.at(at + "position");
    for (const std::string block : {"0.", "1."}) {
      const Tensor seen = norm(at + block + "norm1", x);
      const auto heads = [&](const char* name) { return dense(at + block + name, seen).split(16, -1); };
      const auto q = heads("query"), k = heads("key"), v = heads("value");
      std::vector<Tensor> all;
      for (std::size_t h = 0; h < q.size(); ++h) {
        all.push_back(torch::matmul(torch::softmax(torch::matmul(q[h], k[h].transpose(1, 2)) / 4, -1), v[h]));
      }
      x = x + dense(at + block + "out", torch::cat(all, -1));
      x = x + dense(at + block + "down", torch::relu(dense(at + block + "up", norm(at + block + "norm2", x))));
    }
    return norm(at + "norm", x).mean(1);
  }
  Tensor features(const std::string& part, const std::string& encoder, const ModelSpec& spec, const Observations& o) {
    const auto rows = static_cast<std::int64_t>(kRows);
    std::vector<std::int64_t> shape = {rows};
    for (const std::int64_t n : spec.fields[0].shape) shape.push_back(n);
    Tensor x = torch::tensor(std::vector<double>(o.image.begin(), o.image.end()), torch::kDouble).reshape(shape) / 255;
    const ImageShape seen = image_shape(spec.fields[0]);
    x = seen.channels_last ? x.permute({0, 3, 1, 2}) : x.reshape({rows, seen.channels, seen.height, seen.width});
    const Tensor speed = torch::tensor(o.speed).reshape({rows, 2}).to(torch::kDouble);
    const Tensor secret = torch::tensor(o.secret).reshape({rows, 1}).to(torch::kDouble);
    const Tensor place = torch::tensor(o.place).reshape({rows, 2}).to(torch::kLong);
    const Tensor table = p.at(part + ".place.table");
    std::vector<Tensor> all = {speed};
    if (part == "critic") all.push_back(secret);
    all.push_back(image(part, encoder, x));
    all.push_back(table.index({place.select(1, 0)}));
    all.push_back(table.index({place.select(1, 1) + 50}));
    return torch::cat(all, 1);
  }
  Tensor hidden(const std::string& part, Tensor x) {
    x = norm(part + ".0.norm", torch::tanh(dense(part + ".0", x)));
    return dense(part + ".1", x);
  }
};

inline double relative(const std::vector<float>& flat, const TensorSlice& s, const Tensor& wanted) {
  const Tensor whole = wanted.contiguous();
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < s.values(); ++i) {
    const double w = whole.const_data_ptr<double>()[i];
    difference = std::max(difference, std::abs(w - flat[s.offset + i]));
    size = std::max(size, std::abs(w));
  }
  return difference / std::max(size, 1e-3);  // some are zero: a softmax does not see the bias of its keys
}

// Five steps in two sequences, the first after a context of two rows; then what follows each. In double, gate by gate.
struct Remembering {
  static constexpr std::int64_t kWindow = 4, kHeld = kWindow - 1;
  static constexpr std::size_t kSteps = 5, kSeen = 7, kAll = 9;
  const std::vector<Sequence> sequences = {{0, 3, 5, 7, 2}, {3, 2, 6, 9, 0}};
  std::int64_t size;
  ModelSpec spec;
  std::vector<float> rows, state;  // [kAll, 3], [sequences, state_size]

  Remembering(std::int64_t shared, Memory memory) : size(memory == Memory::kGru ? 5 : 8) {
    PolicyOptions options;
    options.hidden = {6, 4};
    options.shared = shared;
    options.memory = memory;
    options.memory_size = size;
    options.memory_window = kWindow;
    EnvSpec env;
    env.id = "T";
    env.action = ActionSpace::discrete(3);
    env.fields = plain_fields(3);
    env.observation_size = 3;
    spec = make_model_spec(options, env);
    RandomStream random(3);
    rows.resize(kAll * 3);
    state.resize(sequences.size() * spec.state_size());
    for (auto* all : {&rows, &state}) {
      for (float& v : *all) v = static_cast<float>(random.normal());
    }
    // Of a window: how many steps are in it.
    for (std::size_t end = spec.memory_state(); memory == Memory::kTransformer && end <= state.size();
         end += spec.memory_state()) {
      state[end - 1] = end <= spec.state_size() ? 2 : 0;
    }
  }
  void seen_by(Policy<float>& policy, const Parameters& parameters) const {
    const auto* column = reinterpret_cast<const std::byte*>(rows.data());
    policy.see(parameters.view(), {{&column, 1}, kSeen, state.data(), sequences});
  }
  // A recurrent layer's step in double: what is seen, and the state before.
  static Tensor cell(Oracle& oracle, const std::string& name, const Tensor& seen, const Tensor& h) {
    const auto gates = [&](const std::string& end, const Tensor& from) {
      const Tensor all = torch::mv(oracle.p.at(name + ".weight_" + end), from);
      return (all + oracle.p.at(name + ".bias_" + end)).chunk(3, 0);
    };
    const auto in = gates("ih", seen), kept = gates("hh", h);
    const Tensor reset = torch::sigmoid(in[0] + kept[0]), update = torch::sigmoid(in[1] + kept[1]);
    return (1 - update) * torch::tanh(in[2] + reset * kept[2]) + update * h;
  }
  // A step of the blocks in double. past: of each block what it was given before, the latest last; gets one more.
  static Tensor blocks(Oracle& oracle, const std::string& memory, Tensor x, std::vector<std::vector<Tensor>>& past) {
    const auto dense = [&](const std::string& name, const Tensor& of) {
      return oracle.dense(name, of.unsqueeze(0))[0];
    };
    x = dense(memory + ".in", x);
    for (std::size_t i = 0; i < past.size(); ++i) {
      const std::string at = memory + "." + std::to_string(i) + ".";
      past[i].push_back(x);
      if (past[i].size() > kWindow) past[i].erase(past[i].begin());
      std::vector<Tensor> keys, values, found;
      for (std::size_t k = 0; k < past[i].size(); ++k) {
        const Tensor seen = oracle.norm(at + "norm1", past[i][k]);
        const auto place = static_cast<std::int64_t>(kWindow - past[i].size() + k);
        keys.push_back(dense(at + "key", seen + oracle.p.at(at + "position")[place]));
        values.push_back(dense(at + "value", seen));
      }
      const Tensor query = dense(at + "query", oracle.norm(at + "norm1", x));
      const std::int64_t width = query.size(0) / 4;
      for (std::int64_t head = 0; head < 4; ++head) {
        const auto of_head = [&](const Tensor& t) { return t.narrow(-1, head * width, width); };
        const Tensor scores = torch::mv(of_head(torch::stack(keys)), of_head(query)) / std::sqrt(double(width));
        found.push_back(torch::mv(of_head(torch::stack(values)).t(), torch::softmax(scores, 0)));
      }
      x = cell(oracle, at + "gate1", torch::relu(dense(at + "out", torch::cat(found))), x);
      const Tensor up = torch::relu(dense(at + "up", oracle.norm(at + "norm2", x)));
      x = cell(oracle, at + "gate2", torch::relu(dense(at + "down", up)), x);
    }
    return x;
  }
  // What the layer with memory makes of rows [0, kSeen), of one part.
  Tensor remembered(Oracle& oracle, const std::string& part) const {
    const Tensor x = torch::tensor(rows).reshape({kAll, 3}).to(torch::kDouble);
    const auto of_part = static_cast<std::int64_t>(spec.memory_state());
    const Tensor before =
        torch::tensor(state).reshape({2, static_cast<std::int64_t>(spec.state_size())}).to(torch::kDouble);
    std::vector<Tensor> after(kSeen);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& s = sequences[i];
      Tensor h = before[static_cast<std::int64_t>(i)].slice(0, part == "policy" ? 0 : of_part).slice(0, 0, of_part);
      std::vector<std::vector<Tensor>> past;
      for (std::int64_t b = 0; b < kMemoryBlocks && spec.options.memory == Memory::kTransformer; ++b) {
        past.emplace_back();
        const auto steps = static_cast<std::int64_t>(h[of_part - 1].item<double>());
        for (std::int64_t k = kHeld - steps; k < kHeld; ++k)
          past[b].push_back(h.narrow(0, (b * kHeld + k) * size, size));
      }
      const auto step = [&](std::size_t row) {
        const Tensor seen = x[static_cast<std::int64_t>(row)];
        h = past.empty() ? cell(oracle, part + ".memory", seen, h) : blocks(oracle, part + ".memory", seen, past);
        return h;
      };
      for (std::size_t r = s.context_begin; r < s.context_begin + s.context; ++r) {
        step(r);
        h = h.detach();
        for (auto& block : past) block.back() = block.back().detach();
      }
      for (std::size_t r = s.begin; r < s.begin + s.length; ++r) after[r] = step(r);
      after[s.after] = step(s.after);
    }
    return torch::stack(after);
  }
};

inline constexpr std::pair<std::int64_t, Memory> kMemories[] = {
    {0, Memory::kGru}, {1, Memory::kGru}, {0, Memory::kTransformer}, {1, Memory::kTransformer}};

}  // namespace gipo
