#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"
#include "gipo/run/trained_run.h"
#include "gipo/train/evaluator.h"

namespace gipo::cli {

int eval(const EvalArguments& a) {
  if (!a.video.empty()) return video(a);
  const auto [plan, weights] = load_trained_run(a.run, a.policy);
  const Evaluation evaluation = evaluate(plan.model, weights,
                                         {plan.env, plan.config.env, plan.config.env_options, a.episodes.value_or(100),
                                          a.seed, !a.sampled, nullptr, false, eval_device(plan)});
  const ReturnStats& result = evaluation.returns;
  std::string faults;
  for (const auto& [name, count] : evaluation.faults) faults += fmt::format(" {} {}", name, count);
  if (!faults.empty()) {
    fmt::print(stderr, "gipo: warning: episodes played again:{}; the last: {}\n", faults, evaluation.last_fault);
  }
  if (a.json) {
    nlohmann::ordered_json out = {
        {"run_dir", a.run},
        {"env", plan.env.id},
        {"policy", a.policy},
        {"update", weights.version},
        {"greedy", !a.sampled},
        {"seed", a.seed},
        {"eval_return", {{"mean", result.mean}, {"std", result.std}, {"episodes", result.episodes}}},
        {"faults", evaluation.faults}};
    if (result.success_rate) {
      out["eval_return"].update(
          {{"success_rate", *result.success_rate}, {"success_rate_last", *result.success_rate_last}});
    }
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("{} after {} updates, {} policy: {:.2f} +- {:.2f} over {} episodes{}\n", plan.env.id, weights.version,
               a.sampled ? "sampled" : "greedy", result.mean, result.std, result.episodes,
               result.success_rate ? fmt::format("; success {:.2f}, at the last step {:.2f}", *result.success_rate,
                                                 *result.success_rate_last)
                                   : "");
  }
  return kDone;
}

}  // namespace gipo::cli
