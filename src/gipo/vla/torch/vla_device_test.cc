// A card's kernels against the host's, and the whole model in bf16 against that in float. Left out where there is no card.
#include <gtest/gtest.h>

#include "gipo/core/random.h"
#include "gipo/vla/torch/torch_graph.h"
#include "gipo/vla/torch/vla_ops.h"
#include "gipo/vla/vla_model.h"

namespace gipo {
namespace {

double relative(const Tensor& card, const Tensor& host) {
  const Tensor a = card.cpu().to(at::kDouble), b = host.to(at::kDouble);
  return ((a - b).norm() / b.norm()).item<double>();
}

class VlaDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (graph_devices().empty()) GTEST_SKIP() << "no CUDA device";
  }
  static Tensor draw(at::IntArrayRef shape) { return at::randn(shape).to(at::kBFloat16); }
  const at::Device card_{"cuda:0"};
};

TEST_F(VlaDevice, NormsAndTheirGradients) {
  for (const std::int64_t width : {64, 1000, 4096, 8192}) {
    const Tensor x = draw({37, width}), y = draw({37, width}), weight = draw({width}), by = draw({37, width});
    const auto [host_sum, host_normed] = add_norm(x, y, weight, 1e-6);
    const auto [sum, normed] = add_norm(x.to(card_), y.to(card_), weight.to(card_), 1e-6);
    EXPECT_LT(relative(sum, host_sum), 1e-6);
    EXPECT_LT(relative(normed, host_normed), 3e-3);
    const Tensor host_by_weight = at::zeros({width}), by_weight = at::zeros({width}, at::TensorOptions(card_));
    const auto [host_by_x, again] = norm_gradient(x, weight, by, y, host_by_weight, 1e-6);
    const auto [by_x, card_again] =
        norm_gradient(x.to(card_), weight.to(card_), by.to(card_), y.to(card_), by_weight, 1e-6);
    EXPECT_LT(relative(by_x, host_by_x), 3e-3);
    EXPECT_LT(relative(card_again, again), 3e-3);
    EXPECT_LT(relative(by_weight, host_by_weight), 1e-5);
  }
}

TEST_F(VlaDevice, RotationsAndGates) {
  const Tensor x = draw({29, 3, 4, 64}), table = rotation_table(100, 64, 10000, at::kCPU);
  const Tensor position = at::arange(29, at::kInt) * 3, turned = x.clone(), card = x.to(card_);
  rotate(turned, 2, position, table, false);
  rotate(card, 2, position.to(card_), table.to(card_), false);
  EXPECT_LT(relative(card, turned), 3e-3);
  EXPECT_TRUE(at::equal(card.cpu().select(1, 2), x.select(1, 2)));
  rotate(card, 2, position.to(card_), table.to(card_), true);
  EXPECT_LT(relative(card, x), 5e-3);
  std::vector<Tensor> parts, card_parts;  // one sequence, heads before rows, with a step between rows
  for (std::int64_t i = 0; i < 3; ++i) {
    parts.push_back(x.select(1, i).unsqueeze(0).transpose(1, 2).contiguous().transpose(1, 2));
    card_parts.push_back(parts.back().to(card_));
  }
  EXPECT_LT(relative(join_rotated(card_parts, 2, position.to(card_), table.to(card_)),
                     join_rotated(parts, 2, position, table)),
            3e-3);

  const Tensor gate_up = draw({29, 192}), by = draw({29, 96}), card_gate_up = gate_up.to(card_);
  EXPECT_LT(relative(gate_product(card_gate_up), gate_product(gate_up)), 3e-3);
  const Tensor product = gate_gradient(gate_up, by), card_product = gate_gradient(card_gate_up, by.to(card_));
  EXPECT_LT(relative(card_product, product), 3e-3);
  EXPECT_LT(relative(card_gate_up, gate_up), 3e-3);
}

TEST_F(VlaDevice, RowsInEightBits) {
  for (const std::int64_t width : {64, 4096, 11008}) {
    const Tensor x = draw({37, width}) * at::logspace(-3, 3, 37).view({37, 1}).to(at::kBFloat16), w = draw({48, width});
    const Fp8 host = make_fp8(37, width, at::kCPU), card = make_fp8(37, width, card_),
              weight = make_fp8(48, width, card_);
    to_fp8(x, host);
    to_fp8(x.to(card_), card);
    EXPECT_LT(relative(card.scale, host.scale), 1e-6);
    const Tensor same = card.values.cpu().view(at::kByte).eq(host.values.view(at::kByte));
    EXPECT_GT(same.to(at::kDouble).mean().item<double>(), 0.999);  // a tie may go the other way where a scale does
    to_fp8(w.to(card_), weight);
    EXPECT_LT(relative(fp8_product(x.to(card_), weight), at::mm(x.to(at::kFloat), w.to(at::kFloat).t())), 0.05);
  }
}

TEST_F(VlaDevice, AttentionOfAnyLengthsAndItsGradient) {
  struct Case {
    std::vector<std::int64_t> queries, keys;
    std::int64_t heads, size;
  };
  for (const Case& c : {Case{{606, 606}, {606, 606}, 2, 128}, Case{{261, 261, 261}, {261, 261, 261}, 3, 64},
                        Case{{256, 256}, {256, 256}, 2, 72}, Case{{56, 56}, {606, 606}, 2, 128},
                        Case{{100, 37, 64}, {100, 37, 64}, 2, 32}}) {
    const Lengths queries = make_lengths(c.queries, at::kCPU), keys = make_lengths(c.keys, at::kCPU);
    const Lengths card_queries = make_lengths(c.queries, card_), card_keys = make_lengths(c.keys, card_);
    const Tensor q = draw({queries.starts.back(), 1, c.heads, c.size}),
                 kv = draw({keys.starts.back(), 2, c.heads, c.size});
    const Tensor by = draw({queries.starts.back(), c.heads, c.size});
    const auto run = [&](const Tensor& q4, const Tensor& kv4, const Tensor& by_out, const Lengths& ql,
                         const Lengths& kl) {
      const Tensor k = kv4.select(1, 0), v = kv4.select(1, 1);
      const Attended a = attend(q4.select(1, 0), k, v, ql, kl);
      const auto [by_q, by_k, by_v] = attend_gradient(by_out, q4.select(1, 0), k, v, a, ql, kl);
      return std::vector<Tensor>{a.out, by_q.reshape({-1, c.heads, c.size}), by_k.reshape({-1, c.heads, c.size}),
                                 by_v.reshape({-1, c.heads, c.size})};
    };
    const auto host = run(q.to(at::kFloat), kv.to(at::kFloat), by.to(at::kFloat), queries, keys);
    const auto card = run(q.to(card_), kv.to(card_), by.to(card_), card_queries, card_keys);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_LT(relative(card[i], host[i]), 0.015)
          << c.queries[0] << " of " << c.keys[0] << " x " << c.size << ": " << i;
    }
  }
}

TEST_F(VlaDevice, TheFusedHead) {
  for (const std::int64_t each : {1, 7, 56}) {
    HeadOptions o;
    o.n = 5, o.each = each, o.temperature = 1.6F, o.entropy_coef = 0.01F, o.weight = 0.2F;
    o.surrogate = Surrogate(SurrogateOptions{}).choice();
    const auto inputs = [&](const Tensor& logits, const Tensor& action, const Tensor& mu, const Tensor& advantage,
                            std::vector<Tensor>& out) {
      for (const std::int64_t width :
           {std::int64_t{56}, std::int64_t{56}, 56 / each, 56 / each, 56 / each, std::int64_t{56 * 256}}) {
        out.push_back(at::empty({5, width}, logits.options()));
      }
      const auto at = [&](std::size_t i) { return out[i].mutable_data_ptr<float>(); };
      run_head(o,
               {logits.const_data_ptr<float>(), action.const_data_ptr<std::int32_t>(), mu.const_data_ptr<float>(),
                nullptr, advantage.const_data_ptr<float>(), nullptr, at(0), at(1), at(2), at(3), at(4), at(5)},
               logits.device());
    };
    const Tensor logits = at::randn({5, 56, 256}) * 2, action = at::randint(0, 256, {5, 56}).to(at::kInt),
                 advantage = at::randn({5});
    const Tensor mu = at::log_softmax(logits / 1.6, -1).gather(2, action.to(at::kLong).unsqueeze(2)).squeeze(2) +
                      at::randn({5, 56}) * 0.3 / std::sqrt(static_cast<double>(each));
    std::vector<Tensor> host, card;
    inputs(logits, action, mu, advantage, host);
    inputs(logits.to(card_), action.to(card_), mu.to(card_), advantage.to(card_), card);
    for (std::size_t i = 0; i < host.size(); ++i)
      EXPECT_LT(relative(card[i], host[i]), i == 2 ? 5e-5 : 1e-5) << each << " " << i;
  }
}

TEST_F(VlaDevice, AdamWOnASplitMaster) {
  const std::int64_t count = 4096;
  const Tensor value = draw({count}), gradient = draw({count}),
               low = at::randint(-32768, 32768, {count}).to(at::kShort);
  const AdamWStep<float> step{0.9F, 0.999F, 1e-8F, 1e-3F, 1.0F, 0.999F, 1.0F};
  std::vector<std::vector<Tensor>> made;
  for (const at::Device device : {at::Device(at::kCPU), card_}) {
    const auto floats = at::TensorOptions(device).dtype(at::kFloat);
    const Tensor v = value.to(device, false, true).clone(), l = low.to(device, false, true).clone(),
                 g = gradient.to(device);
    const Tensor first = at::zeros({count}, floats), second = at::zeros({count}, floats),
                 norm = at::full({}, 64.0, floats);
    for (int i = 0; i < 3; ++i) {
      run_adamw(
          {Value::kBf16, count, v.mutable_data_ptr(), l.mutable_data_ptr<std::int16_t>(), g.const_data_ptr(),
           first.mutable_data_ptr<float>(), second.mutable_data_ptr<float>(), norm.const_data_ptr<float>(), 1.0F, step},
          device);
    }
    const Tensor master = v.cpu().view(at::kShort).to(at::kInt).bitwise_left_shift(16).add(l.cpu()).view(at::kFloat);
    made.push_back({master, first.cpu(), second.cpu()});
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(relative(made[1][i], made[0][i]), 1e-6);
}

TEST_F(VlaDevice, AveragesInTwoHalves) {
  const Tensor value = draw({4096}), average = draw({4096}), low = at::randint(-32768, 32768, {4096}).to(at::kShort);
  const Tensor card = average.to(card_), card_low = low.to(card_);
  run_average(value.to(card_), card, card_low, 0.01);
  run_average(value, average, low, 0.01);
  EXPECT_TRUE(at::equal(card.cpu(), average));
  EXPECT_TRUE(at::equal(card_low.cpu(), low));
}

TEST_F(VlaDevice, TheModelInBf16IsNearThatInFloat) {
  VlaSetup setup;
  setup.config = vla_preset("10m");
  setup.train.train = true;
  const auto host = make_large_model(setup);
  host->fill(1);
  setup.device = "cuda";
  setup.recompute = {2, 2, 1};
  setup.act_bits = 8;
  const auto card = make_large_model(setup);
  for (std::size_t i = 0; i < host->tensors().size(); ++i) {
    std::string bytes;
    host->get_tensor(i, false, [&](std::string_view piece) { bytes += piece; });
    card->set_tensor(i, host->tensor_type(), bytes);
  }
  RandomStream random(4);
  const std::size_t n = 3, tokens = n * 56;
  std::vector<std::uint8_t> images(n * 2 * 112 * 112 * 3);
  for (std::uint8_t& byte : images) byte = static_cast<std::uint8_t>(random.next_u32());
  const std::vector<float> proprio(n * 8, 0.5F), behaviour(tokens, -5.5F), advantage{1, -1, 0.5F}, target{0, 1, 1};
  const std::vector<std::vector<std::int32_t>> prompts{{1, 5, 9}, {1, 7, 8, 20, 30}, {1, 2, 3, 4}};
  std::vector<std::int32_t> actions;
  for (std::size_t i = 0; i < tokens; ++i) actions.push_back(static_cast<std::int32_t>(random.below(256)));
  const VlaSamples samples{
      {3, 2, images, proprio, {prompts[0], prompts[1], prompts[2]}}, actions, behaviour, {}, advantage, {}, target};
  const auto far = [](const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      difference += std::pow(double(a[i]) - double(b[i]), 2), size += std::pow(double(b[i]), 2);
    return std::sqrt(difference / (size + 1e-30));
  };
  const VlaOutputs said = host->infer(samples.inputs), card_said = card->infer(samples.inputs);
  EXPECT_LT(far(card_said.logits, said.logits), 0.03);
  EXPECT_EQ(card->infer(samples.inputs).logits, card_said.logits);
  const VlaOutputs acted = card->act(samples.inputs);
  EXPECT_GT(far(acted.logits, card_said.logits), 1e-3);
  EXPECT_LT(far(acted.logits, card_said.logits), 0.2);
  host->accumulate(samples, {}, 3);
  const VlaFigures figures = card->accumulate(samples, {}, 3);
  double worst = 0;
  for (std::size_t i = 0; i < host->tensors().size(); ++i) {
    const std::vector<float> by = host->gradient(i);
    if (std::ranges::all_of(by, [](float v) { return v == 0; })) continue;
    const double distance = far(card->gradient(i), by);
    EXPECT_LT(distance, 0.3) << host->tensors()[i].name;
    worst = std::max(worst, distance);
  }
  RecordProperty("worst_gradient", std::to_string(worst));
  const double norm = host->step({}), card_norm = card->step({});
  EXPECT_NEAR(card_norm / norm, 1, 0.03);
  EXPECT_LT(far(card->infer(samples.inputs).logits, host->infer(samples.inputs).logits), 0.05);
}

}  // namespace
}  // namespace gipo
