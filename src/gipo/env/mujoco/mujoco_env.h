#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gipo/env/env.h"
#include "gipo/env/mujoco/library.h"
#include "gipo/env/mujoco/numpy_sum.h"
#include "gipo/env/mujoco/task_options.h"

namespace gipo {

// What a task's model must at least have.
struct LeastSizes {
  int nq = 0, nv = 0, nbody = 0, nsite = 0;
};

// A task as version 5 of Gymnasium's MuJoCo tasks defines it: the same options, observations, rewards and ends to the
// last bit. It shares its model with every other task of that XML and owns one mjData.
//
// A step sets the controls and calls mj_step frame_skip times, with no mj_forward after it: positions of bodies and
// forces are those of the last evaluation within mj_step, one part of a step behind qpos, as in Gymnasium. They are part
// of the saved state for that reason.
class MujocoEnv : public Env {
 public:
  void observe(std::span<double> observation) const override;
  void save_physics(ByteWriter& out) const final;
  void load_physics(ByteReader& in) final;
  double memory_bytes() const final;

 protected:
  // options: all of them, as resolve_options gives them.
  MujocoEnv(EnvSpec spec, const OptionValues& options, const LeastSizes& least);

  // --- What a task implements.
  virtual void start(RandomStream& random) = 0;  // moves qpos and qvel from the model's own start
  virtual Outcome play(std::span<const double> action) = 0;

  // --- What it is made of.
  // Shown in the order of the calls, in the constructor. The values are those of mjData at the time of each observation.
  void show(std::span<const double> values);
  void show_clipped(std::span<const double> values, Range range);
  int body(const OptionValue& number_or_name) const;  // throws Error where the model has none
  // cfrc_ext is computed only for a task that asks for it: nothing else depends on it.
  void use_contact_forces() { contact_forces_ = true; }

  // --- Within play.
  void simulate(std::span<const double> action);  // a step of the physics
  double dt() const { return model_->m->opt.timestep * frame_skip_; }
  // weight * |action|^2 in float32, which is the type of Gymnasium's actions.
  float control_cost(double weight) const;

  std::span<const double> qpos() const { return {data_->qpos, static_cast<std::size_t>(model_->m->nq)}; }
  std::span<const double> qvel() const { return {data_->qvel, static_cast<std::size_t>(model_->m->nv)}; }
  std::span<double> qpos() { return {data_->qpos, static_cast<std::size_t>(model_->m->nq)}; }
  std::span<double> qvel() { return {data_->qvel, static_cast<std::size_t>(model_->m->nv)}; }
  // Rows of `width` numbers, one per body.
  std::span<const double> per_body(const double* values, std::size_t width) const {
    return {values, width * static_cast<std::size_t>(model_->m->nbody)};
  }
  std::span<const double> per_velocity(const double* values) const { return {values, qvel().size()}; }
  std::span<const double, 3> position(int body) const { return std::span<const double, 3>(data_->xpos + 3 * body, 3); }
  const mjModel& model() const { return *model_->m; }
  const mjData& data() const { return *data_; }

 private:
  void start_episode(RandomStream& random) final;
  Outcome advance(std::span<const double> action) final;
  void clear();
  const char* find_fault() const;
  void check_sizes(const LeastSizes& least) const;
  template <class F>
  void each_lagging(F&& f) const;  // what an observation or reward may read beside the integration state

  struct Part {
    std::span<const double> values;
    bool clipped;
    Range range;
  };
  std::string xml_file_;
  std::shared_ptr<const MujocoModel> model_;
  std::unique_ptr<mjData, void (*)(mjData*)> data_;
  int frame_skip_;
  bool contact_forces_ = false;
  const char* fault_ = nullptr;  // until the next reset
  std::vector<Part> shown_;
  std::vector<float> action_;          // [nu] of this step
  std::vector<double> initial_;        // [mj_stateSize] the model's own start
  mutable std::vector<double> state_;  // [mj_stateSize] for saving and loading
};

}  // namespace gipo
