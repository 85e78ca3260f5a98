// Checkpoints of the large model as OpenVLA-OFT's are: config.json, safetensors shards and the index that says which tensor
// is in which.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gipo/io/safetensors.h"
#include "gipo/vla/vla_config.h"

namespace gipo {

class LargeModel;

// A folder that was opened: config and all headers are read and checked, no tensor is. Throws Error naming the file for one
// that is missing, cut or of another architecture.
class VlaCheckpoint {
 public:
  explicit VlaCheckpoint(std::string folder);

  const VlaConfig& config() const { return config_; }
  // Throws Error that names tensors that are missing, not known, or of another shape than the config says. The proprio
  // projector and the value head may be missing as a whole: OpenVLA's own checkpoints have neither.
  void check() const;
  // Every tensor that is there into the model, shard by shard, from the mapped files; adapters are not among them.
  void load(LargeModel& model) const;

  // Where a tensor lies; none: it is not there.
  struct Found {
    const MappedTensors* file;
    const SafeTensors::Entry* entry;
  };
  std::optional<Found> find(const std::string& name) const;
  const std::map<std::string, std::size_t>& shards() const { return shard_of_; }  // by the names in the files

 private:
  std::string folder_;
  VlaConfig config_;
  std::vector<std::unique_ptr<MappedTensors>> files_;
  std::map<std::string, std::size_t> shard_of_;
};

struct VlaWriting {
  bool merged = false;  // adapters added to the weights
  std::uint64_t shard_bytes = 5'000'000'000;
  const VlaCheckpoint* source = nullptr;  // where tensors that nothing is computed from are copied from
};
// A folder that must not be there yet; it appears whole or not at all.
void write_vla_checkpoint(LargeModel& model, const std::string& folder, const VlaWriting& how = {});

// LoRA apart from the model, in PEFT's files: adapter_config.json and adapter_model.safetensors.
void write_adapters(LargeModel& model, const std::string& folder);
void load_adapters(LargeModel& model, const std::string& folder);

// What training needs beside the weights, with a checksum, so that it goes on with the same bytes.
void write_training_state(LargeModel& model, const std::string& path);
void load_training_state(LargeModel& model, const std::string& path);

}  // namespace gipo
