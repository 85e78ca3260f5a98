#include <fmt/format.h>

#include <algorithm>

#include "gipo/core/error.h"
#include "gipo/learner/cuda/memory.h"
#include "gipo/learner/cuda_learner.h"
#include "gipo/population/cuda/population.h"
#include "gipo/population/engine.h"
#include "gipo/population/prepare.h"

namespace gipo::population {
namespace {

using cuda::CardArray;
using cuda::check;
using cuda::PinnedArray;

constexpr int kThreads = 128;
constexpr double kMemoryShare = 0.9;  // of what is free

class CudaEngine final : public Engine {
 public:
  CudaEngine() {
    cuda::check_card_usable(0, "--device cuda", "without it a suite runs on the processor");
    int device = 0;
    check(cudaGetDevice(&device), "the card");
    int shared = 0;
    check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "the card");
    // The kernel has a little of its own.
    most_shared_ = static_cast<std::size_t>(shared) - 4096;
  }

  std::string name() const override { return card_name(); }

  std::size_t fits(std::span<const RunSpec> specs) const override {
    std::size_t free = 0, all = 0;
    check(cudaMemGetInfo(&free, &all), "the card's memory");
    free += heads_.size() + bodies_.size() + reports_.size();  // of those before, which go
    double bytes = 0;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const std::size_t shared = shared_bytes(specs[i], kThreads);
      if (shared > most_shared_) {
        throw Error(
            fmt::format("--device cuda: the networks and the batch of a run need {} KB of a multiprocessor's {} KB: "
                        "wanted narrower "
                        "policy.hidden or a smaller learner.batch_size; without --device cuda runs are the processor's",
                        shared >> 10, most_shared_ >> 10));
      }
      bytes += static_cast<double>(memory_bytes(specs[i])) + 64;
      if (bytes <= kMemoryShare * static_cast<double>(free)) continue;
      if (i > 0) return i;
      throw Error(
          fmt::format("--device cuda: one run needs {:.0f} MB of the card's memory, of which {:.0f} MB are free",
                      1e-6 * bytes, 1e-6 * static_cast<double>(free)));
    }
    return specs.size();
  }

  void begin(std::span<const Plan* const> plans, std::span<const RunSpec> specs) override {
    runs_ = specs.size();
    std::vector<RunPlace> places(runs_);
    RunPlace end;
    shared_ = 0;
    for (std::size_t i = 0; i < runs_; ++i) {
      places[i] = end;
      const auto add = [&](std::size_t& at, auto&& carve) {
        Carver carver(nullptr);
        RunMemory memory;
        carve(specs[i], memory, carver);
        at += carver.bytes();
      };
      add(end.head, carve_head);
      add(end.body, carve_body);
      add(end.report, carve_report);
      shared_ = std::max(shared_, shared_bytes(specs[i], kThreads));
    }
    prepare_population(shared_);
    places_on_host_ = places;
    heads_ = {};
    bodies_ = {};
    reports_ = {};
    heads_ = CardArray<char>(end.head);
    bodies_ = CardArray<char>(end.body);
    reports_ = CardArray<char>(end.report);
    head_copy_ = PinnedArray<char>(end.head);
    report_copy_ = PinnedArray<char>(end.report);
    specs_ = CardArray<RunSpec>(runs_);
    places_ = CardArray<RunPlace>(runs_);
    std::fill_n(head_copy_.data(), end.head, '\0');
    for (std::size_t i = 0; i < runs_; ++i) write_head(*plans[i], specs[i], head_copy_.data() + places[i].head);
    check(cudaMemcpy(heads_.data(), head_copy_.data(), end.head, cudaMemcpyHostToDevice), "a copy");
    check(cudaMemcpy(specs_.data(), specs.data(), specs.size_bytes(), cudaMemcpyHostToDevice), "a copy");
    check(cudaMemcpy(places_.data(), places.data(), runs_ * sizeof(RunPlace), cudaMemcpyHostToDevice), "a copy");
  }

  void launch(std::int64_t updates) override {
    advance_all({specs_.data(), places_.data(), heads_.data(), bodies_.data(), reports_.data(), updates},
                static_cast<int>(runs_), kThreads, shared_, stream_);
  }

  void wait() override {
    check(cudaMemcpyAsync(head_copy_.data(), heads_.data(), heads_.size(), cudaMemcpyDeviceToHost, stream_), "a copy");
    check(cudaMemcpyAsync(report_copy_.data(), reports_.data(), reports_.size(), cudaMemcpyDeviceToHost, stream_),
          "a copy");
    check(cudaStreamSynchronize(stream_), "a population");
  }

  const char* head(std::size_t run) const override { return head_copy_.data() + places_on_host_[run].head; }
  const char* report(std::size_t run) const override { return report_copy_.data() + places_on_host_[run].report; }

 private:
  std::size_t most_shared_ = 0, runs_ = 0, shared_ = 0;
  std::vector<RunPlace> places_on_host_;
  CardArray<char> heads_, bodies_, reports_;
  PinnedArray<char> head_copy_, report_copy_;
  CardArray<RunSpec> specs_;
  CardArray<RunPlace> places_;
  cuda::Stream stream_;
};

}  // namespace

std::unique_ptr<Engine> make_cuda_engine() { return std::make_unique<CudaEngine>(); }

}  // namespace gipo::population
