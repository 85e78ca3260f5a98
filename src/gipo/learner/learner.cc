#include "gipo/learner/learner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/learner/check_learner.h"
#include "gipo/learner/cpu_learner.h"
#include "gipo/learner/cuda_learner.h"
#include "gipo/learner/rank_leader.h"
#include "gipo/policy/torch_policy.h"
#include "gipo/policy/vla_spec.h"

namespace gipo {

void UpdateStats::append_to(std::vector<std::pair<std::string, double>>& figures) const {
  figures.insert(figures.end(), {{"policy_loss", policy_loss},
                                 {"value_loss", value_loss},
                                 {"entropy", entropy},
                                 {"proximal_kl", proximal_kl},
                                 {"importance_mean", importance_mean},
                                 {"importance_cut_frac", importance_cut_frac},
                                 {"explained_variance", explained_variance},
                                 {"policy_grad_norm", policy_grad_norm},
                                 {"value_grad_norm", value_grad_norm},
                                 {"policy_lr", policy_lr},
                                 {"value_lr", value_lr},
                                 {"advantage_mean", advantage_mean},
                                 {"advantage_std", advantage_std},
                                 {"advantage_abs_max", advantage_abs_max},
                                 {"value_mean", value_mean},
                                 {"reward_factor", reward_factor}});
  figures.insert(figures.end(), others.begin(), others.end());
}

double rate_factor(const LearnerOptions& options, std::int64_t update) {
  return schedule_factor(options.schedule, static_cast<double>(update), static_cast<double>(options.updates),
                         static_cast<double>(options.warmup_updates));
}

double entropy_weight(const LearnerOptions& options, std::int64_t update) {
  return options.entropy_coef *
         schedule_factor(options.entropy_schedule, static_cast<double>(update), static_cast<double>(options.updates));
}

// As CpuLearner's constructor allocates it.
PolicyMemory learner_memory(const LearnerSetup& setup) {
  if (setup.learner.backend == "check") {
    PolicyMemory both;
    const auto [one, other] = checked_backends(setup.learner);
    for (const std::string& backend : {one, other}) {
      LearnerSetup part = setup;
      part.learner.backend = backend;
      const PolicyMemory memory = learner_memory(part);
      both.held += 2 * memory.held;  // what one holds is handed to the other, and gradients are copied
      both.at_first = std::max(both.at_first, memory.at_first);
    }
    return both;
  }
  const double wider = setup.learner.backend == "cpu64" ? 2 : 1;
  const ModelSpec& model = setup.model;
  const auto batch = static_cast<std::size_t>(setup.learner.batch_size);
  const bool centred = setup.surrogate.centre == Centre::kProximal;
  const auto n = static_cast<double>(batch), dims = static_cast<double>(model.distribution.dims());
  const auto policy = static_cast<double>(parameter_count(model, Part::kPolicy)),
             critic = static_cast<double>(parameter_count(model, Part::kCritic));
  const double ratios = n * static_cast<double>(ratios_per_action(setup.surrogate, model.distribution.dims()));
  PolicyMemory memory = policy_memory(model, learner_room(setup));
  if (looks_at_average(setup)) memory.held += policy_memory(model, average_room(setup.learner)).held;
  // Parameters, gradient and two moments; the average.
  memory.held += 4 * (4 * (policy + critic) + (keeps_average(setup) ? policy : 0));
  // Workspace; the last is that of the diagnostics.
  memory.held += 4 * n * (3 * dims + 12) + 28 * ratios + 48 * ratios;
  if (centred) memory.held += 4 * n * dims + 20 * ratios;
  memory.held *= wider;
  return memory;
}

bool keeps_average(const LearnerSetup& setup) {
  return looks_at_average(setup) || setup.learner.publish == Published::kAverage;
}

bool looks_at_average(const LearnerSetup& setup) {
  return setup.learner.proximal_coef > 0 || setup.surrogate.centre == Centre::kProximal;
}

PolicyRoom learner_room(const LearnerSetup& setup) {
  const LearnerOptions& options = setup.learner;
  const auto batch = static_cast<std::size_t>(options.batch_size);
  // With what follows each stretch, of which there may be as many as steps.
  PolicyRoom room{2 * batch,
                  batch,
                  true,
                  options.device,
                  options.precision == Precision::kBf16,
                  options.products != ProductKind::kFloat};
  room.average = looks_at_average(setup);
  return room;
}

PolicyRoom average_room(const LearnerOptions& options) {
  const auto batch = static_cast<std::size_t>(options.batch_size);
  return {batch, batch, false, options.device, options.precision == Precision::kBf16};
}

const std::vector<std::string>& learner_backends() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"cpu", "cpu64", "check"};
    if (!torch_version().empty()) all.insert(all.end() - 1, "torch");
    if (!cuda_version().empty()) all.insert(all.end() - 1, "cuda");
    return all;
  }();
  return names;
}

bool runs_backend(const LearnerOptions& options, const std::string& name) {
  if (options.backend != "check") return options.backend == name;
  const auto [one, other] = checked_backends(options);
  return one == name || other == name;
}

void check_backend(const LearnerOptions& options) {
  const auto refuse_unless = [](const char* key, const std::string& value, const std::string& part, bool alone) {
    std::vector<std::string> built = learner_backends();
    if (!alone) std::erase(built, "check");
    if (std::ranges::find(built, part) != built.end()) return;
    if (part == "torch") throw Error(fmt::format("learner.{} = \"{}\": {}", key, value, kAddTorch));
    if (part == "cuda") throw Error(fmt::format("learner.{} = \"{}\": {}", key, value, kAddCuda));
    throw Error(fmt::format(
        "learner.{} = \"{}\" is not accepted: {}; built are {}", key, value,
        part.empty() ? "wanted two backends, with a comma between them" : part + " is not built into this program",
        fmt::join(built, ", ")));
  };
  refuse_unless("backend", options.backend, options.backend, true);
  if (options.backend != "check") return;
  const auto [one, other] = checked_backends(options);
  for (const std::string& part : {one, other}) refuse_unless("check", options.check, part, false);
}

void check_device(const LearnerOptions& options) {
  if (options.device == "cpu") {
    if (options.precision == Precision::kFloat32) return;
    throw Error(fmt::format("learner.precision = \"{}\" needs a CUDA device: wanted learner.device = \"cuda\"",
                            word_of(options.precision)));
  }
  if (options.backend != "torch") {
    throw Error(fmt::format("learner.device = \"{}\" needs learner.backend = \"torch\", and it is \"{}\"",
                            options.device, options.backend));
  }
  check_torch_device(options.device);
}

void check_ranks(const LearnerOptions& o) {
  if (o.ranks == 1) return;
  if (o.backend != "torch") {
    throw Error(
        fmt::format("learner.ranks = {} needs learner.backend = \"torch\", and it is \"{}\"", o.ranks, o.backend));
  }
  if (o.device != "cpu" && o.device != "cuda") {
    throw Error(
        fmt::format("learner.device = \"{}\" is not accepted with learner.ranks = {}: each rank takes a device of "
                    "its own; wanted \"cuda\", or \"cpu\"",
                    o.device, o.ranks));
  }
  if (o.ranks > o.batch_size) {
    throw Error(fmt::format("learner.ranks = {} is not accepted: learner.batch_size = {} has fewer transitions",
                            o.ranks, o.batch_size));
  }
}

std::unique_ptr<Learner> make_learner(const LearnerSetup& setup, RandomStream random, ThreadPool& pool) {
  check_backend(setup.learner);
  if (setup.learner.backend == "cpu64") return std::make_unique<CpuLearner<double>>(setup, random, pool);
  if (setup.learner.backend == "check") return std::make_unique<CheckLearner>(setup, random, pool);
  if (setup.learner.ranks > 1) {
    check_ranks(setup.learner);
    if (!setup.ranks) refuse_ranks(setup.learner.ranks);
    return std::make_unique<CpuLearner<float>>(setup, random, pool, nullptr,
                                               std::make_unique<RankLeader>(setup.ranks, setup));
  }
  const bool on_device = setup.learner.backend == "torch" && setup.learner.device != "cpu";
  if (on_device && !is_in_place(setup.model)) return make_cuda_learner(setup, random);
  if (setup.learner.backend == "torch") {
    return std::make_unique<CpuLearner<float>>(setup, random, pool, make_torch_policy);
  }
  if (setup.learner.backend == "cuda") return make_cuda_learner(setup, random);
  return std::make_unique<CpuLearner<float>>(setup, random, pool);
}

const UpdateStats& Learner::update(const Batch& batch, const UpdateContext& context) {
  stage(batch);
  begin_update(context);
  return figures();
}

namespace {

TensorSource source_of(std::string name, TensorType type, Shape shape, std::string bytes) {
  return {std::move(name), type, std::move(shape),
          [bytes = std::make_shared<std::string>(std::move(bytes))](ByteWriter& out) { out.append(*bytes); }};
}

void write_learner(std::vector<TensorSource> tensors, std::string rest, ByteWriter& out) {
  const std::uint64_t size = rest.size();
  tensors.push_back(source_of("rest", TensorType::kU8, {size}, std::move(rest)));
  write_safetensors(std::move(tensors), {{"format", "gipo-learner-1"}}, out);
}

}  // namespace

void Learner::save(ByteWriter& out) const {
  std::vector<TensorSource> all;
  // What lists the tensors lists where they are read to, too.
  for (LearnerTensor& tensor : const_cast<Learner*>(this)->tensors()) all.push_back(std::move(tensor.source));
  write_learner(std::move(all), bytes_of([this](ByteWriter& to) { save_rest(to); }), out);
}

std::function<void(ByteWriter&)> Learner::snapshot() {
  std::shared_ptr<void> held = hold();
  if (!held) return {};
  std::vector<TensorSource> all;
  for (LearnerTensor& tensor : tensors()) {
    TensorSource& s = tensor.source;
    all.push_back(tensor.held ? std::move(s) : source_of(s.name, s.type, s.shape, bytes_of(s.write)));
  }
  std::string rest = bytes_of([this](ByteWriter& to) { save_rest(to); });
  return [held = std::move(held), all = std::move(all), rest = std::move(rest)](ByteWriter& out) mutable {
    write_learner(std::move(all), std::move(rest), out);
    held.reset();
  };
}

void Learner::load(ByteReader& in) {
  std::map<std::string, LearnerTensor> wanted;
  for (LearnerTensor& tensor : tensors()) wanted[tensor.source.name] = std::move(tensor);
  bool rest = false;
  TensorReader file(in);
  while (file.next()) {
    if (file.name() == "rest") {
      const std::string bytes = file.read_bytes();
      ByteReader from(bytes);
      load_rest(from);
      if (from.left() > 0) throw Error("saved learner: its counts are too long");
      rest = true;
      continue;
    }
    const auto it = wanted.find(file.name());
    if (it == wanted.end()) throw Error(fmt::format("saved learner: a tensor {} that this one has not", file.name()));
    it->second.read(file);
    wanted.erase(it);
  }
  if (!rest) throw Error("saved learner: it has no counts");
  if (!wanted.empty()) throw Error(fmt::format("saved learner: no tensor {}", wanted.begin()->first));
}

}  // namespace gipo
