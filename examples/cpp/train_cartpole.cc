// Trains the task of a config file and asks the trained policy for an action: train_cartpole configs/fast/cartpole.toml
#include <gipo/api/gipo.h>

#include <array>
#include <cstdio>

int main(int argc, char** argv) try {
  gipo::TrainingHooks hooks;
  hooks.progress = [](const gipo::TrainingStatus& status) {
    std::printf("update %5ld  return %6.1f\n", static_cast<long>(status.update), status.recent_return);
  };
  const gipo::TrainingResult result = gipo::train(argc > 1 ? argv[1] : "", {"run.name=cartpole"}, hooks);
  std::printf("%s: greedy return %.1f, files in %s\n", result.ended.c_str(), result.eval_return,
              result.run_dir.c_str());

  gipo::TrainedPolicy policy(result.run_dir);
  const std::array<float, 4> leaning_right = {0.0F, 0.0F, 0.1F, 0.5F};  // cart position and speed, pole angle and speed
  std::printf("the pole leans to the right: action %.0f\n", policy.act(leaning_right)[0]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
