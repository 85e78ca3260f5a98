#include "gipo/env/bridge/bridged_env.h"

#include <algorithm>
#include <cstring>

#include "gipo/core/error.h"

namespace gipo {
namespace {

// One environment of a worker. Begins the next episode together with the step that ends one, so that no round is spent
// on resets; the true final observation stands beside the first one of the next episode.
class BridgedEnv final : public Env {
 public:
  BridgedEnv(std::shared_ptr<Bridge> bridge, std::size_t i)
      : Env(bridge->spec()), bridge_(std::move(bridge)), place_(bridge_->place_of(i)) {}

  void begin_step(std::span<const double> action) override {
    finish_reset();
    bridge_->settle(place_.worker);
    begun_ = true;
    if (lost()) return;
    std::ranges::copy(action, slots().action(place_.slot).begin());
    order(!bridge_->restarts() ? Command::kStep : last_step() ? Command::kStepAndLeave : Command::kStepAndRestart);
  }

  void observe(std::span<double> observation) const override {
    GIPO_CHECK(is_plain(spec().fields));
    finish_reset();
    std::copy_n(reinterpret_cast<const float*>(seen(0)), observation.size(), observation.begin());
  }

  std::string last_death() const override { return bridge_->last_death(); }
  void leave() override { bridge_->leave(); }

  void save_physics(ByteWriter&) const override { refuse(); }
  void load_physics(ByteReader&) override { refuse(); }

 private:
  void observe_fields(ObservationRow out) const override {
    finish_reset();
    for (std::size_t f = 0; f < out.size(); ++f) std::memcpy(out[f], seen(f), slots().row_bytes[f]);
  }

  void seeded(std::uint64_t seed) override {
    seed_ = seed;
    new_seed_ = true;
  }

  void start_episode(RandomStream&) override {
    const bool started = !lost() && !new_seed_ && (slots().flags()[place_.slot] & kStartedBit) != 0 && !at_start_;
    at_start_ = true;
    if (!started) order_reset();
  }

  Outcome advance(std::span<const double> action) override {
    if (!begun_) begin_step(action);
    begun_ = false;
    await();
    if (lost()) return {0, false, kWorkerDied};
    at_start_ = false;
    const std::uint8_t flags = slots().flags()[place_.slot];
    return {slots().reward()[place_.slot], (flags & kTerminatedBit) != 0, nullptr, (flags & kTruncatedBit) != 0,
            slots().success()[place_.slot]};
  }

  const std::byte* seen(std::size_t field) const {
    return at_start_ ? slots().start(field, place_.slot) : slots().observation(field, place_.slot);
  }

  const Slots& slots() const { return bridge_->slots(place_.worker); }
  // The worker that held the episode is gone, and another is in its place.
  bool lost() const { return incarnation_ != bridge_->incarnation(place_.worker); }

  void order(Command command) const {
    bridge_->order(place_, command);
    due_ = bridge_->rounds(place_.worker) + 1;
  }
  // Until the command is carried out, or its worker has died.
  void await() const {
    if (!lost() && bridge_->rounds(place_.worker) < due_) bridge_->exchange(place_.worker);
  }

  void order_reset() const {
    bridge_->settle(place_.worker);
    if (new_seed_) bridge_->seed(place_, seed_);
    const bool seeded = new_seed_ || lost();
    incarnation_ = bridge_->incarnation(place_.worker);
    order(seeded ? Command::kSeededReset : Command::kReset);
    new_seed_ = false;
    resetting_ = true;
  }

  void finish_reset() const {
    while (resetting_) {
      await();
      if (lost()) {
        order_reset();
      } else {
        resetting_ = false;
      }
    }
  }

  [[noreturn]] void refuse() const { throw InvariantError(spec().id + ": its state cannot be saved"); }

  std::shared_ptr<Bridge> bridge_;
  Bridge::Place place_;
  std::uint64_t seed_ = 0;
  bool begun_ = false;     // the action of the next step is in the slot
  bool at_start_ = false;  // no step since the reset
  mutable bool new_seed_ = false, resetting_ = false;
  mutable std::uint64_t incarnation_ = 0;  // of the worker that holds the episode
  mutable std::uint64_t due_ = 0;          // the round that carries out its last command
};

}  // namespace

std::vector<std::unique_ptr<Env>> make_bridged_envs(const std::shared_ptr<Bridge>& bridge, std::size_t count) {
  std::vector<std::unique_ptr<Env>> envs;
  for (std::size_t i = 0; i < count; ++i) envs.push_back(std::make_unique<BridgedEnv>(bridge, i));
  return envs;
}

}  // namespace gipo
