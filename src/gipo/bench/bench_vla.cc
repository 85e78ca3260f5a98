#include <fmt/format.h>

#include <algorithm>

#include "gipo/bench/bench.h"
#include "gipo/bench/clock.h"
#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/policy/torch_policy.h"
#include "gipo/vla/vla_model.h"

namespace gipo {
namespace {

// Samples as a task would give them, of prompts of one length.
class MadeUpSamples {
 public:
  MadeUpSamples(const VlaConfig& c, std::int64_t n, std::int64_t cameras) {
    RandomStream random(7);
    const auto count = static_cast<std::size_t>(n), tokens = count * static_cast<std::size_t>(c.actions());
    images_.resize(count * static_cast<std::size_t>(cameras * c.image * c.image * 3));
    for (std::uint8_t& byte : images_) byte = static_cast<std::uint8_t>(random.next_u32());
    for (std::int64_t i = 0; i < n * c.proprio; ++i) proprio_.push_back(static_cast<float>(random.normal()));
    for (std::size_t i = 0; i < kPromptTokens; ++i) {
      prompt_.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(c.first_action))));
    }
    for (std::size_t i = 0; i < tokens; ++i) {
      actions_.push_back(static_cast<std::int32_t>(random.below(kHeadChoices)));
      behaviour_.push_back(static_cast<float>(-5.5 + 0.1 * random.normal()));
    }
    for (std::size_t i = 0; i < count; ++i) {
      advantage_.push_back(static_cast<float>(random.normal()));
      target_.push_back(static_cast<float>(random.uniform()));
    }
    samples_ = {{n, cameras, images_, proprio_, {}}, actions_, behaviour_, {}, advantage_, {}, target_};
    samples_.inputs.prompts.assign(count, prompt_);
  }

  const VlaSamples& samples() const { return samples_; }

 private:
  static constexpr std::size_t kPromptTokens = 36;
  std::vector<std::uint8_t> images_;
  std::vector<float> proprio_, behaviour_, advantage_, target_;
  std::vector<std::int32_t> prompt_, actions_;
  VlaSamples samples_;
};

double median_of(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct UpdateCase {
  std::string name;
  std::int64_t cameras, batch, rank;
  Recompute recompute;
};

std::vector<BenchRow> measure_update(const std::string& model, const std::string& device, const UpdateCase& u) {
  VlaSetup setup;
  setup.config = vla_preset(model);
  setup.train.train = true;
  setup.train.lora.rank = u.rank;
  setup.device = device;
  setup.recompute = u.recompute;
  const auto large = make_large_model(setup);
  large->fill(1);
  const MadeUpSamples made(setup.config, u.batch, u.cameras);
  const auto update = [&] {
    large->accumulate(made.samples(), {}, u.batch);
    large->step({});
    large->wait();
  };
  for (int i = 0; i < 2; ++i) update();
  static_cast<void>(large->peak_bytes());
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const double begin = steady_time();
    update();
    seconds.push_back(steady_time() - begin);
  }
  std::vector<BenchRow> rows{{u.name, static_cast<double>(u.batch) / median_of(seconds), "samples/s", "", 0}};
  if (const double peak = large->peak_bytes(); peak > 0) {
    rows.push_back({u.name + ", peak", peak / (1024.0 * 1024 * 1024), "GiB", "", 0});
  }
  return rows;
}

std::string inference_name(const std::string& model, int act_bits) {
  return fmt::format("vla {} inference{}", model, act_bits == 8 ? ", act_bits 8" : "");
}

std::vector<BenchRow> measure_inference(const std::string& model, const std::string& device, int act_bits,
                                        const std::vector<std::int64_t>& batches) {
  VlaSetup setup;
  setup.config = vla_preset(model);
  setup.device = device;
  setup.act_bits = act_bits;
  const auto large = make_large_model(setup);
  large->fill(1);
  std::vector<BenchRow> rows;
  for (const std::int64_t batch : batches) {
    const MadeUpSamples made(setup.config, batch, 2);
    std::vector<double> seconds;
    for (int i = 0; i < 13; ++i) {
      const double begin = steady_time();
      large->act(made.samples().inputs);
      if (i >= 3) seconds.push_back(steady_time() - begin);
    }
    const std::string name = fmt::format("{}, two images, batch {}", inference_name(model, act_bits), batch);
    rows.push_back({name, 1e3 * median_of(seconds), "ms", "", 0});
    rows.push_back({name, static_cast<double>(batch) / median_of(seconds), "chunks/s", "", 0});
  }
  return rows;
}

}  // namespace

std::vector<BenchCase> bench_vla() {
  if (torch_version().empty()) throw Error(kAddTorch);
  std::vector<BenchCase> cases;
  const auto add_inference = [&](const std::string& model, const std::string& device, int act_bits,
                                 const std::vector<std::int64_t>& batches) {
    cases.push_back(
        {inference_name(model, act_bits), [=] { return measure_inference(model, device, act_bits, batches); }});
  };
  const auto add_update = [&](const std::string& model, const std::string& device, UpdateCase u) {
    u.name = fmt::format("vla {} {}, {} image{}, batch {}", model, u.rank > 0 ? "LoRA update" : "update", u.cameras,
                         u.cameras == 1 ? "" : "s", u.batch);
    cases.push_back({u.name, [=] { return measure_update(model, device, u); }});
  };
  if (torch_cuda_devices().empty()) {
    add_inference("10m", "cpu", 16, {1, 8});
    add_update("10m", "cpu", {"", 2, 8, 0, {0, 0, 0}});
    return cases;
  }
  // What is kept fills the memory of one H200.
  for (const int act_bits : {16, 8}) add_inference("7b", "cuda", act_bits, {1, 8, 32});
  add_update("7b", "cuda", {"", 2, 16, 0, {0, 0, 5}});
  add_update("7b", "cuda", {"", 1, 28, 0, {0, 0, 5}});
  add_update("7b", "cuda", {"", 2, 32, 32, {0, 0, 0}});
  return cases;
}

}  // namespace gipo
