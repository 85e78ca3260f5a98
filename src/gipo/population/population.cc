#include "gipo/population/population.h"

#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/core/stop.h"
#include "gipo/core/thread_pool.h"
#include "gipo/population/prepare.h"
#include "gipo/population/recorder.h"

namespace gipo::population {
namespace {

constexpr std::int64_t kUpdates = 500;      // of one launch
constexpr std::size_t kFilesOfARun = 6;     // logs, events and the lock
constexpr std::size_t kFilesOfOthers = 64;  // of the program

// How many runs may have their folders open at once; as many as the system allows.
std::size_t runs_by_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto files = static_cast<std::size_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  return files > kFilesOfOthers + kFilesOfARun ? (files - kFilesOfOthers) / kFilesOfARun : 1;
}

// Runs that are on the card together, from their first update to their last.
class Group {
 public:
  Group(Engine& engine, std::span<const Plan* const> plans, std::span<const RunSpec> specs, std::size_t first,
        const PopulationHooks& hooks, ThreadPool& pool)
      : engine_(engine), plans_(plans), specs_(specs), first_(first), hooks_(hooks), pool_(pool), runs_(plans.size()) {}

  bool train() {
    const double start = hooks_.seconds();
    engine_.begin(plans_, specs_);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      runs_[i].recorder = std::make_unique<Recorder>(*plans_[i], specs_[i], hooks_.command(first_ + i),
                                                     hooks_.wall_time, engine_.name());
    }
    bool under_way = true;
    engine_.launch(kUpdates);
    while (under_way) {
      engine_.wait();
      under_way = std::ranges::any_of(runs_, [&](const auto& run) { return goes_on(run, index(run)); });
      patience_ = under_way ? 0 : 1;
      if (interrupted()) return false;
      if (under_way) engine_.launch(kUpdates);
      // What was reported is written while the card goes on.
      pool_.run(runs_.size(), [&](std::size_t i) { record(i, hooks_.seconds() - start); });
      if (interrupted()) return false;
      for (std::size_t i = 0; i < runs_.size(); ++i) tell(i);
    }
    return true;
  }

 private:
  struct Kept {
    std::unique_ptr<Recorder> recorder;  // null once it has ended
    bool ended = false, told = false;
    std::string why;
  };

  std::size_t index(const Kept& run) const { return static_cast<std::size_t>(&run - runs_.data()); }
  bool interrupted() const { return hooks_.signals && hooks_.signals->load() > patience_; }

  bool goes_on(const Kept& run, std::size_t i) const {
    const RunState& state = *reinterpret_cast<const RunState*>(engine_.head(i));
    return !run.ended && state.version < specs_[i].updates && !state.not_finite &&
           state.skipped_in_a_row < specs_[i].max_bad_updates;
  }

  void record(std::size_t i, double seconds) {
    Kept& run = runs_[i];
    if (run.ended || stop_.requested()) return;
    if (interrupted()) return stop_.request();
    try {
      try {
        run.recorder->take(engine_.head(i), engine_.report(i));
      } catch (const RunError& e) {
        const Rejections rejections = engine_.rejections(i);
        run.why = e.what();
        if (!rejections.last.empty()) run.why += "; the last segment that was dropped: " + rejections.last;
        run.ended = true;
        run.recorder->fail(engine_.head(i), rejections, run.why, seconds);
      }
      if (!run.ended && run.recorder->done()) {
        run.recorder->finish(engine_.head(i), engine_.rejections(i), stop_, seconds);
        run.ended = true;
      }
    } catch (const Interrupted&) {       // it begins anew another time
    } catch (const std::exception& e) {  // a disk that is full: the other runs go on
      run.why = e.what();
      run.ended = true;
    }
  }

  void tell(std::size_t i) {
    Kept& run = runs_[i];
    if (run.recorder)
      hooks_.progress(first_ + i,
                      static_cast<double>(run.recorder->updates()) / static_cast<double>(specs_[i].updates));
    if (!run.ended || run.told) return;
    run.told = true;
    run.recorder.reset();
    hooks_.ended(first_ + i, run.why);
  }

  Engine& engine_;
  const std::span<const Plan* const> plans_;
  const std::span<const RunSpec> specs_;
  const std::size_t first_;
  const PopulationHooks& hooks_;
  ThreadPool& pool_;
  Stop stop_;
  int patience_ =
      0;  // signals that are let pass: one while the last evaluations are played, or all updates were for nothing
  std::vector<Kept> runs_;
};

}  // namespace

bool train_population(Engine& engine, std::span<const Plan* const> plans, const PopulationHooks& hooks) {
  std::vector<RunSpec> specs;
  for (const Plan* plan : plans) specs.push_back(card_spec(*plan, kUpdates));
  ThreadPool pool(std::max(1u, std::thread::hardware_concurrency()));
  const std::size_t most = runs_by_files();
  for (std::size_t first = 0; first < plans.size();) {
    const std::span<const RunSpec> rest = std::span<const RunSpec>(specs).subspan(first);
    const std::size_t count = std::min(engine.fits(rest), most);
    if (!Group(engine, plans.subspan(first, count), rest.first(count), first, hooks, pool).train()) return false;
    first += count;
  }
  return true;
}

}  // namespace gipo::population
