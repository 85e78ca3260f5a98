// A policy of OpenVLA-OFT's architecture: images, a proprioceptive state and an instruction in, a chunk of actions out, each
// of them a choice among 256; trained by the surrogates of objective/. Which sizes it has, its config says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gipo/objective/surrogate.h"
#include "gipo/vla/vla_config.h"
#include "gipo/vla/vla_terms.h"

namespace gipo {

class RankGroup;

// How much of a gradient is computed from what the forward kept, and how much of the forward is run again: more memory or
// more time. Language layers from the first on: so many run again in whole, the next so many from their gate and up products
// on. Blocks of both towers: so many from the first on. -1: all.
struct Recompute {
  std::int64_t layers = -1, products = 0, blocks = -1;
};

struct VlaSetup {
  VlaConfig config;
  VlaTrainConfig train;
  std::string device = "cpu";  // cpu: all in float; cuda, cuda:1: in bf16
  Recompute recompute;
  int act_bits = 16;           // 8: act takes the language model's products in 8-bit floats
  bool average = false;        // a moving average of what is trained is kept; not with ranks
  bool deterministic = false;  // on a card: gradients whose bytes are the same each time
  bool record = true;  // on a card: inference of a shape is recorded, which is worth while for weights that stay
  // That train it together, each with its samples: every rank has the weights, and a share of what AdamW keeps. All ranks then
  // call norms, step, save_state and load_state at once. Must outlive the model.
  RankGroup* ranks = nullptr;
};

// Bytes on the device, and the arithmetic in words.
struct VlaMemory {
  double weights = 0, gradients = 0, master = 0, moments = 0, average = 0, acting = 0;
  double sum() const { return weights + gradients + master + moments + average + acting; }
  std::string words() const;  // "weights 13.7 GiB + ..."
};
VlaMemory vla_memory(const VlaSetup& setup);

// Spans are the caller's. A prompt is the tokens of one sample, its first the one that begins a text.
struct VlaInputs {
  std::int64_t n = 0, cameras = 1;
  std::span<const std::uint8_t> images;  // [n, cameras, image, image, 3]
  std::span<const float> proprio;        // [n, proprio]
  std::vector<std::span<const std::int32_t>> prompts;
};

struct VlaOutputs {
  std::vector<float> logits;  // [n, tokens of a chunk, 256], not yet divided by the temperature
  std::vector<float> values;  // [n]
};

struct VlaSamples {
  VlaInputs inputs;
  std::span<const std::int32_t> actions;          // [n, tokens] in 0 to 255
  std::span<const float> behaviour, centre;       // [n, tokens] log-probs; the second where the surrogate is centred
  std::span<const float> advantage, age, target;  // [n]; age where the surrogate reads it
};

struct VlaObjective {
  SurrogateOptions surrogate;
  ChunkRatio ratio = ChunkRatio::kToken;
  double temperature = 1.6, entropy_coef = 0, value_coef = 0.5;
  bool value_reaches_trunk = false;  // whether the value's gradient goes on into the language model
};

struct VlaFigures {
  double policy_loss = 0, value_loss = 0, entropy = 0;  // means over the samples
  std::vector<float> log_prob, log_ratio, multiplier;   // [n, tokens], [n, ratios], [n, ratios]
  std::vector<float> values;                            // [n]
};

struct VlaStep {
  double rate = 1e-5, value_rate = 3e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0, max_norm = 1;
  bool apart = false;  // the value head's gradient is clipped by its own norm
  double average = 1;  // what the newest weights come to count in the average; while there are few, each counts more
};

class LargeModel {
 public:
  virtual ~LargeModel() = default;
  const VlaSetup& setup() const { return setup_; }
  const std::vector<VlaTensor>& tensors() const { return tensors_; }  // in the order of memory

  virtual void fill(std::uint64_t seed) = 0;  // weights of a model that has not learned anything
  // A tensor by its place in tensors(), from bytes of type F32, BF16 or F16 that stay the caller's.
  virtual void set_tensor(std::size_t index, TensorType type, std::string_view bytes) = 0;
  virtual TensorType tensor_type() const = 0;  // of what get_tensor gives
  // Its bytes in pieces. merged: with its adapter added in. As all that is const, also while another thread computes.
  virtual void get_tensor(std::size_t index, bool merged, const std::function<void(std::string_view)>& take) const = 0;
  virtual std::vector<float> gradient(std::size_t index) = 0;  // as accumulated so far

  // Throws Error for inputs that do not fit: sizes, tokens out of range, a prompt that is too long.
  virtual VlaOutputs infer(const VlaInputs& inputs) = 0;
  // The same for those who act, as exact as act_bits says: their log-probs are those of the policy that acted, whatever it is.
  virtual VlaOutputs act(const VlaInputs& inputs) = 0;
  // The average begins with the weights as they are; each step then moves it. infer_average: infer with it.
  virtual void begin_average() = 0;
  virtual VlaOutputs infer_average(const VlaInputs& inputs) = 0;
  // Adds the gradient of the loss of these samples, of an update's `total` samples.
  virtual VlaFigures accumulate(const VlaSamples& samples, const VlaObjective& objective, std::int64_t total) = 0;
  // The same for losses that others know: by the outputs that infer would give.
  virtual void accumulate(const VlaInputs& inputs, std::span<const float> by_logits,
                          std::span<const float> by_values) = 0;
  // Of the gradient so far, of all ranks: of all but the value head, and of that.
  virtual std::array<double, 2> norms() = 0;
  virtual void drop_gradient() = 0;  // the next one begins anew
  // AdamW with the gradient so far, which is cleared. The norm of the gradient; where that is not finite nothing else is done.
  virtual double step(const VlaStep& step) = 0;

  // What AdamW keeps, and of bf16 parameters the low halves of their masters: so many bytes, in pieces; and back. Of ranks the
  // first alone is given them, and asked for them; the others then have its weights, too.
  virtual std::size_t state_bytes() const = 0;
  virtual void save_state(const std::function<void(std::string_view)>& take) const = 0;
  virtual void load_state(const std::function<void(char* out, std::size_t size)>& give) = 0;

  virtual double peak_bytes() = 0;  // of the device's memory since the last call; 0: not known
  virtual void wait() = 0;          // until the device has done all

 protected:
  explicit LargeModel(VlaSetup setup)
      : setup_(std::move(setup)), tensors_(vla_tensors(setup_.config, setup_.train.lora)) {}

 private:
  VlaSetup setup_;
  std::vector<VlaTensor> tensors_;
};

// Throws Error, with the arithmetic, where the device's memory does not hold it.
std::unique_ptr<LargeModel> make_large_model(const VlaSetup& setup);

// The chunk with a choice for each token, drawn from the logits; greedy where random is null. log_prob: of each choice.
class RandomStream;
void choose_chunk(std::span<const float> logits, double temperature, RandomStream* random,
                  std::span<std::int32_t> action, std::span<float> log_prob);

}  // namespace gipo
