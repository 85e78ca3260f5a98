#include <algorithm>

#include "gipo/population/advance.h"
#include "gipo/population/engine.h"
#include "gipo/population/prepare.h"

namespace gipo::population {
namespace {

struct alignas(16) Sixteen {
  char bytes[16];
};

class HostEngine final : public Engine {
 public:
  std::string name() const override { return "the host twin"; }
  std::size_t fits(std::span<const RunSpec> specs) const override { return specs.size(); }

  void begin(std::span<const Plan* const> plans, std::span<const RunSpec> specs) override {
    runs_.clear();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      Held& run = runs_.emplace_back();
      run.spec = specs[i];
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
      room(run.shared, [&](Carver& c) { run.work = carve_workspace(run.spec, 1, c); });
      write_head(*plans[i], run.spec, run.head.data()->bytes);
    }
  }

  // What is reported must stay until wait, which therefore does the work.
  void launch(std::int64_t updates) override { updates_ = updates; }
  void wait() override {
    OneThread team;
    for (Held& run : runs_) advance(team, Run{run.spec, run.memory, run.work}, run.memory.state->version + updates_);
    updates_ = 0;
  }
  const char* head(std::size_t run) const override { return runs_[run].head.data()->bytes; }
  const char* report(std::size_t run) const override { return runs_[run].report.data()->bytes; }

 private:
  struct Held {
    RunSpec spec;
    RunMemory memory;
    Workspace work;
    std::vector<Sixteen> head, body, report, shared;
  };
  std::int64_t updates_ = 0;  // of the launch
  std::vector<Held> runs_;
};

}  // namespace

std::unique_ptr<Engine> make_host_engine() { return std::make_unique<HostEngine>(); }

}  // namespace gipo::population
