#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "gipo/bench/clock.h"
#include "gipo/bindings/bindings.h"
#include "gipo/core/error.h"
#include "gipo/core/signals.h"
#include "gipo/learner/ranks.h"
#include "gipo/plan/automatic.h"
#include "gipo/plan/memory.h"
#include "gipo/plan/presets.h"
#include "gipo/plan/zoo.h"
#include "gipo/run/first_weights.h"
#include "gipo/run/resume.h"
#include "gipo/train/trainer.h"

namespace gipo::bindings {
namespace {

namespace nb = nanobind;

// What Python wants to hear of a run; each is called with the interpreter's lock held, and all but start and warn
// may be None.
struct Listeners {
  nb::object start;  // (name, what is said at the start, run folder), once
  nb::object line;   // (figures), at most every `interval` seconds and at the end; also during the warm-up
  // (figures, policy) after every logged update, every evaluation and every training episode. policy() is the policy of
  // that moment, while the call lasts. They return whether the run is to go on.
  nb::object update, evaluation, episode;
  nb::object warn;  // (text)
  double interval = 0;
  bool main_thread = false;  // Ctrl-C arrives there
};

// Ctrl-C while a run goes on: Python's own handler only takes a note of it. This one also asks the run to end.
struct Interrupts {
  SignalRequest request;
  std::atomic<bool> again{false};
};
std::atomic<Interrupts*> run_to_stop{nullptr};
struct sigaction previous_action;
static_assert(std::atomic<Interrupts*>::is_always_lock_free);

extern "C" void on_interrupt(int signal) {
  if (Interrupts* run = run_to_stop) {
    const SignalRequest::Heard heard = run->request.hear();
    if (heard == SignalRequest::Heard::kFirst) SignalRequest::say_stopping();
    if (heard == SignalRequest::Heard::kAgain) run->again = true;
  }
  if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN)
    previous_action.sa_handler(signal);
}

class InterruptGuard {
 public:
  InterruptGuard(Interrupts& run, bool wanted) : installed_(wanted && !run_to_stop) {
    if (!installed_) return;
    run_to_stop = &run;
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

void add(nb::dict& figures, const ReturnStats& s) {
  figures["mean"] = s.mean;
  figures["std"] = s.std;
  figures["episodes"] = s.episodes;
  if (!s.success_rate) return;
  figures["success_rate"] = *s.success_rate;
  figures["success_rate_last"] = *s.success_rate_last;
}

// The fields of a line of evaluations.jsonl, and whether it is the best so far.
nb::dict to_dict(const EvaluationNews& e) {
  nb::dict figures;
  figures["update"] = e.weights.version;
  figures["env_steps"] = e.env_steps;
  add(figures, e.result.returns);
  figures["best"] = e.best;
  return figures;
}

// Those of a line of episodes.jsonl.
nb::dict to_dict(const Episode& e) {
  nb::dict figures;
  figures["env"] = e.env;
  figures["episode"] = e.number;
  figures["return"] = e.episode_return;
  figures["length"] = e.length;
  figures["env_steps"] = e.env_steps;
  figures["version"] = e.version;
  figures["terminated"] = e.terminated;
  if (!e.success.known) return figures;
  figures["success"] = e.success.ever;
  figures["success_last"] = e.success.last;
  return figures;
}

nb::dict to_dict(const Progress& p) {
  nb::dict figures;
  figures["update"] = p.update;
  figures["updates"] = p.updates;
  figures["env_steps"] = p.env_steps;
  figures["total_env_steps"] = p.total_env_steps;
  figures["seconds"] = p.seconds;
  if (p.figures) {
    for (const auto& [name, value] : *p.figures) figures[name.c_str()] = value;
  } else {
    figures["warmup"] = p.warmup;
  }
  return figures;
}

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// A run on a thread of its own, so that the caller's can always be interrupted. What Python is to hear is done by the
// caller's thread, which waits for that and for the end of the run. Owned by both threads.
class RunThread {
 public:
  // Calls work() on the thread; returns at once.
  static void start(const std::shared_ptr<RunThread>& run, std::function<void()> work) {
    std::thread([run, work = std::move(work)]() mutable {
      try {
        work();
      } catch (...) {
        run->error_ = std::current_exception();
      }
      work = nullptr;  // whoever waits may count on its end
      const std::lock_guard lock(run->mutex_);
      run->ended_ = true;
      run->changed_.notify_all();
    }).detach();
  }

  // On the run's thread: has f called by the caller's, and waits for that. Nothing where the caller no longer waits.
  void tell(const std::function<void()>& f) {
    std::unique_lock lock(mutex_);
    if (left_) return;
    asked_ = &f;
    changed_.notify_all();
    changed_.wait(lock, [&] { return asked_ == nullptr; });
  }

  // On the caller's thread, with Python's lock held, which is released while it waits: carries out what it is asked
  // until the run has ended. look() is called several times a second; where it throws, the run is left to itself.
  template <class F>
  void attend(F&& look) {
    bool ended = false;
    while (!ended) {
      const std::function<void()>* f = nullptr;
      {
        const nb::gil_scoped_release released;
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::milliseconds(50), [&] { return asked_ || ended_; });
        f = asked_;
        ended = ended_;
      }
      if (f) (*f)();
      answer(f != nullptr, false);
      try {
        look();
      } catch (...) {
        answer(true, true);
        throw;
      }
    }
    if (error_) std::rethrow_exception(error_);
  }

  const std::atomic<bool>& stop() const { return stop_; }
  const std::atomic<bool>& finish() const { return finish_; }
  void request_stop() { stop_ = true; }
  void request_finish() { finish_ = true; }

 private:
  void answer(bool answered, bool leave) {
    if (!answered) return;
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    asked_ = nullptr;
    left_ = left_ || leave;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* asked_ = nullptr;
  bool ended_ = false, left_ = false;
  std::exception_ptr error_;
  std::atomic<bool> stop_{false}, finish_{false};
};

// What the run's thread needs; it may outlive the call.
struct Work {
  Plan plan;
  std::unique_ptr<RunFolder> folder;
  std::optional<Checkpoint> checkpoint;
  std::shared_ptr<const Weights> first;
  std::vector<std::string> chosen;  // settings that nobody gave, and why
  Trainer* trainer = nullptr;       // while it is there
};

// One call of train or resume, on the caller's thread.
class Session {
 public:
  explicit Session(const Listeners& listeners) : listeners_(listeners) {}

  // Trains to the end, with Python's lock released. An exception of a listener, and Ctrl-C, end the run as an
  // interruption does, with a checkpoint, and are raised after it; Ctrl-C a second time is raised at once.
  // positions: of the logs, where a run is resumed.
  void run(const std::shared_ptr<Work>& work, const std::string& command, const LogPositions* positions) {
    Interrupts interrupts;
    {
      const InterruptGuard guard(interrupts, listeners_.main_thread);
      check_signals();  // Ctrl-C of before: nobody would hear of it
      // From here on there is a run folder, which an interruption is to leave with a checkpoint.
      work->folder = positions ? std::make_unique<RunFolder>(work->plan, command, wall_time, *positions)
                               : std::make_unique<RunFolder>(work->plan, command, wall_time);
      for (const std::string& line : work->chosen) work->folder->log(line);
      std::vector<std::string> words = work->chosen;
      words.push_back(opening(work->plan));
      hear([&] { listeners_.start(work->plan.name, fmt::format("{}", fmt::join(words, "\n")), work->plan.run_dir); });
      const auto thread = std::make_shared<RunThread>();
      RunThread::start(thread, [work, hooks = hooks(*thread, *work)] {
        Trainer trainer(work->plan, *work->folder, hooks, std::exchange(work->first, {}));
        work->trainer = &trainer;
        if (work->checkpoint) trainer.restore(*work->checkpoint);
        work->checkpoint.reset();
        trainer.run();
      });
      thread->attend([&] {
        if (raised_ || interrupts.request.stop()) thread->request_stop();
        if (interrupts.again) check_signals();
      });
    }
    if (raised_) std::rethrow_exception(raised_);
    check_signals();
  }

 private:
  // They are called on the run's thread, which may outlive this object: what they tell is done by the caller's alone.
  TrainerHooks hooks(RunThread& run, Work& work) {
    TrainerHooks hooks;
    hooks.seconds = [start = steady_time()] { return steady_time() - start; };
    hooks.progress = [this, &run, &work, interval = listeners_.interval, line = !listeners_.line.is_none(),
                      every = !listeners_.update.is_none(), shown_at = -1e9](const Progress& p) mutable {
      const bool show = line && (p.update == p.updates || p.seconds - shown_at >= interval);
      const bool tell = every && p.figures;
      if (!show && !tell) return;
      if (show) shown_at = p.seconds;
      run.tell([&] {
        hear([&] {
          const nb::dict figures = to_dict(p);
          if (show) listeners_.line(figures);
          if (tell)
            ask(
                listeners_.update, figures, run, [&] { return *work.trainer->current_weights(); }, work.plan);
        });
      });
    };
    if (!listeners_.evaluation.is_none()) {
      hooks.evaluation = [this, &run, &work](const EvaluationNews& e) {
        run.tell([&] {
          hear([&] {
            ask(
                listeners_.evaluation, to_dict(e), run, [&] { return e.weights; }, work.plan);
          });
        });
      };
    }
    if (!listeners_.episode.is_none()) {
      hooks.episodes = [this, &run, &work](std::span<const Episode> episodes) {
        run.tell([&] {
          for (const Episode& e : episodes) {
            hear([&] {
              ask(
                  listeners_.episode, to_dict(e), run, [&] { return *work.trainer->current_weights(); }, work.plan);
            });
          }
        });
      };
    }
    hooks.warn = [this, &run](const std::string& text) { run.tell([&] { hear([&] { listeners_.warn(text); }); }); };
    hooks.stop = &run.stop();
    hooks.finish = &run.finish();
    return hooks;
  }

  // Calls a listener; where it says so, the run ends. The run waits meanwhile, so that its weights may be copied.
  void ask(const nb::object& listener, const nb::dict& figures, RunThread& run, std::function<Weights()> weights,
           const Plan& plan) {
    const auto moment = std::make_shared<std::function<Weights()>>(std::move(weights));
    const nb::object policy = nb::cpp_function([moment, &plan] {
      if (!*moment) throw Error("policy(): the run has gone on; call it before the callback returns");
      const std::string file = weights_to_safetensors(plan.model, (*moment)(), plan.env.id);
      return acting_policy(policy_from_safetensors(file, "the policy of the run"));
    });
    struct End {
      std::function<Weights()>& moment;
      ~End() { moment = nullptr; }
    } end{*moment};
    const nb::object said = listener(figures, policy);
    if (!nb::cast<bool>(said)) run.request_finish();
  }

  // The first exception is kept, and ends the run.
  template <class F>
  void hear(F&& f) {
    if (raised_) return;
    try {
      f();
    } catch (...) {
      raised_ = std::current_exception();
    }
  }

  const Listeners& listeners_;
  std::exception_ptr raised_;
};

// What Python gave, which gipo/options.py has made of plain objects. Text with half a character pair in it has no UTF-8.
OptionValue to_option(const std::string& key, nb::handle object, std::size_t level = 0) {
  const auto refuse = [&](const char* why) {
    throw Error(fmt::format("gipo.train: {} = {} is not accepted: {}", key, nb::repr(object).c_str(), why));
  };
  if (object.is_none()) return Nested{};
  if (nb::isinstance<nb::bool_>(object)) return nb::cast<bool>(object);
  if (nb::isinstance<nb::float_>(object)) return nb::cast<double>(object);
  if (nb::isinstance<nb::int_>(object)) {
    std::int64_t whole = 0;
    if (!nb::try_cast(object, whole)) refuse("wanted an integer of 64 bits");
    return whole;
  }
  if (nb::isinstance<nb::str>(object)) {
    std::string text;
    if (!nb::try_cast(object, text)) refuse("text in UTF-8 is wanted");
    return text;
  }
  if (level == kMostLevels) refuse("it has too many levels of lists and dictionaries");
  if (nb::isinstance<nb::dict>(object)) {
    Nested table{Nested::Kind::kTable, {}};
    for (const auto& [name, value] : nb::borrow<nb::dict>(object)) {
      table.items.push_back(
          {std::get<std::string>(to_option(key, name, kMostLevels)), to_option(key, value, level + 1)});
    }
    return table;
  }
  std::vector<OptionValue> items;
  for (const nb::handle item : nb::borrow<nb::list>(object)) items.push_back(to_option(key, item, level + 1));
  return list_value(std::move(items));
}

using NamedValues = std::vector<std::pair<std::string, nb::object>>;

// Makes the plan of a config file (none: empty) and options on top of it, and what the run begins with.
void prepare(Work& work, const std::string& config, const NamedValues& options, const std::string& where) {
  std::vector<std::pair<std::string, OptionValue>> given;
  for (const auto& [key, value] : options) given.emplace_back(key, to_option(key, value));
  const nb::gil_scoped_release released;  // a task may take its time to be made
  const auto [loaded, chosen] = choose_config(config, [&](LoadedConfig& into) {
    for (const auto& [key, value] : given) set_option(into, key, value, where);
  });
  work.plan = make_plan(loaded);
  work.chosen = chosen;
  work.first = first_weights(work.plan, loaded.origins);
  refuse_what_does_not_fit(work.plan, loaded.origins);
  refuse_ranks(work.plan.config.learner.ranks);
}

std::string train(const std::string& config, const NamedValues& options, bool overwrite, const std::string& command,
                  const Listeners& listeners) {
  const auto work = std::make_shared<Work>();
  prepare(*work, config, options, "gipo.train");
  if (overwrite) remove_run(work->plan.run_dir);
  std::string run_dir = work->plan.run_dir;
  Session(listeners).run(work, command, nullptr);
  return run_dir;
}

std::string resume(const std::string& run, std::optional<std::int64_t> updates, std::optional<std::int64_t> env_steps,
                   const std::string& command, const Listeners& listeners) {
  ResumePoint point = [&] {
    const nb::gil_scoped_release released;
    return find_resume_point(run, {updates, env_steps});
  }();
  refuse_ranks(point.plan.config.learner.ranks);
  for (const std::string& text : point.passed_over) listeners.warn(text);
  const auto work = std::make_shared<Work>();
  work->plan = std::move(point.plan);
  work->checkpoint = std::move(point.checkpoint);
  std::string run_dir = work->plan.run_dir;
  Session(listeners).run(work, command, &point.positions);
  return run_dir;
}

}  // namespace

void add_training(nb::module_& m) {
  nb::class_<Listeners>(m, "Listeners", "What is called while a run goes on.")
      .def(
          "__init__",
          [](Listeners* self, const nb::object& start, const nb::object& line, const nb::object& update,
             const nb::object& evaluation, const nb::object& episode, const nb::object& warn, double interval,
             bool main_thread) {
            new (self) Listeners{start, line, update, evaluation, episode, warn, interval, main_thread};
          },
          nb::arg("start"), nb::arg("line").none(), nb::arg("update").none(), nb::arg("evaluation").none(),
          nb::arg("episode").none(), nb::arg("warn"), nb::arg("interval"), nb::arg("main_thread"));
  m.def(
      "presets",
      [] {
        std::vector<std::pair<std::string, std::string>> all;
        for (const PresetConfig& preset : preset_configs()) all.emplace_back(preset.name, preset.about());
        return all;
      },
      "Names of the ready-made configs, and what each is.");
  m.def("zoo_as_json", &zoo_as_json, "The zoo, as JSON.");
  m.def("train", &train, nb::arg("config"), nb::arg("options"), nb::arg("overwrite"), nb::arg("command"),
        nb::arg("listeners"), "Trains to the end; the run folder.");
  m.def("resume", &resume, nb::arg("run"), nb::arg("updates").none(), nb::arg("env_steps").none(), nb::arg("command"),
        nb::arg("listeners"), "Goes on with a run; the run folder.");
}

}  // namespace gipo::bindings
