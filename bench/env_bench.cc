// What a step of a MuJoCo task costs beside its physics: random play, and a bare loop of mj_step through the same states
// with the same controls. Both are timed in turn, chunk by chunk, so that a noisy machine slows both alike;
// `of_bare` is the ratio to be read.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "gipo/env/env.h"
#include "gipo/env/mujoco/library.h"
#include "gipo/io/bytes.h"

namespace gipo {
namespace {

constexpr std::size_t kChunk = 200;  // steps

double seconds_of(auto&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The integration state, with which the saved physics begin.
std::vector<double> integration_state(const Env& env, std::size_t size) {
  ByteWriter out;
  env.save_physics(out);
  std::vector<double> state(size);
  std::memcpy(state.data(), out.bytes().data(), size * sizeof(double));
  return state;
}

class Play {
 public:
  explicit Play(const EnvSpec& spec)
      : env_(make_env(spec.id)),
        model_(load_model(std::get<std::string>(option(spec, "xml_file")))),
        frame_skip_(static_cast<int>(std::get<std::int64_t>(option(spec, "frame_skip")))),
        data_(model_->api.mj_makeData(model_->m)),
        dims_(spec.action.dims()),
        actions_(kChunk * dims_),
        observation_(spec.observation_size),
        starts_(kChunk) {
    env_->reset(1);
  }
  ~Play() { model_->api.mj_deleteData(data_); }

  // Draws the actions of a chunk and plays it once, to know the states from which its episodes begin.
  void prepare() {
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      const ActionSpace& space = env_->spec().action;
      actions_[i] = static_cast<float>(random_.uniform(space.low[i % dims_], space.high[i % dims_]));
    }
    const auto size = static_cast<std::size_t>(model_->api.mj_stateSize(model_->m, mjSTATE_INTEGRATION));
    ByteWriter before;
    env_->save_state(before);
    start_ = integration_state(*env_, size);
    for (std::size_t t = 0; t < kChunk; ++t) {
      starts_[t].clear();
      if (step(t)) starts_[t] = integration_state(*env_, size);
    }
    ByteReader in(before.bytes());
    env_->load_state(in);
  }

  void play() {
    for (std::size_t t = 0; t < kChunk; ++t) step(t);
  }

  void play_bare() {
    const MujocoApi& mj = model_->api;
    mj.mj_setState(model_->m, data_, start_.data(), mjSTATE_INTEGRATION);
    for (std::size_t t = 0; t < kChunk; ++t) {
      std::copy_n(actions_.data() + t * dims_, dims_, data_->ctrl);
      for (int i = 0; i < frame_skip_; ++i) mj.mj_step(model_->m, data_);
      if (!starts_[t].empty()) mj.mj_setState(model_->m, data_, starts_[t].data(), mjSTATE_INTEGRATION);
    }
  }

 private:
  static const OptionValue& option(const EnvSpec& spec, const std::string& name) {
    return std::find_if(spec.options.begin(), spec.options.end(), [&](const EnvOption& o) { return o.name == name; })
        ->value;
  }

  bool step(std::size_t t) {
    const StepResult r = env_->step({actions_.data() + t * dims_, dims_});
    env_->observe(observation_);
    benchmark::DoNotOptimize(observation_.data());
    if (!r.terminated && !r.truncated) return false;
    env_->reset();
    env_->observe(observation_);
    return true;
  }

  std::unique_ptr<Env> env_;
  std::shared_ptr<const MujocoModel> model_;
  int frame_skip_;
  mjData* data_;
  std::size_t dims_;
  RandomStream random_{1};
  std::vector<double> actions_, observation_, start_;
  std::vector<std::vector<double>> starts_;  // after which step an episode began, and where
};

void env_steps(benchmark::State& state, const EnvSpec& spec) {
  Play play(spec);
  std::vector<double> own, bare, ratio;
  for (auto _ : state) {
    play.prepare();
    bare.push_back(seconds_of([&] { play.play_bare(); }));
    own.push_back(seconds_of([&] { play.play(); }));
    ratio.push_back(bare.back() / own.back());
    state.SetIterationTime(own.back());
  }
  const auto median = [](std::vector<double>& v) {
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
  };
  state.counters["steps_per_second"] = kChunk / median(own);
  state.counters["bare_per_second"] = kChunk / median(bare);
  state.counters["of_bare"] = median(ratio);
}

// By name: which tasks there are is not known before main.
const bool kRegistered = [] {
  for (const char* id : {"HalfCheetah-v5", "Ant-v5", "Hopper-v5", "Walker2d-v5", "Humanoid-v5", "HumanoidStandup-v5",
                         "InvertedPendulum-v5", "InvertedDoublePendulum-v5", "Reacher-v5", "Pusher-v5"}) {
    benchmark::RegisterBenchmark((std::string("env_steps/") + id).c_str(),
                                 [id](benchmark::State& state) { env_steps(state, find_env(id)); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace gipo
