"""Stable-Baselines3's PPO. Prints one JSON object.

    peer_sb3.py speed STEPS SEED             CartPole with the settings of configs/cartpole.toml: env steps/s, return
    peer_sb3.py solve ENV THRESHOLD SEED     the zoo's settings until the mean of the last 100 episodes is there
    peer_sb3.py reach ENV THRESHOLD SEED     the same until 20 greedy episodes, played every 2,000 env steps, are there

PyTorch has one thread: at this size two make it slower. `speed` takes the faster of environments in this process and
in processes of their own; `solve` has them in this process, as the zoo does.
"""

import json
import sys
import time

import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize, sync_envs_normalization

WINDOW = 100
PROBE_STEPS = 4096  # two rollouts
REACH_STEPS, REACH_EPISODES = 2000, 20


def linear(start):
    return lambda remaining: remaining * start


# hyperparams/ppo.yml of rl-baselines3-zoo, the tasks' own entries. Where nothing is scheduled over the run, `steps` is
# larger than there: it changes nothing before the threshold, and slow seeds still get to it.
ZOO = {
    "CartPole-v1": {
        "n_envs": 8, "steps": 100_000,
        "ppo": {
            "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
            "learning_rate": linear(1e-3), "clip_range": linear(0.2),
        },
    },
    "Pendulum-v1": {
        "n_envs": 4, "steps": 1_000_000,
        "ppo": {
            "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 1e-3,
            "clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4,
        },
    },
    "Acrobot-v1": {
        "n_envs": 16, "steps": 1_000_000, "normalize": True,
        "ppo": {"n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0},
    },
    "MountainCarContinuous-v0": {
        "n_envs": 1, "steps": 100_000, "normalize": True,
        "ppo": {
            "n_steps": 8, "batch_size": 256, "gae_lambda": 0.9, "gamma": 0.9999, "n_epochs": 10, "ent_coef": 0.00429,
            "learning_rate": 7.77e-5, "clip_range": 0.1, "max_grad_norm": 5, "vf_coef": 0.19, "use_sde": True,
            "policy_kwargs": {"log_std_init": -3.29, "ortho_init": False},
        },
    },
}


class StopWhenSolved(BaseCallback):
    def __init__(self, threshold):
        super().__init__()
        self.threshold, self.solved_at = threshold, None

    def _on_step(self):
        episodes = self.model.ep_info_buffer
        # Looked at where an episode has just ended, as the mean cannot have changed elsewhere.
        if self.locals["dones"].any() and len(episodes) == WINDOW and mean_return(self.model) >= self.threshold:
            self.solved_at = time.time()
        return self.solved_at is None


class StopWhenGreedyIsThere(BaseCallback):
    """Plays greedy episodes at every multiple of REACH_STEPS, on an environment of its own."""

    def __init__(self, env, threshold):
        super().__init__()
        self.env, self.threshold, self.next, self.reached_at = env, threshold, REACH_STEPS, None

    def _on_step(self):
        if self.num_timesteps >= self.next:
            self.next += REACH_STEPS
            if isinstance(self.env, VecNormalize):
                sync_envs_normalization(self.training_env, self.env)
            mean, _ = evaluate_policy(self.model, self.env, REACH_EPISODES, deterministic=True)
            if mean >= self.threshold:
                self.reached_at = self.num_timesteps
        return self.reached_at is None


def mean_return(model):
    """Of the last 100 training episodes, as the monitor below any normalisation saw them."""
    episodes = model.ep_info_buffer
    return sum(episode["r"] for episode in episodes) / len(episodes) if episodes else None


def speed_with(vec_env, steps, seed):
    env = make_vec_env("CartPole-v1", n_envs=8, seed=seed, vec_env_cls=vec_env)
    model = PPO(
        "MlpPolicy", env, n_steps=256, batch_size=64, n_epochs=10, learning_rate=3e-4, gamma=0.99, gae_lambda=0.95,
        clip_range=0.2, ent_coef=0.0, vf_coef=0.5, max_grad_norm=0.5, seed=seed, device="cpu",
    )
    begin = time.perf_counter()
    model.learn(steps)
    rate = model.num_timesteps / (time.perf_counter() - begin)
    env.close()
    return {"value": rate, "return": mean_return(model), "settings": vec_env.__name__}


def speed(steps, seed):
    trials = {vec_env: speed_with(vec_env, PROBE_STEPS, seed)["value"] for vec_env in (DummyVecEnv, SubprocVecEnv)}
    return speed_with(max(trials, key=trials.get), steps, seed)


def zoo_env(name, count, seed, training=True):
    zoo = ZOO[name]
    env = make_vec_env(name, n_envs=count, seed=seed)
    if zoo.get("normalize"):
        env = VecNormalize(env, gamma=zoo["ppo"]["gamma"], training=training, norm_reward=training)
    return env


def zoo_model(name, seed):
    zoo = ZOO[name]
    return PPO("MlpPolicy", zoo_env(name, zoo["n_envs"], seed), seed=seed, device="cpu", **zoo["ppo"])


def solve(name, threshold, seed):
    """`solved_at` is a time of the system's clock: who started this process knows when."""
    model, callback = zoo_model(name, seed), StopWhenSolved(threshold)
    model.learn(ZOO[name]["steps"], callback=callback)
    return {"solved_at": callback.solved_at, "env_steps": model.num_timesteps, "return": mean_return(model)}


def reach(name, threshold, seed):
    """`reached_at` in env steps, or null."""
    model = zoo_model(name, seed)
    callback = StopWhenGreedyIsThere(zoo_env(name, 1, 1000 + seed, training=False), threshold)
    model.learn(ZOO[name]["steps"], callback=callback)
    return {"env": name, "threshold": threshold, "seed": seed, "reached_at": callback.reached_at}


def main():
    torch.set_num_threads(1)
    if sys.argv[1] == "speed":
        result = speed(int(sys.argv[2]), int(sys.argv[3]))
    else:
        until = {"solve": solve, "reach": reach}[sys.argv[1]]
        result = until(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps({**result, "version": stable_baselines3.__version__}))


if __name__ == "__main__":
    main()
