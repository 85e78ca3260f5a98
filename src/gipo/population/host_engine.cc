#include <algorithm>

#include "gipo/population/advance.h"
#include "gipo/population/engine.h"
#include "gipo/population/hosted.h"
#include "gipo/population/prepare.h"

namespace gipo::population {
namespace {

struct alignas(16) Sixteen {
  char bytes[16];
};

class HostEngine final : public Engine {
 public:
  HostEngine(std::size_t threads, std::size_t shared) : shared_(shared), envs_(threads) {}

  std::string name() const override { return "the host twin"; }
  std::size_t fits(std::span<const RunSpec> specs) const override { return specs.size(); }

  void begin(std::span<const Plan* const> plans, std::span<const RunSpec> specs) override {
    runs_.clear();
    std::vector<RunMemory> memories;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      Held& run = runs_.emplace_back();
      run.spec = spread(specs[i], 1, shared_);
      const auto room = [](std::vector<Sixteen>& piece, auto&& carve) {
        Carver sizes(nullptr);
        carve(sizes);
        piece.resize(sizes.bytes() / sizeof(Sixteen) + 1);
        Carver carver(piece.data()->bytes);
        carve(carver);
      };
      room(run.head, [&](Carver& c) { carve_head(run.spec, run.memory, c); });
      room(run.body, [&](Carver& c) { carve_body(run.spec, run.memory, c); });
      room(run.report, [&](Carver& c) { carve_report(run.spec, run.memory, c); });
      room(run.asked, [&](Carver& c) { carve_asked(run.spec, run.memory, c); });
      room(run.told, [&](Carver& c) { carve_told(run.spec, run.memory, c); });
      room(run.shared, [&](Carver& c) { run.work = carve_workspace<true>(run.spec, run.memory, 1, c); });
      write_head(*plans[i], run.spec, run.head.data()->bytes);
      memories.push_back(run.memory);
    }
    hosted_ = hosted_runs(specs);
    envs_.begin(plans, specs, memories);
  }

  // What is reported must stay until wait, which therefore does the work.
  void launch(std::int64_t updates) override { updates_ = updates; }
  void wait() override {
    OneThread team;
    for (Held& run : runs_) {
      if (run.spec.task == Task::kHosted) {
        take_turn(team, run.whole(), updates_);
      } else {
        advance(team, run.whole(), updates_);
      }
    }
    while (envs_.step(hosted_)) {
      for (const std::size_t i : hosted_) {
        if (*runs_[i].memory.acting) take_turn(team, runs_[i].whole(), 0);
      }
    }
    updates_ = 0;
  }
  const char* head(std::size_t run) const override { return runs_[run].head.data()->bytes; }
  const char* report(std::size_t run) const override { return runs_[run].report.data()->bytes; }
  Rejections rejections(std::size_t run) const override { return envs_.rejections(run); }

 private:
  struct Held {
    RunSpec spec;
    RunMemory memory{};
    Workspace work;
    std::vector<Sixteen> head, body, report, asked, told, shared;
    Run whole() const { return {spec, memory, work}; }
  };
  const std::size_t shared_;
  HostedEnvs envs_;
  std::vector<std::size_t> hosted_;
  std::int64_t updates_ = 0;  // of the launch
  std::vector<Held> runs_;
};

}  // namespace

std::unique_ptr<Engine> make_host_engine(std::size_t threads, std::size_t shared) {
  return std::make_unique<HostEngine>(threads, shared);
}

}  // namespace gipo::population
