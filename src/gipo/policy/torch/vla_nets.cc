#include "gipo/policy/torch/vla_nets.h"

#include <algorithm>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/policy/torch/torch_nets.h"
#include "gipo/policy/vla_spec.h"

namespace gipo {
namespace {

using at::Tensor;

VlaSetup setup_of(const ModelSpec& spec, bool learns) {
  VlaSetup setup;
  setup.config = vla_config_of(spec);
  setup.train.train = learns;
  setup.recompute = {0, 0, 0};  // models that are learned this way are small: all is kept
  return setup;
}

// Rows [begin, begin + rows) with the prompts that lie in them.
VlaInputs prompts_of(const VlaRows& seen, std::int64_t cameras, std::int64_t begin, std::int64_t rows) {
  VlaInputs inputs;
  inputs.n = rows;
  inputs.cameras = cameras;
  for (std::int64_t r = begin; r < begin + rows; ++r)
    inputs.prompts.push_back(seen.tokens[static_cast<std::size_t>(r)]);
  return inputs;
}

}  // namespace

VlaRows vla_rows(const ModelSpec& spec, std::span<const std::byte* const> columns, const float* floats,
                 std::int64_t rows, at::Device device) {
  VlaRows seen;
  seen.rows = rows;
  std::vector<Tensor> images;
  for (std::size_t f = 0; f < spec.fields.size(); ++f) {
    if (!spec.fields[f].raw) continue;
    const Tensor field = rows_of(spec.fields[f], columns[f], rows, device);
    if (!is_tokens(spec.fields[f])) {
      images.push_back(field);
      continue;
    }
    const Tensor here = field.to(at::kCPU).contiguous();
    const std::int32_t* at = here.const_data_ptr<std::int32_t>();
    for (std::int64_t r = 0; r < rows; ++r, at += here.size(1)) {
      seen.tokens.emplace_back(at, std::find_if(at, at + here.size(1), [](std::int32_t t) { return t < 0; }));
    }
  }
  seen.images = images.size() == 1 ? images[0] : at::stack(images, 1).flatten(0, 1);
  if (spec.observation_size > 0) {
    seen.proprio = at::from_blob(const_cast<float*>(floats), {rows, static_cast<std::int64_t>(spec.observation_size)},
                                 at::TensorOptions(device).dtype(at::kFloat));
  }
  return seen;
}

VlaNets::VlaNets(const ModelSpec& spec, std::int64_t learned, at::Device device)
    : spec_(spec),
      learned_(learned),
      cameras_(cameras_of(spec)),
      actions_(static_cast<std::int64_t>(spec.distribution.dims())),
      choices_(spec.distribution.choices[0]),
      net_(setup_of(spec, learned > 0), device, device.is_cuda() ? at::kBFloat16 : at::kFloat) {
  for (const VlaTensor& t : net_.tensors()) {
    const std::size_t part = part_of(t) == Part::kPolicy ? 0 : 1;
    places_.push_back({part, counts_[part]});
    counts_[part] += static_cast<std::int64_t>(t.size());
  }
}

void VlaNets::bind(const Tensor& policy, const Tensor& critic) {
  const c10::InferenceMode guard;
  for (const std::size_t part : {0, 1}) {
    if (learned_ > 0 && !gradients_[part].defined()) gradients_[part] = at::zeros({counts_[part]}, options());
  }
  net_.bind({{{policy, gradients_[0]}, {critic, gradients_[1]}}, places_});
}

void VlaNets::see(VlaRows seen) {
  const c10::InferenceMode guard;
  seen_ = std::move(seen);
  kept_rows_ = learned_ > 0 ? std::min(learned_, seen_.rows) : seen_.rows;
  const auto run = [&](vla::Forward& f, std::int64_t begin, std::int64_t rows, bool keep) {
    const VlaInputs inputs = prompts_of(seen_, cameras_, begin, rows);
    net_.check_prompts(inputs);
    f.rows = net_.find_rows(inputs);
    const Tensor images = seen_.images.narrow(0, begin * cameras_, rows * cameras_);
    const Tensor proprio = seen_.proprio.defined() ? seen_.proprio.narrow(0, begin, rows).to(type()) : Tensor();
    f.hidden = net_.run(f, images.contiguous(), proprio, keep);
    return net_.first_rows(f, f.hidden);
  };
  if (learned_ > 0) net_.begin_gradient();
  kept_ = {};
  first_ = run(kept_, 0, kept_rows_, learned_ > 0);
  hidden_ = kept_.hidden;
  if (kept_rows_ == seen_.rows) return;
  vla::Forward rest;  // of which values alone are asked
  first_ = at::cat({first_, run(rest, kept_rows_, seen_.rows - kept_rows_, false)});
}

Tensor VlaNets::outputs(std::int64_t rows) const {
  const c10::InferenceMode guard;
  GIPO_CHECK(rows <= kept_rows_);
  return net_.logits_of(hidden_.narrow(0, 0, rows * actions_)).view({rows, -1}).div_(spec_.options.temperature);
}

Tensor VlaNets::values() {
  const c10::InferenceMode guard;
  value_seen_.clear();
  return net_.values_of(first_, learned_ > 0 ? &value_seen_ : nullptr);
}

const Tensor& VlaNets::policy_gradient(const Tensor& by_outputs) {
  const c10::InferenceMode guard;
  const Tensor by_logits = at::zeros({kept_rows_ * actions_, choices_}, by_outputs.options());
  by_logits.narrow(0, 0, by_outputs.size(0) * actions_).copy_(by_outputs.view({-1, choices_}));
  net_.backward(kept_, net_.head_gradient(kept_, by_logits.div_(spec_.options.temperature)));
  return gradients_[0];
}

const Tensor& VlaNets::value_gradient(const Tensor& by_values) {
  const c10::InferenceMode guard;
  const Tensor by = at::zeros({seen_.rows}, by_values.options());
  by.narrow(0, 0, by_values.size(0)).copy_(by_values);
  net_.value_gradient(value_seen_, by, false);
  return gradients_[1];
}

}  // namespace gipo
