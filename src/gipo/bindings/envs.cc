#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>

#include "gipo/bindings/arrays.h"
#include "gipo/bindings/bindings.h"
#include "gipo/core/error.h"
#include "gipo/core/thread_pool.h"
#include "gipo/env/check_action.h"
#include "gipo/env/env.h"
#include "gipo/env/spaces.h"
#include "gipo/io/bytes.h"

namespace gipo::bindings {
namespace {

template <class T>
using Output = nb::ndarray<T, nb::numpy, nb::c_contig, nb::device::cpu>;

// What follows the end of an episode, as Gymnasium's AutoresetMode names it.
enum class Autoreset { kNextStep, kSameStep, kDisabled };

using Faults = std::vector<std::pair<std::size_t, std::string>>;  // by environment

// Environments of one task of this library, stepped together with the interpreter's lock released. Calls from several
// threads wait for each other.
class EnvBatch {
 public:
  EnvBatch(const std::string& id, std::size_t count, const OptionValues& options, std::optional<std::int64_t> limit,
           std::size_t threads)
      : pool_(std::clamp<std::size_t>(threads, 1, count)) {
    for (std::size_t i = 0; i < count; ++i) envs_.push_back(make_env(id, limit, options));
    size_ = spec().observation_size;
    observed_.resize(count * size_);
  }

  const EnvSpec& spec() const { return envs_[0]->spec(); }
  std::size_t count() const { return envs_.size(); }

  // Begins an episode of the chosen environments. One without a seed goes on with its random stream.
  template <class T>
  void reset(const Array<bool>& chosen, const std::vector<std::optional<std::uint64_t>>& seeds,
             const Output<T>& observations) {
    GIPO_CHECK(chosen.size() == count() && seeds.size() == count() && observations.size() == observed_.size());
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    each([&](std::size_t i) {
      if (!chosen.data()[i]) return;
      seeds[i] ? envs_[i]->reset(*seeds[i]) : envs_[i]->reset();
      observe(i);
    });
    std::ranges::copy(observed_, observations.data());
  }

  // actions [N, dims]; the rest is written: observations and final [N, size], of which final has rows under
  // Autoreset::kSameStep where an episode ended, reward, terminated and truncated [N].
  template <class T>
  Faults step(const Array<double>& actions, Autoreset mode, const Output<T>& observations, const Output<double>& reward,
              const Output<bool>& terminated, const Output<bool>& truncated, const Output<T>& final) {
    const std::size_t n = count(), dims = spec().action.dims();
    GIPO_CHECK(actions.size() == n * dims && observations.size() == observed_.size() && reward.size() == n &&
               terminated.size() == n && truncated.size() == n);
    GIPO_CHECK(mode != Autoreset::kSameStep || final.size() == observed_.size());
    const auto action = [&](std::size_t i) { return view(actions).subspan(i * dims, dims); };
    std::vector<const char*> faults(n);
    {
      const nb::gil_scoped_release released;
      const std::lock_guard lock(mutex_);
      // All are looked at before any is stepped.
      for (std::size_t i = 0; i < n; ++i) check_action(spec(), action(i));
      each([&](std::size_t i) {
        StepResult result;
        if (mode == Autoreset::kNextStep && !envs_[i]->running()) {
          envs_[i]->reset();
          observe(i);
        } else {
          result = envs_[i]->step(action(i));
          faults[i] = result.fault;
          // A simulation that broke down says nothing: the episode is cut off where it stood before the step.
          if (result.fault)
            result = {.truncated = true};
          else
            observe(i);
        }
        if (mode == Autoreset::kSameStep && !envs_[i]->running()) {
          std::ranges::copy(row(i), final.data() + i * size_);
          envs_[i]->reset();
          observe(i);
        }
        reward.data()[i] = result.reward;
        terminated.data()[i] = result.terminated;
        truncated.data()[i] = result.truncated;
      });
      std::ranges::copy(observed_, observations.data());
    }
    Faults named;
    for (std::size_t i = 0; i < n; ++i) {
      if (faults[i]) named.emplace_back(i, faults[i]);
    }
    return named;
  }

  bool running(std::size_t i) const { return envs_.at(i)->running(); }

  nb::bytes save(std::size_t i) {
    const std::lock_guard lock(mutex_);
    ByteWriter out;
    envs_.at(i)->save_state(out);
    return nb::bytes(out.bytes().data(), out.bytes().size());
  }

  template <class T>
  void load(std::size_t i, const nb::bytes& state, const Output<T>& observation) {
    GIPO_CHECK(observation.size() == size_);
    const std::lock_guard lock(mutex_);
    ByteWriter now;
    envs_.at(i)->save_state(now);
    if (state.size() != now.bytes().size()) {
      throw Error(fmt::format("{}: a state of {} bytes where {} belong: it is of another task or of other options",
                              spec().id, state.size(), now.bytes().size()));
    }
    ByteReader in({static_cast<const char*>(state.data()), state.size()});
    envs_.at(i)->load_state(in);
    observe(i);
    std::ranges::copy(row(i), observation.data());
  }

 private:
  std::span<double> row(std::size_t i) { return std::span(observed_).subspan(i * size_, size_); }
  void observe(std::size_t i) { envs_[i]->observe(row(i)); }

  template <class F>
  void each(F&& f) {
    const std::size_t parts = pool_.threads();
    pool_.run(parts, [&](std::size_t part) {
      for (std::size_t i = part * count() / parts; i < (part + 1) * count() / parts; ++i) f(i);
    });
  }

  std::vector<std::unique_ptr<Env>> envs_;
  std::size_t size_ = 0;          // of an observation
  std::vector<double> observed_;  // [N, size] the present observations
  ThreadPool pool_;
  std::mutex mutex_;
};

template <class T>
void add_typed(nb::class_<EnvBatch>& batch) {
  const auto array = [](const char* name) { return nb::arg(name).noconvert(); };
  batch
      .def("reset", &EnvBatch::reset<T>, array("chosen"), nb::arg("seeds"), array("observations"),
           "Begins an episode of the chosen environments.")
      .def("step", &EnvBatch::step<T>, array("actions"), nb::arg("mode"), array("observations"), array("reward"),
           array("terminated"), array("truncated"), array("final"),
           "One step of all; the simulations that broke down, by environment.")
      .def("load", &EnvBatch::load<T>, nb::arg("index"), nb::arg("state"), array("observation"),
           "Puts an environment back into a saved state.");
}

}  // namespace

void add_envs(nb::module_& m) {
  nb::enum_<Autoreset>(m, "Autoreset", "What follows the end of an episode.")
      .value("NEXT_STEP", Autoreset::kNextStep)
      .value("SAME_STEP", Autoreset::kSameStep)
      .value("DISABLED", Autoreset::kDisabled);
  nb::class_<EnvBatch> batch(m, "EnvBatch", "Environments of one task of gipo, stepped together.");
  batch
      .def(nb::init<const std::string&, std::size_t, const OptionValues&, std::optional<std::int64_t>, std::size_t>(),
           nb::arg("id"), nb::arg("count"), nb::arg("options"), nb::arg("time_limit").none(), nb::arg("threads"))
      .def_prop_ro(
          "spaces", [](const EnvBatch& b) { return native_spaces(b.spec()); }, "The spaces, as JSON.")
      .def_prop_ro(
          "time_limit", [](const EnvBatch& b) { return b.spec().time_limit; }, "Steps of an episode; 0: any.")
      .def("running", &EnvBatch::running, nb::arg("index"), "Whether an episode runs.")
      .def("save", &EnvBatch::save, nb::arg("index"), "The whole state of an environment.");
  add_typed<float>(batch);
  add_typed<double>(batch);
  m.def(
      "native_envs",
      [] {
        std::map<std::string, std::int64_t> limits;
        for (const EnvSpec& spec : registered_envs()) limits[spec.id] = spec.time_limit;
        return limits;
      },
      "Ids of the tasks of gipo with the steps of an episode.");
}

}  // namespace gipo::bindings
