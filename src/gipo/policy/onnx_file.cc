#include "gipo/policy/onnx_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "gipo/policy/onnx_graph.h"
#include "gipo/policy/policy.h"

namespace gipo {
namespace {

std::string scaled_observation(OnnxGraph& g, const ObservationScale& scale, std::size_t read) {
  const auto first = [read](const std::vector<float>& all) {
    return std::vector(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(read));
  };
  std::string x = g.node("Sub", {"observation", g.constant("observation.mean", first(scale.mean))});
  x = g.node("Mul", {x, g.constant("observation.inverse_std", first(scale.inverse_std))});
  if (!std::isfinite(scale.limit)) return x;
  const float low = -scale.limit;
  return g.node("Clip", {x, g.constant<float>("observation.low", {}, {&low, 1}),
                         g.constant<float>("observation.high", {}, {&scale.limit, 1})});
}

std::string as_float(OnnxGraph& g, const std::string& x) {
  return g.node("Cast", {x}, {onnx_whole("to", static_cast<int>(OnnxElement::kFloat))});
}

// The fields that encoders read, each an input of its own, as the encoder takes it.
std::vector<std::string> raw_fields(OnnxGraph& g, const ModelSpec& spec) {
  std::vector<std::string> all(spec.fields.size());
  for (std::size_t f = 0; f < spec.fields.size(); ++f) {
    const Field& field = spec.fields[f];
    if (!field.raw || field.role != Role::kPolicy) continue;
    OnnxDims dims = {kOnnxRows};
    dims.insert(dims.end(), field.shape.begin(), field.shape.end());
    const bool bytes = field.dtype == DType::kUint8;
    g.input(field.name,
            bytes                   ? OnnxElement::kUint8
            : field.choices.empty() ? OnnxElement::kFloat
                                    : OnnxElement::kInt64,
            dims);
    if (!field.choices.empty()) {
      const std::int64_t rows[] = {0, -1};
      all[f] = g.node("Reshape", {field.name, g.constant<std::int64_t>(field.name + ".rows", {2}, rows)});
      continue;
    }
    std::string x = bytes ? as_float(g, field.name) : field.name;
    const float white = 1.0f / 255;
    if (field.image()) x = g.node("Mul", {x, g.constant<float>(field.name + ".white", {}, {&white, 1})});
    const ImageShape image = image_shape(field);
    if (image.channels_last) {
      x = field.stack > 1 ? g.node("Transpose", {x}, {onnx_wholes("perm", {0, 1, 4, 2, 3})})
                          : g.node("Transpose", {x}, {onnx_wholes("perm", {0, 3, 1, 2})});
    }
    const std::int64_t shape[] = {-1, image.channels, image.height, image.width};
    all[f] = g.node("Reshape", {x, g.constant<std::int64_t>(field.name + ".shape", {4}, shape)});
  }
  return all;
}

std::string concatenated(OnnxGraph& g, const std::vector<std::string>& parts, const std::string& output = "") {
  if (parts.size() == 1 && output.empty()) return parts[0];
  return g.node("Concat", parts, {onnx_whole("axis", 1)},
                output.empty() ? std::vector<std::string>{} : std::vector{output});
}

// The logits from which the best are chosen: those of choices that are not valid are very low.
std::string valid_logits(OnnxGraph& g, const DistributionSpec& spec) {
  if (!spec.masked) return "logits";
  g.input("action_mask", OnnxElement::kBool, {kOnnxRows, static_cast<std::int64_t>(spec.mask_size())});
  const std::string low = g.constant<float>("masked_logit", {}, {&kMaskedLogit<float>, 1});
  return g.node("Where", {"action_mask", "logits", low});
}

// The index of the largest logit of every head, each [N, 1].
std::vector<std::string> best_choices(OnnxGraph& g, const DistributionSpec& spec, const std::string& logits) {
  std::vector<std::int64_t> sizes;
  std::vector<std::string> heads, best;
  for (std::size_t d = 0; d < spec.dims(); ++d) {
    if (spec.choices[d] == 0) continue;
    sizes.push_back(spec.choices[d]);
    heads.push_back(fmt::format("logits.{}", d));
  }
  if (heads.size() == 1) {
    heads = {logits};
  } else {
    const auto count = static_cast<std::int64_t>(sizes.size());
    g.node("Split", {logits, g.constant<std::int64_t>("choices", {count}, sizes)}, {onnx_whole("axis", 1)}, heads);
  }
  for (const std::string& head : heads) {
    best.push_back(g.node("ArgMax", {head}, {onnx_whole("axis", 1), onnx_whole("keepdims", 1)}));
  }
  return best;
}

// The network's outputs, dimension by dimension, as `logits` and `mean`. The names of the means, each [N, 1].
std::vector<std::string> split_outputs(OnnxGraph& g, const DistributionSpec& spec) {
  std::vector<std::int64_t> sizes;
  std::vector<std::string> all, logits, means;
  for (std::size_t d = 0; d < spec.dims(); ++d) {
    sizes.push_back(std::max<std::int64_t>(spec.choices[d], 1));
    all.push_back(fmt::format("output.{}", d));
    (spec.choices[d] > 0 ? logits : means).push_back(all.back());
  }
  const auto dims = static_cast<std::int64_t>(spec.dims());
  g.node("Split", {"outputs", g.constant<std::int64_t>("sizes", {dims}, sizes)}, {onnx_whole("axis", 1)}, all);
  concatenated(g, logits, "logits");
  concatenated(g, means, "mean");
  return means;
}

// to_env_action: x * factor + offset, then within the bounds, as the task takes it. A choice stays as it is.
void env_action(OnnxGraph& g, const ModelSpec& spec, const std::string& x) {
  std::vector<float> factor, offset, low, high;
  for (std::size_t d = 0; d < spec.action.dims(); ++d) {
    const bool number = spec.action.continuous(d), binned = spec.distribution.choices[d] > 0;
    const double from = number ? spec.action.low[d] : -HUGE_VAL, to = number ? spec.action.high[d] : HUGE_VAL;
    const double width = to - from;
    const bool bounded = std::isfinite(width);
    const double units = binned ? static_cast<double>(spec.distribution.choices[d] - 1) : 2.0;
    factor.push_back(static_cast<float>(bounded ? width / units : 1.0));
    offset.push_back(static_cast<float>(!bounded ? 0.0 : binned ? from : from + 0.5 * width));
    low.push_back(static_cast<float>(from));
    high.push_back(static_cast<float>(to));
  }
  std::string a = g.node("Mul", {x, g.constant("action.factor", factor)});
  a = g.node("Add", {a, g.constant("action.offset", offset)});
  a = g.node("Max", {a, g.constant("action.low", low)});
  g.node("Min", {a, g.constant("action.high", high)}, {}, {"action"});
}

// The numbers of all dimensions, choices beside means, [N, dims].
std::string mixed_numbers(OnnxGraph& g, const DistributionSpec& spec) {
  const std::vector<std::string> means = split_outputs(g, spec);
  const std::vector<std::string> best = best_choices(g, spec, valid_logits(g, spec));
  std::vector<std::string> numbers;
  auto mean = means.begin(), choice = best.begin();
  for (const std::int64_t n : spec.choices) numbers.push_back(n > 0 ? as_float(g, *choice++) : *mean++);
  return concatenated(g, numbers);
}

// The output `action`, from the network's outputs.
void action(OnnxGraph& g, const ModelSpec& spec) {
  const DistributionSpec& distribution = spec.distribution;
  const DistributionKind kind = distribution.kind();
  const auto dims = static_cast<std::int64_t>(distribution.dims());
  if (kind == DistributionKind::kGaussian) {
    env_action(g, spec, "mean");
  } else if (kind == DistributionKind::kMixed) {
    env_action(g, spec, mixed_numbers(g, distribution));
  } else if (const std::string logits = valid_logits(g, distribution);
             spec.action.kind == ActionSpace::Kind::kDiscrete) {
    g.node("ArgMax", {logits}, {onnx_whole("axis", 1), onnx_whole("keepdims", 0)}, {"action"});
    return g.output("action", OnnxElement::kInt64, {kOnnxRows});
  } else if (spec.action.kind == ActionSpace::Kind::kMultiDiscrete) {
    concatenated(g, best_choices(g, distribution, logits), "action");
    return g.output("action", OnnxElement::kInt64, {kOnnxRows, dims});
  } else {
    env_action(g, spec, as_float(g, concatenated(g, best_choices(g, distribution, logits))));
  }
  g.output("action", OnnxElement::kFloat, {kOnnxRows, dims});
}

}  // namespace

std::string policy_to_onnx(const SavedPolicy& policy) {
  const ModelSpec& spec = policy.model;
  const DistributionKind kind = spec.distribution.kind();
  const auto gaussians = static_cast<std::int64_t>(spec.distribution.extra_parameters()),
             choices = static_cast<std::int64_t>(spec.distribution.mask_size());
  OnnxGraph g;
  const std::size_t read = spec.observation_size - spec.privileged;
  OnnxObservation x{"", raw_fields(g, spec)};
  if (read > 0) {
    g.input("observation", OnnxElement::kFloat, {kOnnxRows, static_cast<std::int64_t>(read)});
    x.floats = scaled_observation(g, policy.weights.scale, read);
  }
  if (spec.has_memory()) {
    const OnnxDims dims = {kOnnxRows, static_cast<std::int64_t>(spec.memory_state())};
    g.input(x.state = "state", OnnxElement::kFloat, dims);
    g.output("next_state", OnnxElement::kFloat, dims);
  }
  make_policy<float>(spec, {})->add_to(g, policy.weights.policy, x,
                                       kind == DistributionKind::kGaussian ? "mean"
                                       : kind == DistributionKind::kMixed  ? "outputs"
                                                                           : "logits");
  action(g, spec);
  if (choices > 0) g.output("logits", OnnxElement::kFloat, {kOnnxRows, choices});
  if (gaussians > 0) {
    g.output("mean", OnnxElement::kFloat, {kOnnxRows, gaussians});
    const std::span<const float> log_std = std::span(policy.weights.policy).last(spec.distribution.extra_parameters());
    g.node("Identity", {g.constant<float>("policy.log_std", {gaussians}, log_std)}, {}, {"log_std"});
    g.output("log_std", OnnxElement::kFloat, {gaussians});
  }
  std::vector<std::pair<std::string, std::string>> metadata = {{"env", policy.env_id},
                                                               {"version", std::to_string(policy.weights.version)}};
  if (!spec.spaces.empty()) metadata.emplace_back("spaces", spec.spaces);
  return g.model(metadata);
}

}  // namespace gipo
