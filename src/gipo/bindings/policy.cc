#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "gipo/bindings/arrays.h"
#include "gipo/bindings/bindings.h"
#include "gipo/core/error.h"
#include "gipo/run/export.h"

namespace gipo::bindings {
namespace {

constexpr std::size_t kRowsTogether = 1024;

// A trained policy that acts. Holds the interpreter's lock while it works: one object, one thread at a time.
class ActingPolicy {
 public:
  explicit ActingPolicy(const std::string& run_or_file) : saved_(load_policy(run_or_file)), random_(stream(0)) {}

  const SavedPolicy& saved() const { return saved_; }

  // Observations [N, size] -> the numbers of actions [N, dims], choices counted from 0.
  OwnedArray<double> act(const Array<float>& observations, bool deterministic, std::optional<std::uint64_t> seed) {
    if (seed) random_ = stream(*seed);
    const ModelSpec& model = saved_.model;
    const std::size_t rows = observations.shape(0), dims = model.distribution.dims();
    std::vector<float> action(dims), log_prob(dims);
    std::vector<double> env_action(dims), all(rows * dims);
    for_rows(observations, [&](const DistributionView<float>& pi, std::size_t row, std::size_t at) {
      if (deterministic) {
        mode_action(model.distribution, pi, row, action);
      } else {
        sample_action(model.distribution, pi, row, random_, action, log_prob);
      }
      to_env_action(model, action, env_action);
      std::copy(env_action.begin(), env_action.end(), all.begin() + static_cast<std::ptrdiff_t>(at * dims));
    });
    return to_numpy(std::move(all), {rows, dims});
  }

  // What the distribution is made of, under the names of the exported model's outputs: logits [N, sum of choices] of
  // the categorical dimensions, mean [N, ...] and log_std of the gaussian ones.
  nb::dict parameters(const Array<float>& observations) {
    const DistributionSpec& spec = saved_.model.distribution;
    const std::size_t rows = observations.shape(0), outputs = spec.outputs(), gaussians = spec.extra_parameters();
    std::vector<float> logits, mean;
    logits.reserve(rows * spec.mask_size());
    mean.reserve(rows * gaussians);
    for_rows(observations, [&](const DistributionView<float>& pi, std::size_t row, std::size_t) {
      const float* out = pi.outputs + row * outputs;
      for (const std::int64_t n : spec.choices) {
        std::vector<float>& to = n > 0 ? logits : mean;
        const float* end = out + std::max<std::int64_t>(n, 1);
        to.insert(to.end(), out, end);
        out = end;
      }
    });
    nb::dict out;
    if (spec.mask_size() > 0) out["logits"] = to_numpy(std::move(logits), {rows, spec.mask_size()});
    if (gaussians == 0) return out;
    out["mean"] = to_numpy(std::move(mean), {rows, gaussians});
    const std::span<const float> extra = std::span<const float>(saved_.weights.policy).last(gaussians);
    out["log_std"] = to_numpy(std::vector<float>(extra.begin(), extra.end()));
    return out;
  }

  OwnedArray<float> value(const Array<float>& observations) {
    const std::size_t rows = observations.shape(0);
    std::vector<float> all(rows);
    for (std::size_t begin = 0; begin < rows; begin += kRowsTogether) {
      const std::size_t n = std::min(kRowsTogether, rows - begin);
      std::copy_n(inference(n).values(saved_.weights, part(observations, begin, n)), n,
                  all.begin() + static_cast<std::ptrdiff_t>(begin));
    }
    return to_numpy(std::move(all));
  }

 private:
  static RandomStream stream(std::uint64_t seed) { return RandomStream::derive(seed, "act"); }

  std::span<const float> part(const Array<float>& observations, std::size_t begin, std::size_t rows) const {
    const std::size_t size = saved_.model.observation_size;
    return view(observations).subspan(begin * size, rows * size);
  }

  // Calls f(distributions of some rows, which of them, which of all).
  template <class F>
  void for_rows(const Array<float>& observations, F&& f) {
    const std::size_t rows = observations.shape(0);
    for (std::size_t begin = 0; begin < rows; begin += kRowsTogether) {
      const std::size_t n = std::min(kRowsTogether, rows - begin);
      const DistributionView<float> pi = inference(n).policy(saved_.weights, part(observations, begin, n));
      for (std::size_t i = 0; i < n; ++i) f(pi, i, begin + i);
    }
  }

  // With room for that many rows; made anew, larger, where it has not.
  Inference& inference(std::size_t rows) {
    if (rows > room_) inference_ = std::make_unique<Inference>(saved_.model, room_ = std::max(rows, 2 * room_));
    return *inference_;
  }

  SavedPolicy saved_;
  RandomStream random_;
  std::size_t room_ = 0;
  std::unique_ptr<Inference> inference_;
};

}  // namespace

void add_policy(nb::module_& m) {
  nb::class_<ActingPolicy>(m, "Policy", "A trained policy.")
      .def(nb::init<const std::string&>(), nb::arg("run_or_file"))
      .def("act", &ActingPolicy::act, nb::arg("observations").noconvert(), nb::arg("deterministic"),
           nb::arg("seed").none(), "Numbers of actions [N, dims] for observations [N, size].")
      .def("parameters", &ActingPolicy::parameters, nb::arg("observations").noconvert(),
           "The distribution's parameters for observations [N, size].")
      .def("value", &ActingPolicy::value, nb::arg("observations").noconvert(),
           "The critic's values for observations [N, size].")
      .def_prop_ro(
          "env", [](const ActingPolicy& p) { return p.saved().env_id; }, "Id of the task.")
      .def_prop_ro(
          "version", [](const ActingPolicy& p) { return p.saved().weights.version; }, "Updates behind it.")
      .def_prop_ro(
          "observation_size", [](const ActingPolicy& p) { return p.saved().model.observation_size; },
          "Values of an observation.")
      .def_prop_ro(
          "action_kind", [](const ActingPolicy& p) { return name_of(p.saved().model.action.kind); },
          "discrete, multi_discrete, box or composed.")
      .def_prop_ro(
          "action_dims", [](const ActingPolicy& p) { return p.saved().model.action.dims(); }, "Values of an action.")
      .def_prop_ro(
          "spaces", [](const ActingPolicy& p) { return p.saved().model.spaces; },
          "The task's spaces as JSON; empty where the file does not say.");
  m.def("export_policy", &export_policy, nb::arg("run_or_file"), nb::arg("file"),
        "Writes NAME.onnx or NAME.safetensors.");
}

}  // namespace gipo::bindings
