"""Stable-Baselines3's SAC with its default settings on a MuJoCo task of Gymnasium. One JSON object per line.

    peer_sac.py ENV SEED STEPS [DEVICE]    {"env_steps", "seconds", "training", "greedy"} every 5,000 env steps

`seconds` is the processor time of `learn()` without the evaluations, on one thread: the same on a busy machine and on an idle
one; `training` the mean of the episodes that ended since the last line, `greedy` that of 5 episodes. DEVICE is cpu, the
default, or cuda.
"""

import json
import sys
import time

import gymnasium
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

EVERY, EPISODES = 5000, 5


class Curve(BaseCallback):
    def __init__(self, env):
        super().__init__()
        self.env, self.returns, self.aside = env, [], 0.0

    def _on_training_start(self):
        self.begin = time.process_time()

    def _on_step(self):
        self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        if self.num_timesteps % EVERY == 0:
            now = time.process_time()
            greedy, _ = evaluate_policy(self.model, self.env, EPISODES, deterministic=True)
            training = sum(self.returns) / len(self.returns) if self.returns else None
            print(json.dumps({"env_steps": self.num_timesteps, "seconds": now - self.begin - self.aside,
                              "training": training, "greedy": float(greedy)}), flush=True)  # fmt: skip
            self.returns = []
            self.aside += time.process_time() - now
        return True


def main():
    name, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    device = sys.argv[4] if len(sys.argv) > 4 else "cpu"
    torch.set_num_threads(1)
    model = SAC("MlpPolicy", Monitor(gymnasium.make(name)), seed=seed, device=device)
    model.learn(steps, callback=Curve(Monitor(gymnasium.make(name))))


if __name__ == "__main__":
    main()
