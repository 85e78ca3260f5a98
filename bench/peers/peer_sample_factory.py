"""Sample Factory's asynchronous PPO on CartPole, the work of configs/async.toml. Prints one JSON object.

    peer_sample_factory.py STEPS FOLDER

Two rollout workers with double buffering, one policy worker, one learner, all on the CPU.
"""

import importlib.metadata
import json
import sys
import time

import gymnasium
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

ENV = "CartPole-v1"
SETTINGS = {
    "algo": "APPO", "env": ENV, "experiment": "cartpole", "restart_behavior": "overwrite", "device": "cpu", "seed": 1,
    "async_rl": True, "serial_mode": False, "num_workers": 2, "num_envs_per_worker": 8, "worker_num_splits": 2,
    "policy_workers_per_policy": 1, "rollout": 32, "batch_size": 512, "num_batches_per_epoch": 4, "num_epochs": 2,
    "use_rnn": False, "recurrence": 1, "with_vtrace": False, "actor_critic_share_weights": False,
    "nonlinearity": "tanh", "learning_rate": 1e-3, "reward_scale": 0.1, "gamma": 0.99, "gae_lambda": 0.95,
    "exploration_loss_coeff": 0.003,
    # What would only cost time: staggered starts, core affinity on so small a machine, checkpoints, summaries.
    "decorrelate_experience_max_seconds": 0, "decorrelate_envs_on_one_worker": False,
    "set_workers_cpu_affinity": False, "save_every_sec": 3600, "save_best_every_sec": 3600,
    "experiment_summaries_interval": 3600, "log_to_file": False,
}


class Meter(AlgoObserver):
    """Env steps over time from the end of the first training iteration on, which leaves out the start of processes."""

    def __init__(self):
        self.first = self.last = None

    def on_training_step(self, runner, training_iteration_since_resume):
        if runner.total_env_steps_since_resume is None:
            return
        self.last = (time.perf_counter(), runner.total_env_steps_since_resume)
        self.first = self.first or self.last

    def rate(self):
        return (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])


def make_env(name, cfg=None, env_config=None, render_mode=None):
    return gymnasium.make(name, render_mode=render_mode, disable_env_checker=True)


def main():
    steps, folder = sys.argv[1], sys.argv[2]
    register_env(ENV, make_env)
    arguments = [f"--{key}={value}" for key, value in SETTINGS.items()]
    arguments += [f"--train_for_env_steps={steps}", f"--train_dir={folder}", "--encoder_mlp_layers", "64", "64"]
    parser, _ = parse_sf_args(arguments)
    _, runner = make_runner(parse_full_cfg(parser, arguments))
    meter = Meter()
    runner.register_observer(meter)
    runner.init()
    runner.run()
    rewards = runner.policy_avg_stats.get("reward", [[]])[0]  # of the last 100 episodes
    print(json.dumps({
        "value": meter.rate(), "return": float(sum(rewards) / len(rewards)) if rewards else None,
        "version": importlib.metadata.version("sample-factory"),
    }))


if __name__ == "__main__":
    main()
