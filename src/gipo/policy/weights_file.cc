// Weights as a safetensors file and back: tensors in torch's layout, so that other programs can read them.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "gipo/config/group_text.h"
#include "gipo/core/error.h"
#include "gipo/data/field_json.h"
#include "gipo/io/bytes.h"
#include "gipo/io/json_text.h"
#include "gipo/io/safetensors.h"
#include "gipo/policy/weights.h"

namespace gipo {
namespace {

Shape to_shape(const std::vector<std::int64_t>& shape) { return Shape(shape.begin(), shape.end()); }

void add_views(const std::vector<TensorSlice>& slices, std::span<const float> flat, std::vector<TensorSource>& views) {
  for (const TensorSlice& s : slices) {
    views.push_back(source_of(view_tensor<float>(s.name, to_shape(s.shape), flat.subspan(s.offset, s.values()))));
  }
}

void read_all(const SafeTensors& file, const std::vector<TensorSlice>& slices, std::span<float> flat) {
  for (const TensorSlice& s : slices) file.read<float>(s.name, to_shape(s.shape), flat.subspan(s.offset, s.values()));
}

constexpr std::pair<ActionSpace::Kind, const char*> kKinds[] = {{ActionSpace::Kind::kDiscrete, "discrete"},
                                                                {ActionSpace::Kind::kMultiDiscrete, "multi_discrete"},
                                                                {ActionSpace::Kind::kBox, "box"},
                                                                {ActionSpace::Kind::kComposed, "composed"}};

// JSON knows no infinity: a bound that there is not is null.
std::string action_to_json(const ActionSpace& action) {
  return nlohmann::ordered_json{
      {"kind", name_of(action.kind)}, {"choices", action.choices}, {"low", action.low}, {"high", action.high}}
      .dump();
}

ActionSpace action_from_json(const std::string& text) {
  const auto json = parse_json<nlohmann::json>(text, "action");
  ActionSpace action;
  bool known = false;
  for (const auto& [kind, word] : kKinds) {
    if (json.at("kind") == word) action.kind = kind, known = true;
  }
  action.choices = json.at("choices").get<std::vector<std::int64_t>>();
  for (const auto& v : json.at("low")) action.low.push_back(v.is_null() ? -HUGE_VAL : v.get<double>());
  for (const auto& v : json.at("high")) action.high.push_back(v.is_null() ? HUGE_VAL : v.get<double>());
  const bool box = action.kind == ActionSpace::Kind::kBox, composed = action.kind == ActionSpace::Kind::kComposed;
  bool whole = known && action.dims() > 0 && action.low.size() == action.high.size() && box == action.choices.empty() &&
               (!composed || action.low.size() == action.dims());
  for (const std::int64_t n : action.choices) whole = whole && n >= (composed ? 0 : 1) && n <= 65536;
  for (std::size_t d = 0; whole && d < action.low.size(); ++d) whole = action.low[d] <= action.high[d];
  if (!whole) throw std::invalid_argument("not an action space");
  return action;
}

// The fields that encoders read, with these.
std::string raw_to_json(const ModelSpec& spec) {
  auto all = nlohmann::ordered_json::array();
  for (std::size_t f = 0; f < spec.fields.size(); ++f) {
    const Field& field = spec.fields[f];
    if (!field.raw) continue;
    all.push_back(field_to_json(field));
    all.back()["encoder"] = word_of(spec.encoders[f]);
  }
  return all.dump();
}

// Added to the fields, with their encoders.
void add_raw(const std::string& text, Fields& fields, std::vector<Encoder>& encoders) {
  for (const auto& json : parse_json<nlohmann::json>(text, "raw")) {
    Field field = field_from_json(json);
    if (field.values() == 0) throw std::invalid_argument("a field without values");
    encoders.push_back(
        choose_encoders(fmt::format("{}={}", field.name, json.at("encoder").get<std::string>()), {field}, true)[0]);
    field.raw = true;
    fields.push_back(std::move(field));
  }
}

std::string in_words(const DistributionSpec& spec) {
  const DistributionKind kind = spec.kind();
  if (kind == DistributionKind::kGaussian) return "gaussian";
  return fmt::format("{} {}", kind == DistributionKind::kMixed ? "composed" : "categorical",
                     fmt::join(spec.choices, ","));
}

}  // namespace

const char* name_of(ActionSpace::Kind kind) {
  for (const auto& [known, name] : kKinds) {
    if (known == kind) return name;
  }
  GIPO_NOT_REACHED();
}

std::string weights_to_safetensors(const ModelSpec& spec, const Weights& weights, const std::string& env_id,
                                   const MoreMetadata& more) {
  return bytes_of([&](ByteWriter& out) { write_weights(spec, weights, env_id, out, more); });
}

void write_weights(const ModelSpec& spec, const Weights& weights, const std::string& env_id, ByteWriter& out,
                   const MoreMetadata& more) {
  std::vector<TensorSource> views;
  add_views(tensors_of(spec, Part::kPolicy), weights.policy, views);
  add_views(tensors_of(spec, Part::kCritic), weights.critic, views);
  const Shape dims = {spec.observation_size}, one = {1};
  views.push_back(source_of(view_tensor<float>("observation.mean", dims, weights.scale.mean)));
  views.push_back(source_of(view_tensor<float>("observation.inverse_std", dims, weights.scale.inverse_std)));
  views.push_back(source_of(view_tensor<float>("observation.limit", one, {&weights.scale.limit, 1})));
  TensorMetadata metadata = {{"format", "gipo-policy-1"},
                             {"env", env_id},
                             {"action", action_to_json(spec.action)},
                             {"options", group_to_text(spec.options)},
                             {"version", std::to_string(weights.version)},
                             {"distribution", in_words(spec.distribution)},
                             {"shared", std::to_string(spec.options.shared)},
                             {"activation", word_of(spec.options.activation)}};
  if (!spec.spaces.empty()) metadata["spaces"] = spec.spaces;
  if (spec.has_raw()) metadata["raw"] = raw_to_json(spec);
  if (spec.distribution.masked) metadata["masked"] = "true";
  if (spec.privileged > 0) metadata["privileged"] = std::to_string(spec.privileged);
  metadata.insert(more.begin(), more.end());
  write_safetensors(std::move(views), metadata, out);
}

namespace {

Weights read_weights(const ModelSpec& spec, const SafeTensors& file, const std::string& where) {
  Weights weights = empty_weights(spec);
  read_all(file, tensors_of(spec, Part::kPolicy), weights.policy);
  read_all(file, tensors_of(spec, Part::kCritic), weights.critic);
  const Shape dims = {spec.observation_size}, one = {1};
  file.read<float>("observation.mean", dims, weights.scale.mean);
  file.read<float>("observation.inverse_std", dims, weights.scale.inverse_std);
  file.read<float>("observation.limit", one, {&weights.scale.limit, 1});
  if (!(weights.scale.limit > 0)) throw Error(where + ": observation.limit is not above zero");
  const auto version = file.metadata().find("version");
  if (version == file.metadata().end()) throw Error(where + ": no version among its metadata");
  weights.version = std::strtoll(version->second.c_str(), nullptr, 10);
  return weights;
}

}  // namespace

Weights weights_from_safetensors(const ModelSpec& spec, const std::string& bytes, const std::string& where) {
  return read_weights(spec, SafeTensors(bytes, where), where);
}

SavedPolicy policy_from_safetensors(const std::string& bytes, const std::string& where) {
  const SafeTensors file(bytes, where);
  const auto field = [&](const std::string& key) {
    const auto it = file.metadata().find(key);
    if (it != file.metadata().end()) return it->second;
    throw Error(
        fmt::format("{}: no {} among its metadata: not a policy, or one that an earlier version saved; `gipo "
                    "resume` of its run saves it anew",
                    where, key));
  };
  EnvSpec env;
  env.id = field("env");
  try {
    env.action = action_from_json(field("action"));
  } catch (const std::exception& e) {
    throw Error(fmt::format("{}: action: {}", where, e.what()));
  }
  const auto mean = file.entries().find("observation.mean");
  const bool raw = file.metadata().contains("raw");
  if (mean == file.entries().end() || mean->second.shape.size() != 1 || (mean->second.shape[0] == 0 && !raw)) {
    throw Error(where + ": no list observation.mean");
  }
  env.observation_size = mean->second.shape[0];
  SavedPolicy policy;
  policy.env_id = env.id;
  const auto options = group_from_text<PolicyOptions>(field("options"), where + ": options");
  if (std::cmp_greater(options.shared, options.hidden.size())) {
    throw Error(where + ": options: policy.shared is more than there are hidden layers");
  }
  // Files of before do not have them. Who reads them (gipo/spaces.py) checks them.
  if (const auto spaces = file.metadata().find("spaces"); spaces != file.metadata().end()) env.spaces = spaces->second;
  if (const auto it = file.metadata().find("privileged"); it != file.metadata().end()) {
    const std::size_t critic = std::strtoull(it->second.c_str(), nullptr, 10);
    if (critic == 0 || critic >= env.observation_size)
      throw Error(where + ": privileged is not a part of observations");
    env.fields = plain_fields(env.observation_size - critic);
    env.fields.push_back({"privileged", DType::kFloat32, {static_cast<std::int64_t>(critic)}, Role::kCritic});
  }
  policy.model = make_model_spec(options, env);
  policy.model.fields = plain_fields(env.observation_size);
  if (env.observation_size == 0) policy.model.fields.clear();
  if (raw) {
    policy.model.encoders.assign(policy.model.fields.size(), Encoder::kFloats);
    try {
      add_raw(field("raw"), policy.model.fields, policy.model.encoders);
    } catch (const std::exception& e) {
      throw Error(fmt::format("{}: raw: {}", where, e.what()));
    }
  }
  if (file.metadata().contains("masked")) add_mask(policy.model);
  // Before anything is made of that size.
  const std::size_t parameters =
      parameter_count(policy.model, Part::kPolicy) + parameter_count(policy.model, Part::kCritic);
  if (parameters * sizeof(float) > bytes.size()) throw Error(where + ": its tensors are not those of its options");
  policy.weights = read_weights(policy.model, file, where);
  return policy;
}

}  // namespace gipo
