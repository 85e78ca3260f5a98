#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>
#include <signal.h>

#include <chrono>
#include <exception>

#include "gipo/bindings/bindings.h"
#include "gipo/core/error.h"
#include "gipo/train/memory.h"
#include "gipo/train/resume.h"
#include "gipo/train/trainer.h"

namespace gipo::bindings {
namespace {

namespace nb = nanobind;

// What Python wants to hear of a run; each is called with the interpreter's lock held, and may be None.
struct Listeners {
  nb::object start;     // (name, what is said at the start), once
  nb::object line;      // (figures), at most every `interval` seconds and at the end
  nb::object callback;  // (figures) after every logged update; a false value that is not None ends the run
  nb::object warn;      // (text)
  double interval = 0;
  bool main_thread = false;  // Ctrl-C arrives there
};

// Ctrl-C while Python's lock is released: Python's own handler only takes a note of it. This one also ends the run.
std::atomic<std::atomic<bool>*> run_to_stop{nullptr};
struct sigaction previous_action;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::atomic<bool>*>::is_always_lock_free);

extern "C" void on_interrupt(int signal) {
  if (std::atomic<bool>* stop = run_to_stop) stop->store(true);
  if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN)
    previous_action.sa_handler(signal);
}

class InterruptGuard {
 public:
  InterruptGuard(std::atomic<bool>& stop, bool wanted) : installed_(wanted && !run_to_stop) {
    if (!installed_) return;
    run_to_stop = &stop;
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &previous_action);
  }
  ~InterruptGuard() {
    if (!installed_) return;
    sigaction(SIGINT, &previous_action, nullptr);
    run_to_stop = nullptr;
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  bool installed_;
};

nb::dict to_dict(const Progress& p) {
  nb::dict figures;
  figures["update"] = p.update;
  figures["updates"] = p.updates;
  figures["env_steps"] = p.env_steps;
  figures["total_env_steps"] = p.total_env_steps;
  figures["seconds"] = p.seconds;
  for (const auto& [name, value] : *p.figures) figures[name.c_str()] = value;
  return figures;
}

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class Session {
 public:
  explicit Session(const Listeners& listeners) : listeners_(listeners) {}

  // Trains to the end, with Python's lock released. An exception of a listener, and Ctrl-C, end the run as an
  // interruption does, with a checkpoint, and are raised after it.
  void run(const Plan& plan, RunFolder& folder, const Checkpoint* checkpoint) {
    if (!listeners_.start.is_none()) listeners_.start(plan.name, opening(plan));
    {
      const InterruptGuard guard(stop_, listeners_.main_thread);
      check_signals();  // Ctrl-C of before: nobody would hear of it
      const nb::gil_scoped_release released;
      Trainer trainer(plan, folder, hooks());
      if (checkpoint) trainer.restore(*checkpoint);
      trainer.run();
    }
    if (raised_) std::rethrow_exception(raised_);
    check_signals();
  }

 private:
  TrainerHooks hooks() {
    TrainerHooks hooks;
    hooks.seconds = [start = std::chrono::steady_clock::now()] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    hooks.progress = [this](const Progress& p) { progress(p); };
    hooks.warn = [this](const std::string& text) { tell([&] { listeners_.warn(text); }); };
    hooks.stop = &stop_;
    return hooks;
  }

  void progress(const Progress& p) {
    const bool due = p.update == p.updates || p.seconds - shown_at_ >= listeners_.interval;
    const bool show = due && !listeners_.line.is_none();
    if (!show && listeners_.callback.is_none()) return;
    if (show) shown_at_ = p.seconds;
    tell([&] {
      const nb::dict figures = to_dict(p);
      if (show) listeners_.line(figures);
      if (listeners_.callback.is_none()) return;
      const nb::object said = listeners_.callback(figures);
      if (said.is_none()) return;
      const int truth = PyObject_IsTrue(said.ptr());
      if (truth < 0) throw nb::python_error();
      if (truth == 0) stop_ = true;
    });
  }

  template <class F>
  void tell(F&& f) {
    if (raised_) return;
    const nb::gil_scoped_acquire held;
    try {
      f();
    } catch (...) {
      raised_ = std::current_exception();
      stop_ = true;
    }
  }

  const Listeners& listeners_;
  std::atomic<bool> stop_{false};
  std::exception_ptr raised_;
  double shown_at_ = -1e9;
};

using NamedValues = std::vector<std::pair<std::string, OptionValue>>;

// Makes the plan of a config file (none: empty) and options on top of it.
Plan plan_of(const std::string& config, const NamedValues& options, const std::string& where) {
  LoadedConfig loaded = config.empty() ? LoadedConfig{} : load_config(config);
  for (const auto& [key, value] : options) set_option(loaded, key, value, where);
  const nb::gil_scoped_release released;  // a task may take its time to be made
  Plan plan = make_plan(loaded);
  refuse_what_does_not_fit(plan, loaded.origins);
  return plan;
}

std::string train(const std::string& config, const NamedValues& options, bool overwrite, const std::string& command,
                  const Listeners& listeners) {
  const Plan plan = plan_of(config, options, "gipo.train");
  if (overwrite) remove_run(plan.run_dir);
  RunFolder folder(plan, command, wall_time);
  Session(listeners).run(plan, folder, nullptr);
  return plan.run_dir;
}

std::string resume(const std::string& run, std::optional<std::int64_t> updates, const std::string& command,
                   const Listeners& listeners) {
  const ResumePoint point = [&] {
    const nb::gil_scoped_release released;
    return find_resume_point(run, updates);
  }();
  for (const std::string& text : point.passed_over) listeners.warn(text);
  RunFolder folder(point.plan, command, wall_time, point.positions);
  Session(listeners).run(point.plan, folder, &point.checkpoint);
  return point.plan.run_dir;
}

}  // namespace

void add_training(nb::module_& m) {
  nb::class_<Listeners>(m, "Listeners", "What is called while a run goes on.")
      .def(
          "__init__",
          [](Listeners* self, const nb::object& start, const nb::object& line, const nb::object& callback,
             const nb::object& warn, double interval,
             bool main_thread) { new (self) Listeners{start, line, callback, warn, interval, main_thread}; },
          nb::arg("start").none(), nb::arg("line").none(), nb::arg("callback").none(), nb::arg("warn"),
          nb::arg("interval"), nb::arg("main_thread"));
  m.def("train", &train, nb::arg("config"), nb::arg("options"), nb::arg("overwrite"), nb::arg("command"),
        nb::arg("listeners"), "Trains to the end; the run folder.");
  m.def("resume", &resume, nb::arg("run"), nb::arg("updates").none(), nb::arg("command"), nb::arg("listeners"),
        "Goes on with a run; the run folder.");
}

}  // namespace gipo::bindings
