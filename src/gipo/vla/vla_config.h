// The sizes of a policy of OpenVLA-OFT's architecture, the tensors it is made of, and what they need of memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gipo/io/safetensors.h"

namespace gipo {

// A vision transformer. `name`: of its tensors, below vision_backbone.
struct TowerConfig {
  std::string name;
  std::int64_t width, depth, heads, hidden;  // of all `depth` blocks the last one is not run
  std::int64_t registers;                    // with one class token; 0: neither
  bool layer_scale;
  std::array<float, 3> mean, deviation;  // of its pixels, in 0 to 1

  std::int64_t prefix() const { return registers > 0 ? 1 + registers : 0; }
  std::int64_t blocks() const { return depth - 1; }
};

struct VlaConfig {
  std::int64_t image = 224, patch = 14;
  std::array<TowerConfig, 2> towers{
      {{"featurizer", 1024, 24, 16, 4096, 4, true, {0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}},
       {"fused_featurizer", 1152, 27, 16, 4304, 0, false, {0.5F, 0.5F, 0.5F}, {0.5F, 0.5F, 0.5F}}}};
  std::int64_t width = 4096, layers = 32, heads = 32, hidden = 11008;  // of the language model
  std::int64_t vocabulary = 32064, first_action = 31744, choices = 256, stop_token = 2;
  double rms_epsilon = 1e-6, rope_theta = 10000, layer_epsilon = 1e-6;
  std::int64_t chunk = 8, dims = 7;
  std::int64_t proprio = 8;  // 0: no such token
  std::array<std::int64_t, 2> value_hidden{512, 128};
  std::int64_t longest_prompt = 512;  // tokens

  std::int64_t patches() const { return (image / patch) * (image / patch); }  // of one image
  std::int64_t actions() const { return chunk * dims; }                       // tokens of a chunk
  std::int64_t features() const { return towers[0].width + towers[1].width; }
  // Tokens of a sample beside its prompt.
  std::int64_t around_prompt(std::int64_t cameras) const {
    return cameras * patches() + (proprio > 0 ? 1 : 0) + actions() + 1;
  }
};

// "7b", "1b", "10m". Throws Error with the names that are known.
VlaConfig vla_preset(const std::string& name);
// One of the sizes by its key in a config.json. Throws Error with the keys that are known.
void set_vla_size(VlaConfig& config, const std::string& key, const std::string& number);
// Throws Error for sizes that do not fit together.
void check_config(const VlaConfig& config);

// The config.json of a checkpoint. One that this program wrote says every size; OpenVLA's own says which parts it is made
// of, and what is not said is as in the 7B model. Throws Error, beginning with `where`, for another architecture.
VlaConfig parse_vla_config(const std::string& text, const std::string& where);
std::string vla_config_text(const VlaConfig& config);

// LoRA on every product of the language model: W + scale B A.
struct LoraConfig {
  std::int64_t rank = 0;  // 0: none
  double alpha = 0;       // scale = alpha / rank; 0: twice the rank
  double scale() const { return rank == 0 ? 0 : (alpha > 0 ? alpha : 2.0 * static_cast<double>(rank)) / double(rank); }
};

enum class VlaPart { kVision, kProjector, kLanguage, kAdapter, kProprio, kValue };

struct VlaTensor {
  std::string name;
  Shape shape;
  VlaPart part;
  enum class Fill { kNormal, kZero, kOne } fill = Fill::kNormal;  // of a model without a checkpoint

  std::uint64_t size() const;
};
// Every tensor that is computed with, in the order of memory: those that one product takes together follow each other.
std::vector<VlaTensor> vla_tensors(const VlaConfig& config, const LoraConfig& lora = {});
// Whether OpenVLA's checkpoints hold a tensor of this name that nothing here is computed from: the last block of each
// tower, its last norm, its pooling. They are written back from where they were read.
bool is_unused_tensor(const VlaConfig& config, const std::string& name);

struct VlaTrainConfig {
  bool train = false;
  bool frozen_vision = false;
  LoraConfig lora;  // rank > 0: all but adapters, proprio and value stays as it is
};
bool is_trained(const VlaTrainConfig& train, VlaPart part);

}  // namespace gipo
