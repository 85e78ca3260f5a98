#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <thread>

#include "gipo/core/error.h"
#include "gipo/learner/cuda/memory.h"
#include "gipo/learner/cuda_learner.h"
#include "gipo/population/cuda/population.h"
#include "gipo/population/engine.h"
#include "gipo/population/hosted.h"
#include "gipo/population/prepare.h"

namespace gipo::population {
namespace {

using cuda::CardArray;
using cuda::check;
using cuda::PinnedArray;

constexpr int kThreads = 128, kHostedThreads = 256;
// Hosted runs take turns in so many groups: the card has one while the host steps the environments of the others.
constexpr std::size_t kGroups = 2;
// Of hosted runs two share a multiprocessor; the kernel has a little shared memory of its own.
constexpr std::size_t kOwnShared = 4096;
constexpr double kMemoryShare = 0.9;  // of what is free

class CudaEngine final : public Engine {
 public:
  CudaEngine() {
    cuda::check_card_usable(0, "--device cuda", "without it a suite runs on the processor");
    int device = 0;
    check(cudaGetDevice(&device), "the card");
    int shared = 0;
    check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "the card");
    most_shared_ = static_cast<std::size_t>(shared) - kOwnShared;
    hosted_shared_ = static_cast<std::size_t>(shared) / 2 - kOwnShared;
  }
  ~CudaEngine() override {
    if (turns_.valid()) turns_.wait();
  }

  std::string name() const override { return card_name(); }

  std::size_t fits(std::span<const RunSpec> specs) const override {
    std::size_t free = 0, all = 0;
    check(cudaMemGetInfo(&free, &all), "the card's memory");
    // Of those before, which go.
    free += heads_.size() + bodies_.size() + reports_.size() + asked_.size() + told_.size();
    double bytes = 0;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const RunSpec spec = placed(specs[i]);
      const std::size_t shared = shared_bytes(spec, threads_of(spec));
      if (shared > most_shared_) {
        throw Error(
            fmt::format("--device cuda: the networks and the batch of a run need {} KB of a multiprocessor's {} KB: "
                        "wanted narrower "
                        "policy.hidden or a smaller learner.batch_size; without --device cuda runs are the processor's",
                        shared >> 10, most_shared_ >> 10));
      }
      bytes += static_cast<double>(memory_bytes(spec)) + 64;
      if (bytes <= kMemoryShare * static_cast<double>(free)) continue;
      if (i > 0) return i;
      throw Error(
          fmt::format("--device cuda: one run needs {:.0f} MB of the card's memory, of which {:.0f} MB are free",
                      1e-6 * bytes, 1e-6 * static_cast<double>(free)));
    }
    return specs.size();
  }

  void begin(std::span<const Plan* const> plans, std::span<const RunSpec> specs) override {
    specs_on_host_.clear();
    for (const RunSpec& spec : specs) specs_on_host_.push_back(placed(spec));
    make_groups();
    places_on_host_.assign(specs.size(), {});
    RunPlace end;
    shared_ = turn_shared_ = 0;
    const auto place = [&](std::size_t run) {
      const RunSpec& spec = specs_on_host_[run];
      places_on_host_[run] = end;
      const auto add = [&](std::size_t& at, auto&& carve) {
        Carver carver(nullptr);
        RunMemory memory;
        carve(spec, memory, carver);
        at += carver.bytes();
      };
      add(end.head, carve_head);
      add(end.body, carve_body);
      add(end.report, carve_report);
      add(end.asked, carve_asked);
      add(end.told, carve_told);
      std::size_t& most = spec.task == Task::kHosted ? turn_shared_ : shared_;
      most = std::max(most, shared_bytes(spec, threads_of(spec)));
    };
    for (const std::size_t run : advancing_) place(run);
    for (const auto& group : groups_) {
      group->begin = end;
      for (const std::size_t run : group->runs) place(run);
      group->end = end;
    }
    prepare_population(shared_, turn_shared_);
    for (CardArray<char>* piece : {&heads_, &bodies_, &reports_, &asked_, &told_}) *piece = {};
    heads_ = CardArray<char>(end.head);
    bodies_ = CardArray<char>(end.body);
    reports_ = CardArray<char>(end.report);
    asked_ = CardArray<char>(end.asked);
    told_ = CardArray<char>(end.told);
    head_copy_ = PinnedArray<char>(end.head);
    report_copy_ = PinnedArray<char>(end.report);
    asked_copy_ = PinnedArray<char>(end.asked);
    told_copy_ = PinnedArray<char>(end.told);
    specs_ = CardArray<RunSpec>(specs.size());
    places_ = CardArray<RunPlace>(specs.size());
    std::fill_n(head_copy_.data(), end.head, '\0');
    std::vector<RunMemory> memories(specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      write_head(*plans[i], specs[i], head_copy_.data() + places_on_host_[i].head);
      Carver asked(asked_copy_.data() + places_on_host_[i].asked), told(told_copy_.data() + places_on_host_[i].told);
      carve_asked(specs_on_host_[i], memories[i], asked);
      carve_told(specs_on_host_[i], memories[i], told);
    }
    copy_in(heads_, head_copy_.data());
    copy_in(specs_, specs_on_host_.data());
    copy_in(places_, places_on_host_.data());
    envs_.begin(plans, specs_on_host_, memories);
  }

  void launch(std::int64_t updates) override {
    if (!advancing_.empty()) {
      CardPopulation all = population(updates);
      all.runs = advancing_on_card_.data();
      advance_all(all, static_cast<int>(advancing_.size()), kThreads, shared_, stream_);
    }
    if (!groups_.empty()) turns_ = std::async(std::launch::async, [this, updates] { take_all_turns(updates); });
  }

  void wait() override {
    if (turns_.valid()) turns_.get();
    check(cudaMemcpyAsync(head_copy_.data(), heads_.data(), heads_.size(), cudaMemcpyDeviceToHost, stream_), "a copy");
    check(cudaMemcpyAsync(report_copy_.data(), reports_.data(), reports_.size(), cudaMemcpyDeviceToHost, stream_),
          "a copy");
    check(cudaStreamSynchronize(stream_), "a population");
  }

  const char* head(std::size_t run) const override { return head_copy_.data() + places_on_host_[run].head; }
  const char* report(std::size_t run) const override { return report_copy_.data() + places_on_host_[run].report; }

  Rejections rejections(std::size_t run) const override { return envs_.rejections(run); }

 private:
  // Hosted runs that are on the card together. What they ask and are told lies in one piece, from the first run to the last.
  struct Group {
    std::vector<std::size_t> runs;  // those whose steps take longest first
    CardArray<int> on_card;
    RunPlace begin, end;
    cuda::Stream stream;
    cuda::Event turned;
    bool under_way = false;
  };

  static int threads_of(const RunSpec& spec) { return spec.task == Task::kHosted ? kHostedThreads : kThreads; }
  RunSpec placed(const RunSpec& spec) const {
    return spec.task == Task::kHosted ? spread(spec, kHostedThreads, hosted_shared_) : spec;
  }

  template <class T>
  static void copy_in(const CardArray<T>& to, const T* from) {
    check(cudaMemcpy(to.data(), from, to.size() * sizeof(T), cudaMemcpyHostToDevice), "a copy");
  }
  static CardArray<int> numbers(const std::vector<std::size_t>& runs) {
    const std::vector<int> list(runs.begin(), runs.end());
    CardArray<int> array(list.size());
    copy_in(array, list.data());
    return array;
  }

  CardPopulation population(std::int64_t updates) const {
    return {specs_.data(),   places_.data(), nullptr,      heads_.data(), bodies_.data(),
            reports_.data(), asked_.data(),  told_.data(), updates};
  }

  void make_groups() {
    advancing_.clear();
    groups_.clear();
    const std::vector<std::size_t> hosted = hosted_runs(specs_on_host_);
    for (std::size_t g = 0; g < kGroups && g < hosted.size(); ++g) {
      Group& group = *groups_.emplace_back(std::make_unique<Group>());
      for (std::size_t i = g; i < hosted.size(); i += kGroups) group.runs.push_back(hosted[i]);
      group.on_card = numbers(group.runs);
    }
    for (std::size_t i = 0; i < specs_on_host_.size(); ++i) {
      if (specs_on_host_[i].task != Task::kHosted) advancing_.push_back(i);
    }
    advancing_on_card_ = numbers(advancing_);
  }

  // What the host tells goes to the card, the runs take their turn, and what they ask comes back.
  void begin_turn(Group& group, std::int64_t updates) {
    const auto piece = [&](std::size_t RunPlace::*which) { return group.end.*which - group.begin.*which; };
    check(cudaMemcpyAsync(told_.data() + group.begin.told, told_copy_.data() + group.begin.told, piece(&RunPlace::told),
                          cudaMemcpyHostToDevice, group.stream),
          "a copy");
    CardPopulation all = population(updates);
    all.runs = group.on_card.data();
    take_turns(all, static_cast<int>(group.runs.size()), kHostedThreads, turn_shared_, group.stream);
    check(cudaMemcpyAsync(asked_copy_.data() + group.begin.asked, asked_.data() + group.begin.asked,
                          piece(&RunPlace::asked), cudaMemcpyDeviceToHost, group.stream),
          "a copy");
    group.turned.record(group.stream);
    group.under_way = true;
  }

  void take_all_turns(std::int64_t updates) {
    for (const auto& group : groups_) begin_turn(*group, updates);
    for (bool any = true; any;) {
      any = false;
      for (const auto& group : groups_) {
        if (!group->under_way) continue;
        group->turned.wait();
        group->under_way = envs_.step(group->runs);
        if (!group->under_way) continue;
        begin_turn(*group, 0);
        any = true;
      }
    }
  }

  std::size_t most_shared_ = 0, hosted_shared_ = 0;
  std::size_t shared_ = 0, turn_shared_ = 0;  // of a block of each kind
  std::vector<RunSpec> specs_on_host_;
  std::vector<RunPlace> places_on_host_;
  CardArray<char> heads_, bodies_, reports_, asked_, told_;
  PinnedArray<char> head_copy_, report_copy_, asked_copy_, told_copy_;
  CardArray<RunSpec> specs_;
  CardArray<RunPlace> places_;
  std::vector<std::size_t> advancing_;  // runs whose tasks step on the card
  CardArray<int> advancing_on_card_;
  HostedEnvs envs_{std::max(1u, std::thread::hardware_concurrency())};
  std::vector<std::unique_ptr<Group>> groups_;
  std::future<void> turns_;  // of the launch
  cuda::Stream stream_;
};

}  // namespace

std::unique_ptr<Engine> make_cuda_engine() { return std::make_unique<CudaEngine>(); }

}  // namespace gipo::population
