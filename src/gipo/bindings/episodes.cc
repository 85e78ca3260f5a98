#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gipo/bindings/arrays.h"
#include "gipo/bindings/bindings.h"
#include "gipo/env/bridge/bridge.h"
#include "gipo/io/bytes.h"
#include "gipo/run/trained_run.h"
#include "gipo/train/evaluator.h"

namespace gipo::bindings {
namespace {

// The episodes that `gipo eval` plays of a run, and what another program needs to play one of them again.
class Episodes {
 public:
  Episodes(const std::string& folder, const std::string& which) : run_(load_trained_run(folder, which)) {}

  const Plan& plan() const { return run_.plan; }

  // (return, length, seed) of each, played one after the other. Holds no lock of Python's meanwhile.
  std::vector<std::tuple<double, std::int64_t, std::uint64_t>> evaluate(std::int64_t episodes, std::uint64_t seed,
                                                                        bool greedy) const {
    const nb::gil_scoped_release released;
    const Evaluation evaluation = gipo::evaluate(
        run_.plan.model, run_.weights,
        {run_.plan.env, run_.plan.config.env, run_.plan.config.env_options, episodes, seed, greedy, nullptr, true});
    std::vector<std::tuple<double, std::int64_t, std::uint64_t>> played;
    for (const PlayedEpisode& e : evaluation.played) played.push_back({e.episode_return, e.length, e.seed});
    return played;
  }

  // Of a task of this library the physics, as Env::save_physics has them; of a Python package the seed of its reset.
  nb::object start(std::uint64_t seed, std::size_t episode) const {
    const Config& config = run_.plan.config;
    const std::uint64_t root = start_seed(seed, episode);
    if (is_bridged(config.env.id)) return nb::cast(worker_seed(root));
    const std::unique_ptr<Env> env = make_env(config.env.id, config.env.time_limit, config.env_options);
    env->reset(root);
    ByteWriter out;
    env->save_physics(out);
    std::vector<double> physics;
    for (ByteReader in(out.bytes()); in.left() > 0;) physics.push_back(in.value<double>());
    return nb::cast(to_numpy(std::move(physics)));
  }

 private:
  TrainedRun run_;
};

}  // namespace

void add_episodes(nb::module_& m) {
  nb::class_<Episodes>(m, "Episodes", "The episodes that an evaluation of a run plays.")
      .def(nb::init<const std::string&, const std::string&>(), nb::arg("run"), nb::arg("which"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("evaluate", &Episodes::evaluate, nb::arg("episodes"), nb::arg("seed"), nb::arg("greedy"),
           "Plays them: (return, length, seed) of each.")
      .def("start", &Episodes::start, nb::arg("seed"), nb::arg("episode"),
           "What one starts from: the physics of a task of gipo, the seed of reset of another.")
      .def_prop_ro(
          "setup", [](const Episodes& e) { return worker_setup(e.plan().config.env, e.plan().config.env_options); },
          "What a worker is told of the task, as JSON.")
      .def_prop_ro(
          "time_limit", [](const Episodes& e) { return e.plan().env.time_limit; },
          "Steps after which an episode is truncated; 0: the task says so itself.");
}

}  // namespace gipo::bindings
