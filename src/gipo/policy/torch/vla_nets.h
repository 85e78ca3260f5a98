#pragma once

#include <cstdint>
#include <vector>

#include "gipo/policy/policy.h"
#include "gipo/vla/torch/vla_network.h"

namespace gipo {

// Observations as the large model takes them.
struct VlaRows {
  std::int64_t rows = 0;
  at::Tensor images;                              // [rows * cameras, image, image, 3] bytes
  at::Tensor proprio;                             // [rows, proprio] float; undefined: none
  std::vector<std::vector<std::int32_t>> tokens;  // [rows]
};
// columns: of the fields of the spec, on the device where the model is; floats: the scaled ones there, [rows,
// observation_size].
VlaRows vla_rows(const ModelSpec& spec, std::span<const std::byte* const> columns, const float* floats,
                 std::int64_t rows, at::Device device);

// The large model as the network of a policy and of its critic: in float on the host, in bfloat16 on a card. What both need of
// rows is computed when they are seen.
class VlaNets {
 public:
  // learned: of the rows that are seen, the first that gradients are asked of.
  VlaNets(const ModelSpec& spec, std::int64_t learned, at::Device device);

  std::int64_t count(Part part) const { return counts_[part == Part::kPolicy ? 0 : 1]; }
  at::ScalarType type() const { return net_.type(); }
  at::TensorOptions options() const { return at::TensorOptions(net_.device()).dtype(net_.type()); }
  // Flat parameters of that type. They stay where they are until others are bound.
  void bind(const at::Tensor& policy, const at::Tensor& critic);

  void see(VlaRows seen);
  const VlaRows& seen() const { return seen_; }
  at::Tensor outputs(std::int64_t rows) const;  // [rows, outputs] float
  at::Tensor values();                          // [rows] float, of all
  // From those by the first outputs and values: flat, of the network's type, valid until the next of the kind.
  const at::Tensor& policy_gradient(const at::Tensor& by_outputs);
  const at::Tensor& value_gradient(const at::Tensor& by_values);

 private:
  ModelSpec spec_;
  std::int64_t learned_, cameras_, actions_, choices_;
  vla::Network net_;
  std::vector<vla::Arrays::Place> places_;
  std::int64_t counts_[2] = {0, 0};
  at::Tensor gradients_[2];  // of the parts

  VlaRows seen_;
  vla::Forward kept_;  // of the first rows
  std::int64_t kept_rows_ = 0;
  at::Tensor hidden_, first_;  // of these [rows * actions, width]; of all [rows, width]
  std::vector<at::Tensor> value_seen_;
};

}  // namespace gipo
