#include "gipo/policy/torch_policy.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>

#include "gipo/core/aligned_vector.h"
#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/policy/device_networks.h"
#include "gipo/policy/torch/torch_nets.h"

namespace gipo {
namespace {

using torch::Tensor;

constexpr std::size_t kRows = 6;

struct Parameters {
  AlignedVector<float> policy, critic;
  ObservationScale scale;
  PolicyParameters<float> view() const { return {policy, critic, &scale}; }
};

Parameters first_parameters(const Policy<float>& policy, const ModelSpec& spec, std::uint64_t seed = 1) {
  Parameters p{AlignedVector<float>(values_of(policy.tensors(Part::kPolicy))),
               AlignedVector<float>(values_of(policy.tensors(Part::kCritic))),
               ObservationScale::identity(spec.observation_size)};
  RandomStream random(seed);
  policy.initialise(Part::kPolicy, p.policy, random);
  policy.initialise(Part::kCritic, p.critic, random);
  return p;
}

// A choice of four from an image, a number and something that the critic alone sees.
ModelSpec seeing(const std::string& encoder, std::vector<std::int64_t> shape, PolicyOptions options = {}) {
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

// The same networks in double, written down a second time, with the gradients of libtorch.
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

double relative(const std::vector<float>& flat, const TensorSlice& s, const Tensor& wanted) {
  const Tensor whole = wanted.contiguous();
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < s.values(); ++i) {
    const double w = whole.const_data_ptr<double>()[i];
    difference = std::max(difference, std::abs(w - flat[s.offset + i]));
    size = std::max(size, std::abs(w));
  }
  return difference / std::max(size, 1e-3);  // some are zero: a softmax does not see the bias of its keys
}

class TorchEncoders : public testing::TestWithParam<std::pair<const char*, std::vector<std::int64_t>>> {};

TEST_P(TorchEncoders, ValuesAndGradientsAreThoseOfTheSameNetworkInDouble) {
  const auto& [encoder, shape] = GetParam();
  PolicyOptions options;
  options.hidden = {16};
  options.layer_norm = true;
  const ModelSpec spec = seeing(std::string("image=") + encoder, shape, options);
  const auto policy = make_torch_policy(spec, {kRows, kRows});
  Parameters parameters = first_parameters(*policy, spec);
  RandomStream random(5);
  for (float& v : parameters.policy) v += static_cast<float>(0.02 * random.normal());  // outputs that differ
  const Observations seen(spec);
  policy->see(parameters.view(), {seen.columns, kRows});
  policy->forward(kRows);

  Oracle oracle(*policy, parameters);
  const Tensor logits = oracle.hidden("policy", oracle.features("policy", encoder, spec, seen));
  const Tensor log_p = torch::log_softmax(logits, -1);
  std::vector<float> action(kRows), log_prob(kRows), entropy(kRows), d_log_prob(kRows);
  for (std::size_t r = 0; r < kRows; ++r) {
    action[r] = static_cast<float>(r % 4);
    d_log_prob[r] = static_cast<float>(random.normal());
  }
  policy->log_prob(action.data(), log_prob.data());
  policy->entropy(entropy.data());
  Tensor loss = torch::zeros({}, torch::kDouble);
  for (std::int64_t r = 0; r < static_cast<std::int64_t>(kRows); ++r) {
    const auto i = static_cast<std::size_t>(r);
    const Tensor row = log_p[r], h = -(row.exp() * row).sum();
    EXPECT_NEAR(log_prob[i], row[r % 4].item<double>(), 1e-5);
    EXPECT_NEAR(entropy[i], h.item<double>(), 1e-5);
    loss = loss + d_log_prob[i] * row[r % 4] - 0.1 * h;
  }
  std::vector<float> gradient(parameters.policy.size());
  PolicyLoss<float> of;
  of.d_log_prob = d_log_prob.data();
  of.entropy_coef = 0.1f;
  policy->policy_gradient(action.data(), of, gradient);
  loss.backward();
  for (const TensorSlice& s : policy->tensors(Part::kPolicy)) {
    EXPECT_LT(relative(gradient, s, oracle.p.at(s.name).grad()), 1e-4) << s.name;
  }

  const float* values = policy->values();
  const Tensor v = oracle.hidden("critic", oracle.features("critic", encoder, spec, seen)).squeeze(1);
  std::vector<float> d_values(kRows, 0.0f), critic_gradient(parameters.critic.size());
  for (std::size_t r = 0; r + 1 < kRows; ++r) d_values[r] = static_cast<float>(random.normal());
  Tensor value_loss = torch::zeros({}, torch::kDouble);
  for (std::size_t r = 0; r < kRows; ++r) {
    EXPECT_NEAR(values[r], v[static_cast<std::int64_t>(r)].item<double>(), 1e-4);
    value_loss = value_loss + d_values[r] * v[static_cast<std::int64_t>(r)];
  }
  policy->value_gradient(d_values.data(), kRows - 1, critic_gradient);
  value_loss.backward();
  for (const TensorSlice& s : policy->tensors(Part::kCritic)) {
    EXPECT_LT(relative(critic_gradient, s, oracle.p.at(s.name).grad()), 1e-4) << s.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, TorchEncoders,
                         testing::Values(std::pair{"small", std::vector<std::int64_t>{10, 10, 4}},
                                         std::pair{"nature", std::vector<std::int64_t>{2, 44, 40}},
                                         std::pair{"impala", std::vector<std::int64_t>{18, 15, 3}},
                                         std::pair{"vit", std::vector<std::int64_t>{16, 24}}));

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

constexpr std::pair<std::int64_t, Memory> kMemories[] = {
    {0, Memory::kGru}, {1, Memory::kGru}, {0, Memory::kTransformer}, {1, Memory::kTransformer}};

TEST(TorchMemory, GradientsThroughTimeAreThoseOfTheSameLayerInDouble) {
  for (const auto& [shared, memory] : kMemories) {
    const Remembering seen(shared, memory);
    const auto policy = make_torch_policy(seen.spec, {2 * kRows, Remembering::kSteps});
    Parameters parameters = first_parameters(*policy, seen.spec);
    RandomStream random(5);
    for (auto* all : {&parameters.policy, &parameters.critic}) {
      for (float& v : *all) v += static_cast<float>(0.1 * random.normal());
    }
    seen.seen_by(*policy, parameters);
    policy->forward(Remembering::kSteps);
    Oracle oracle(*policy, parameters);
    Tensor trunk = seen.remembered(oracle, "policy");
    trunk = torch::tanh(oracle.dense("policy.0", trunk));
    const Tensor logits = oracle.dense("policy.2", torch::tanh(oracle.dense("policy.1", trunk)));
    const Tensor log_p = torch::log_softmax(logits, -1);
    std::vector<float> action(Remembering::kSteps), log_prob(action.size()), d_log_prob(action.size());
    Tensor loss = torch::zeros({}, torch::kDouble);
    for (std::size_t r = 0; r < action.size(); ++r) action[r] = static_cast<float>(r % 3);
    policy->log_prob(action.data(), log_prob.data());
    for (std::size_t r = 0; r < action.size(); ++r) {
      const Tensor wanted = log_p[static_cast<std::int64_t>(r)][static_cast<std::int64_t>(r % 3)];
      EXPECT_NEAR(log_prob[r], wanted.item<double>(), 1e-5) << r;
      d_log_prob[r] = static_cast<float>(random.normal());
      loss = loss + d_log_prob[r] * wanted;
    }
    std::vector<float> gradient(parameters.policy.size());
    PolicyLoss<float> of;
    of.d_log_prob = d_log_prob.data();
    policy->policy_gradient(action.data(), of, gradient);
    loss.backward();
    for (const TensorSlice& s : policy->tensors(Part::kPolicy)) {
      EXPECT_LT(relative(gradient, s, oracle.p.at(s.name).grad()), 1e-4) << s.name;
    }

    const float* values = policy->values();
    const std::string layers[] = {"critic.0", "critic.1", "critic.2"};
    Tensor v = shared > 0 ? trunk.detach() : torch::tanh(oracle.dense(layers[0], seen.remembered(oracle, "critic")));
    v = oracle.dense(layers[2 - shared], torch::tanh(oracle.dense(layers[1 - shared], v))).squeeze(1);
    std::vector<float> d_values(Remembering::kSteps), critic_gradient(parameters.critic.size());
    Tensor value_loss = torch::zeros({}, torch::kDouble);
    for (std::size_t r = 0; r < Remembering::kSeen; ++r) {
      const Tensor wanted = v[static_cast<std::int64_t>(r)];
      EXPECT_NEAR(values[r], wanted.item<double>(), 1e-5) << r;
      if (r >= d_values.size()) continue;
      d_values[r] = static_cast<float>(random.normal());
      value_loss = value_loss + d_values[r] * wanted;
    }
    policy->value_gradient(d_values.data(), d_values.size(), critic_gradient);
    value_loss.backward();
    for (const TensorSlice& s : policy->tensors(Part::kCritic)) {
      EXPECT_LT(relative(critic_gradient, s, oracle.p.at(s.name).grad()), 1e-4) << s.name;
    }
  }
}

// An actor sees one row at a time, a learner all of them.
TEST(TorchMemory, StepByStepIsTheSameAsWhole) {
  for (const auto& [shared, memory] : kMemories) {
    const Remembering seen(shared, memory);
    const auto whole = make_torch_policy(seen.spec, {2 * kRows, Remembering::kSteps});
    const auto single = make_torch_policy(seen.spec, {1});
    const Parameters parameters = first_parameters(*whole, seen.spec);
    seen.seen_by(*whole, parameters);
    whole->forward(Remembering::kSteps);
    const float *outputs = whole->distribution().outputs, *values = whole->values();
    std::vector<float> state(seen.state.begin(),
                             seen.state.begin() + static_cast<std::ptrdiff_t>(seen.spec.state_size()));
    for (const std::size_t row : {7, 8, 0, 1, 2, 5}) {
      const auto* column = reinterpret_cast<const std::byte*>(&seen.rows[row * 3]);
      single->see(parameters.view(), {{&column, 1}, 1, state.data()});
      single->forward(1);
      if (row < Remembering::kSeen) {
        EXPECT_NEAR(single->values()[0], values[row], 1e-6) << row;
      }
      for (std::size_t k = 0; k < 3 && row < Remembering::kSteps; ++k) {
        EXPECT_NEAR(single->distribution().outputs[k], outputs[row * 3 + k], 1e-6) << row;
      }
      single->next_state(state.data());
    }
  }
}

// What a learner on a device calls, with buffers of the host.
TEST(TorchDeviceNetworks, AreThoseOfThePolicy) {
  PolicyOptions options;
  options.hidden = {16, 12};
  for (const auto& [shared, kind] : kMemories) {
    for (const bool memory : {false, true}) {
      options.shared = shared;
      const Remembering remembering(shared, kind);
      const ModelSpec spec = memory ? remembering.spec : seeing("image=nature", {2, 44, 40}, options);
      const std::size_t steps = memory ? Remembering::kSteps : kRows - 1;
      const std::size_t rows = memory ? Remembering::kSeen : kRows;
      const PolicyRoom room{2 * kRows, steps};
      const auto policy = make_torch_policy(spec, room);
      Parameters parameters = first_parameters(*policy, spec);
      RandomStream random(5);
      for (float& v : parameters.policy) v += static_cast<float>(0.05 * random.normal());
      AlignedVector<float> average = parameters.policy;
      for (float& v : average) v += static_cast<float>(0.05 * random.normal());

      // The floats that are not for encoders, as a learner encodes them.
      const Observations seen(spec.has_raw() ? spec : seeing("image=nature", {2, 44, 40}));
      std::vector<float> floats = remembering.rows;
      if (!memory) {
        floats.resize(kRows * spec.observation_size);
        encode(spec.fields, seen.columns, kRows, floats.data());
        policy->see(parameters.view(), {seen.columns, rows});
      } else {
        remembering.seen_by(*policy, parameters);
      }
      policy->forward(steps);

      const auto outputs = spec.distribution.outputs();
      std::vector<float> found(steps * outputs), found_average(found.size()), values(rows), d_outputs(found.size()),
          d_values(steps), policy_gradient(parameters.policy.size()), critic_gradient(parameters.critic.size());
      DeviceBuffers buffers{parameters.policy.data(), parameters.critic.data(),
                            average.data(),           policy_gradient.data(),
                            critic_gradient.data(),   found.data(),
                            found_average.data(),     values.data(),
                            d_outputs.data(),         d_values.data()};
      const auto networks = make_device_networks(spec, room, buffers, nullptr);
      DeviceInput input{floats.data(), seen.columns, rows, nullptr, {}};
      if (memory) {
        input.raw.resize(1);
        input.state = remembering.state.data();
        input.sequences = remembering.sequences;
      }
      networks->forward(input, true);
      std::vector<float> action(steps, 1), d_log_prob(steps), wanted(parameters.policy.size()),
          wanted_critic(parameters.critic.size());
      for (std::size_t r = 0; r < steps; ++r) {
        d_log_prob[r] = static_cast<float>(random.normal());
        d_values[r] = static_cast<float>(random.normal());
        float sum = 0;
        for (std::size_t k = 0; k < outputs; ++k) sum += std::exp(found[r * outputs + k]);
        for (std::size_t k = 0; k < outputs; ++k) {
          EXPECT_EQ(found[r * outputs + k], policy->distribution().outputs[r * outputs + k]);
          d_outputs[r * outputs + k] =
              d_log_prob[r] * ((k == 1 ? 1.0f : 0.0f) - std::exp(found[r * outputs + k]) / sum);
        }
      }
      EXPECT_NE(found, found_average);
      const float* of_policy = policy->values();
      for (std::size_t r = 0; r < rows; ++r) EXPECT_EQ(values[r], of_policy[r]);
      PolicyLoss<float> loss;
      loss.d_log_prob = d_log_prob.data();
      policy->policy_gradient(action.data(), loss, wanted);
      policy->value_gradient(d_values.data(), steps, wanted_critic);
      networks->backward(true);
      EXPECT_EQ(critic_gradient, wanted_critic);
      for (std::size_t k = 0; k < wanted.size(); ++k) EXPECT_NEAR(policy_gradient[k], wanted[k], 1e-5) << k;
      // The average's own outputs are those of a policy with its parameters.
      parameters.policy = average;
      if (!memory) policy->see(parameters.view(), {seen.columns, rows});
      if (memory) remembering.seen_by(*policy, parameters);
      policy->forward(steps);
      for (std::size_t k = 0; k < found.size(); ++k) EXPECT_EQ(found_average[k], policy->distribution().outputs[k]);
    }
  }
}

// Where parameters lie changes nothing: a run that was resumed has them elsewhere.
// On every CUDA device of this machine, with what a device may round otherwise.
TEST(TorchDevices, ComputeWhatTheProcessorComputes) {
  if (torch_cuda_devices().empty()) GTEST_SKIP() << "no CUDA device, or built without CUDA";
  PolicyOptions options;
  options.hidden = {16};
  const ModelSpec spec = seeing("image=nature", {2, 44, 40}, options);
  const auto here = make_torch_policy(spec, {2 * kRows, kRows}),
             there = make_torch_policy(spec, {2 * kRows, kRows, true, "cuda"});
  Parameters parameters = first_parameters(*here, spec);
  RandomStream random(5);
  for (float& v : parameters.policy) v += static_cast<float>(0.02 * random.normal());
  const Observations seen(spec);
  for (int again = 0; again < 3; ++again) {
    std::vector<float> action(kRows, 1), d_log_prob(kRows), d_values(kRows), log_prob[2], gradient[2], values[2];
    for (std::size_t r = 0; r < kRows; ++r) d_log_prob[r] = d_values[r] = static_cast<float>(random.normal());
    for (const int i : {0, 1}) {
      Policy<float>& policy = i == 0 ? *here : *there;
      policy.see(parameters.view(), {seen.columns, kRows});
      policy.forward(kRows);
      log_prob[i].resize(kRows);
      policy.log_prob(action.data(), log_prob[i].data());
      const float* const found = policy.values();
      values[i].assign(found, found + kRows);
      PolicyLoss<float> of;
      of.d_log_prob = d_log_prob.data();
      gradient[i].resize(parameters.policy.size());
      policy.policy_gradient(action.data(), of, gradient[i]);
      std::vector<float> critic(parameters.critic.size());
      policy.value_gradient(d_values.data(), kRows, critic);
      gradient[i].insert(gradient[i].end(), critic.begin(), critic.end());
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      EXPECT_NEAR(log_prob[0][r], log_prob[1][r], 5e-3);
      EXPECT_NEAR(values[0][r], values[1][r], 5e-3);
    }
    double difference = 0, size = 0;
    for (std::size_t k = 0; k < gradient[0].size(); ++k) {
      difference += std::pow(gradient[0][k] - gradient[1][k], 2);
      size += std::pow(gradient[0][k], 2);
    }
    EXPECT_LT(std::sqrt(difference / size), 1e-2);
    for (float& v : parameters.policy) v += static_cast<float>(0.01 * random.normal());  // as an update does
    for (float& v : parameters.critic) v += static_cast<float>(0.01 * random.normal());
  }
}

TEST(TorchDevices, OneThatIsNotThereIsNamed) {
  EXPECT_NO_THROW(check_torch_device("cpu"));
  for (const char* device : {"cuda:77", "cuda:x", "tpu"}) EXPECT_THROW(check_torch_device(device), Error) << device;
}

TEST(TorchVersion, AnotherThanItWasBuiltWithIsNamed) {
  EXPECT_EQ(torch_version_found(), torch_version());
  EXPECT_NO_THROW(check_torch_version(torch_version()));
  for (const char* other : {"1.13.1", "2.1.0", "one without a version"}) {
    EXPECT_THROW(check_torch_version(other), Error) << other;
  }
}

TEST(TorchDevices, TooLittleMemoryIsNamedWithWhatWasAskedAndWhatIsFree) {
  const auto full = [] {
    throw c10::OutOfMemoryError(
        {__func__, __FILE__, __LINE__},
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 "
        "GiB of which 3.00 GiB is free. Of the allocated memory 130 GiB is allocated by PyTorch");
  };
  try {
    on_device(torch::Device("cuda:0"), full);
    FAIL();
  } catch (const RunError& e) {
    EXPECT_STREQ(
        e.what(),
        "learner.device = \"cuda:0\" has not enough memory: Tried to allocate 20.00 GiB. GPU 0 has a total "
        "capacity of 139.80 GiB of which 3.00 GiB is free. Lower learner.batch_size or env.count; what the run "
        "has saved stays as it is");
  }
  EXPECT_EQ(on_device(torch::Device("cpu"), [] { return 3; }), 3);
}

// What the two kinds make of plain vectors, with layers of each sort.
TEST(TorchPolicy, OfVectorsIsTheMlp) {
  for (const std::int64_t shared : {0, 1}) {
    for (const FirstWeights init : {FirstWeights::kOrthogonal, FirstWeights::kUniform}) {
      PolicyOptions options;
      options.hidden = {12, 9};
      options.layer_norm = true;
      options.shared = shared;
      options.init = init;
      EnvSpec env;
      env.id = "T";
      env.action = ActionSpace::box({-1, -2}, {1, 2});
      env.fields = plain_fields(5);
      env.observation_size = 5;
      const ModelSpec spec = make_model_spec(options, env);
      const auto torch = make_torch_policy(spec, {kRows, kRows}), mlp = make_policy<float>(spec, {kRows, kRows});
      const Parameters first = first_parameters(*torch, spec), other = first_parameters(*mlp, spec);
      EXPECT_EQ(first.policy, other.policy);
      EXPECT_EQ(first.critic, other.critic);
      for (const Part part : {Part::kPolicy, Part::kCritic}) {
        const auto one = torch->tensors(part), two = mlp->tensors(part);
        ASSERT_EQ(one.size(), two.size());
        for (std::size_t i = 0; i < one.size(); ++i) {
          EXPECT_EQ(one[i].name, two[i].name);
          EXPECT_EQ(one[i].offset, two[i].offset);
          EXPECT_EQ(one[i].shape, two[i].shape);
        }
      }
      RandomStream random(9);
      std::vector<float> rows(5 * kRows), action(2 * kRows), d(2 * kRows), d_values(kRows);
      for (auto* v : {&rows, &action, &d, &d_values}) {
        for (float& x : *v) x = static_cast<float>(random.normal());
      }
      const std::byte* columns[] = {reinterpret_cast<const std::byte*>(rows.data())};
      std::vector<std::vector<float>> found[2];
      for (const bool second : {false, true}) {
        Policy<float>& policy = second ? *mlp : *torch;
        std::vector<float> log_prob(2 * kRows), gradient(first.policy.size()), critic(first.critic.size());
        policy.see(first.view(), {columns, kRows});
        policy.forward(kRows);
        policy.log_prob(action.data(), log_prob.data());
        const float* v = policy.values();
        const std::vector<float> values(v, v + kRows);
        PolicyLoss<float> loss;
        loss.d_log_prob = d.data();
        policy.policy_gradient(action.data(), loss, gradient);
        policy.value_gradient(d_values.data(), kRows, critic);
        found[second] = {log_prob, values, gradient, critic};
      }
      for (std::size_t i = 0; i < found[0].size(); ++i) {
        for (std::size_t k = 0; k < found[0][i].size(); ++k) {
          EXPECT_NEAR(found[0][i][k], found[1][i][k], 2e-5 * (1 + std::abs(found[1][i][k]))) << i << ' ' << k;
        }
      }
    }
  }
}

TEST(TorchPolicy, WhatDoesNotFitIsNamed) {
  const auto complaint = [](const std::string& encoder, std::vector<std::int64_t> shape) {
    try {
      seeing(encoder, std::move(shape));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(complaint("auto", {84, 84, 4}), "");
  EXPECT_EQ(
      complaint("image=nature", {10, 10, 4}),
      "policy.encoder: nature does not fit the field image of shape (10, 10, 4): a layer of 4 x 4 has no room on 1 x "
      "1 values");
  EXPECT_EQ(
      complaint("speed=nature", {84, 84, 4}),
      "policy.encoder: nature does not fit the field speed, float32 of shape (2): wanted an image: bytes or float32 "
      "of two or three dimensions");
  EXPECT_EQ(complaint("picture=nature", {84, 84, 4}),
            "policy.encoder: picture=nature: wanted FIELD=WORD with a field of image, speed, place, secret");
  EXPECT_EQ(
      complaint("resnet", {84, 84, 4}),
      "policy.encoder: resnet is no encoder; known: auto, floats, small, nature, impala, vit, embedding, openvla_oft");
}

}  // namespace
}  // namespace gipo
