#include "gipo/env/mujoco/mujoco_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "gipo/core/finite.h"
#include "gipo/io/bytes.h"

namespace gipo {
namespace {

// The names of mjtWarning, as they are counted.
constexpr std::array<const char*, mjNWARNING> kWarnings = {
    "mujoco_bad_inertia", "mujoco_contacts_full", "mujoco_constraints_full", "mujoco_visuals_full",
    "mujoco_bad_qpos",    "mujoco_bad_qvel",      "mujoco_bad_qacc",         "mujoco_bad_ctrl"};

}  // namespace

MujocoEnv::MujocoEnv(EnvSpec spec, const OptionValues& options, const LeastSizes& least)
    : Env(std::move(spec)),
      xml_file_(std::get<std::string>(options.at("xml_file"))),
      model_(load_model(xml_file_)),
      data_(model_->api.mj_makeData(model_->m), model_->api.mj_deleteData),
      frame_skip_(static_cast<int>(std::get<std::int64_t>(options.at("frame_skip")))),
      action_(static_cast<std::size_t>(model_->m->nu)),
      initial_(static_cast<std::size_t>(model_->api.mj_stateSize(model_->m, mjSTATE_INTEGRATION))),
      state_(initial_.size()) {
  GIPO_CHECK(data_ != nullptr);
  check_sizes(least);
  model_->api.mj_getState(model_->m, data_.get(), initial_.data(), mjSTATE_INTEGRATION);
  const auto nu = static_cast<std::size_t>(model_->m->nu);
  std::vector<double> low(nu), high(nu);
  for (std::size_t i = 0; i < nu; ++i) {
    low[i] = static_cast<float>(model_->m->actuator_ctrlrange[2 * i]);
    high[i] = static_cast<float>(model_->m->actuator_ctrlrange[2 * i + 1]);
  }
  own_spec().action = ActionSpace::box(std::move(low), std::move(high));
  own_spec().engine = fmt::format("MuJoCo {}, {} {}", model_->api.mj_versionString(), xml_file_, model_->checksum);
}

void MujocoEnv::check_sizes(const LeastSizes& least) const {
  const auto check = [&](const char* what, int found, int wanted) {
    if (found >= wanted) return;
    throw Error(fmt::format("{}: the model {} does not fit: {} = {}, wanted at least {}", spec().id, xml_file_, what,
                            found, wanted));
  };
  check("nu", model_->m->nu, 1);
  check("nq", model_->m->nq, least.nq);
  check("nv", model_->m->nv, least.nv);
  check("nbody", model_->m->nbody, least.nbody);
  check("nsite", model_->m->nsite, least.nsite);
}

int MujocoEnv::body(const OptionValue& number_or_name) const {
  const auto* name = std::get_if<std::string>(&number_or_name);
  const std::int64_t found =
      name ? model_->api.mj_name2id(model_->m, mjOBJ_BODY, name->c_str()) : std::get<std::int64_t>(number_or_name);
  if (found < 0 || found >= model_->m->nbody) {
    throw Error(fmt::format("{}: the model {} has no body {}", spec().id, xml_file_, to_toml(number_or_name)));
  }
  return static_cast<int>(found);
}

void MujocoEnv::show(std::span<const double> values) {
  if (shown_.empty()) own_spec().observation_size = 0;
  shown_.push_back({values, false, {}});
  own_spec().observation_size += values.size();
}

void MujocoEnv::show_clipped(std::span<const double> values, Range range) {
  show(values);
  shown_.back().clipped = true;
  shown_.back().range = range;
}

void MujocoEnv::observe(std::span<double> observation) const {
  GIPO_CHECK(observation.size() == spec().observation_size);
  double* out = observation.data();
  for (const Part& part : shown_) {
    if (part.clipped) {
      out = std::transform(part.values.begin(), part.values.end(), out,
                           [&](double v) { return std::clamp(v, part.range.low, part.range.high); });
    } else {
      out = std::copy(part.values.begin(), part.values.end(), out);
    }
  }
}

// Of the arena only what contacts and the solver have used is really there; that of the constructor's first look is not
// yet that of a fall, so twice as much.
double MujocoEnv::memory_bytes() const {
  const std::size_t arena = std::min(data_->narena, 2 * (data_->maxuse_arena + data_->maxuse_stack));
  return static_cast<double>(data_->nbuffer + arena + sizeof(mjData) + 2 * state_.size() * sizeof(double));
}

void MujocoEnv::start_episode(RandomStream& random) {
  clear();
  start(random);
  model_->api.mj_forward(model_->m, data_.get());
}

// All that mj_resetData does which can be seen in a task, at less cost: what is not set here follows from it in
// mj_forward, but for cfrc_ext. A broken simulation may have left more behind.
void MujocoEnv::clear() {
  if (fault_) {
    model_->api.mj_resetData(model_->m, data_.get());
    fault_ = nullptr;
    return;
  }
  model_->api.mj_setState(model_->m, data_.get(), initial_.data(), mjSTATE_INTEGRATION);
  std::fill_n(data_->cfrc_ext, 6 * model_->m->nbody, 0.0);
  std::fill_n(data_->warning, static_cast<int>(mjNWARNING), mjWarningStat{});
}

Env::Outcome MujocoEnv::advance(std::span<const double> action) {
  const Outcome outcome = play(action);
  if (fault_) return {0, true, fault_};
  return outcome;
}

void MujocoEnv::simulate(std::span<const double> action) {
  for (std::size_t i = 0; i < action.size(); ++i) {
    action_[i] = static_cast<float>(action[i]);  // the action space is float32
    data_->ctrl[i] = action_[i];
  }
  try {
    for (int i = 0; i < frame_skip_; ++i) model_->api.mj_step(model_->m, data_.get());
    if (contact_forces_) model_->api.mj_rnePostConstraint(model_->m, data_.get());
    fault_ = find_fault();
  } catch (const MujocoError&) {
    fault_ = "mujoco_error";  // what is left in mjData ends with the next reset
  }
}

// A warning may have begun before the step, in the reset. MuJoCo has then put a diverged state back to the start: the
// observation would be finite, and wrong.
const char* MujocoEnv::find_fault() const {
  for (std::size_t i = 0; i < kWarnings.size(); ++i) {
    if (data_->warning[i].number > 0) return kWarnings[i];
  }
  return all_finite(qpos()) && all_finite(qvel()) ? nullptr : "mujoco_not_finite";
}

float MujocoEnv::control_cost(double weight) const {
  return static_cast<float>(weight) * sum_of_squares(std::span<const float>(action_));
}

template <class F>
void MujocoEnv::each_lagging(F&& f) const {
  const auto nsite = static_cast<std::size_t>(model_->m->nsite), nv = qvel().size();
  const auto nbody = static_cast<std::size_t>(model_->m->nbody);
  for (const std::span<double> values : {std::span(data_->xpos, 3 * nbody), std::span(data_->xipos, 3 * nbody),
                                         std::span(data_->cinert, 10 * nbody), std::span(data_->cvel, 6 * nbody),
                                         std::span(data_->cfrc_ext, 6 * nbody), std::span(data_->site_xpos, 3 * nsite),
                                         std::span(data_->qfrc_actuator, nv), std::span(data_->qfrc_constraint, nv)}) {
    f(values);
  }
}

void MujocoEnv::save_physics(ByteWriter& out) const {
  model_->api.mj_getState(model_->m, data_.get(), state_.data(), mjSTATE_INTEGRATION);
  for (const double v : state_) out.value(v);
  each_lagging([&](std::span<double> values) {
    for (const double v : values) out.value(v);
  });
}

void MujocoEnv::load_physics(ByteReader& in) {
  const auto read = [&](std::span<double> values) {
    for (double& v : values) v = in.value<double>();
    if (!all_finite(values)) throw Error(spec().id + ": the saved state holds a number that is not finite");
  };
  read(state_);
  clear();
  model_->api.mj_setState(model_->m, data_.get(), state_.data(), mjSTATE_INTEGRATION);
  each_lagging(read);
}

}  // namespace gipo
