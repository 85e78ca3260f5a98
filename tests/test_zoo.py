"""The zoo: presets that solve tasks, their figures, and the command that checks them."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import gipo as library
from gipo import zoo_check
from gipo.runs import find_binary

HANG = 120


def test_the_zoo_is_listed_with_its_figures(gipo):
    listed = json.loads(gipo("list", "zoo", "--json").stdout)
    assert library.zoo() == {entry["task"]: entry for entry in listed}
    rows = [line.split() for line in gipo("list", "zoo").stdout.splitlines()[1:-1]]
    assert [row[0] for row in rows] == [entry["task"] for entry in listed]
    cartpole = library.zoo()["CartPole-v1"]
    assert cartpole["preset"] == "zoo/CartPole-v1" and cartpole["measured"]["worst"] >= cartpole["goal"] == 475
    assert cartpole["rl_zoo"] == {"mean": 500.0, "env_steps": 100000}


@pytest.mark.parametrize("task", [task for task, entry in library.zoo().items() if not entry["needs"]])
def test_a_run_is_as_long_as_the_zoo_says(gipo, task):
    done = gipo("train", "--zoo", task, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["env_steps"] == library.zoo()[task]["env_steps"]


def test_a_task_of_the_zoo_is_trained_by_its_name(gipo):
    words = ["--set", "learner.env_steps=4000", "--set", "eval.episodes=1", "--name", "short"]
    assert gipo("train", "--zoo", "CartPole-v1", *words).returncode == 0
    config = (gipo.folder / "runs" / "short" / "config.toml").read_text()
    assert 'centre = "proximal"' in config
    unknown = gipo("train", "--zoo", "CartPole-v0")
    assert unknown.returncode == 2 and "did you mean CartPole-v1?" in unknown.stderr
    assert len(unknown.stderr.splitlines()) == 1
    both = gipo("train", "classic/stale", "--zoo", "CartPole-v1")
    assert both.returncode == 2 and "--zoo" in both.stderr


def test_what_box2d_needs_is_said_in_one_line(gipo, tmp_path_factory, monkeypatch):
    hidden = tmp_path_factory.mktemp("hidden")
    (hidden / "Box2D.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", str(hidden))
    done = gipo("train", "classic/stale", "--set", "env.id=gymnasium:LunarLander-v3")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and gipo.entries() == []
    assert "Box2D is not installed" in done.stderr and "scripts/setup.sh --box2d" in done.stderr and "gipo[box2d]" in done.stderr


def run_check(*words):
    command = [sys.executable, "-m", "gipo.zoo_check", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG)


def test_the_check_trains_and_compares_with_the_goal(tmp_path):
    done = run_check("--task", "CartPole-v1", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split()[-1] == "reached"
    assert json.loads((tmp_path / "CartPole-v1-1" / "summary.json").read_text())["eval_return"]["mean"] >= 475
    # A run that is there is not made again, and one below the goal is told.
    summary = tmp_path / "CartPole-v1-1" / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"eval_return": {"mean": 470.0}}))
    missed = run_check("--task", "CartPole-v1", "--out", tmp_path)
    assert missed.returncode == 1 and "MISSED" in missed.stdout and "goal missed: CartPole-v1" in missed.stderr


def test_what_needs_libtorch_is_trained_by_a_program_that_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo_check, "ROOT", tmp_path)
    zoo, refuses = library.zoo(), Path("/bin/false")
    assert zoo_check.program_for(zoo["CartPole-v1"], refuses) == refuses
    assert zoo_check.program_for(zoo["MinAtar-Breakout"], refuses) is None
    takes = tmp_path / "build" / "torch" / "gipo"
    takes.parent.mkdir(parents=True)
    takes.symlink_to("/bin/true")
    assert zoo_check.program_for(zoo["MinAtar-Breakout"], refuses) == takes


def test_mistakes_of_the_check_are_one_line(tmp_path):
    for words, said in [(["--task", "Pong"], "Pong is not in the zoo"), (["--seeds", "few"], "few is not accepted")]:
        done = run_check(*words, "--out", tmp_path)
        assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1


def test_quick_tasks_have_a_goal_and_a_measured_time():
    zoo = zoo_check.entries(find_binary())
    quick = zoo_check.chosen(zoo, [], False)
    assert 0 < len(quick) < len(zoo) == len(zoo_check.chosen(zoo, [], True))
    assert all(entry["goal"] is not None and entry["measured"]["cpu_seconds"] for entry in quick)


def test_settings_are_chosen_for_an_environment_without_a_config(gipo):
    (gipo.folder / "tiny.py").write_text(TINY_REWARDS)
    words = ["--env", "python:tiny.py:Tiny", "--env-steps", "3000", "--name", "mine"]
    done = gipo("train", *words)
    assert done.returncode == 0, done.stderr
    said = done.stderr[: done.stderr.index("\nmine: ")].splitlines()
    assert said[0].startswith("No config was given: settings were chosen for python:tiny.py:Tiny")
    assert [line.split()[0] for line in said[1:]] == ["env.count", "policy.hidden", "env.reward_scale"]
    folder = gipo.folder / "runs" / "mine"
    config = tomllib.loads((folder / "config.toml").read_text())
    # Rewards of 0.001 in episodes of 10 steps: returns of about 0.006.
    assert config["env"]["reward_scale"] == 1000 and config["policy"]["hidden"] == [128, 128]
    assert "random actions have discounted returns of about 0.006" in (folder / "log.txt").read_text()
    # What is given stays, and nothing is said of it.
    shown = json.loads(gipo("train", *words, "--set", "env.reward_scale=5", "--dry-run", "--json").stdout)
    assert tomllib.loads(shown["config"])["env"]["reward_scale"] == 5
    assert not any("reward_scale" in line for line in shown["chosen"])
    unknown = gipo("train", "--env", "NoSuch-v1")
    assert unknown.returncode == 2 and "--env: env.id: environment NoSuch-v1 is not known" in unknown.stderr


TINY_REWARDS = """
import gymnasium, numpy as np

class Tiny(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (100,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(100, np.float32), {}
    def step(self, action):
        self.steps += 1
        return np.zeros(100, np.float32), 0.001, self.steps == 10, False, {}
"""


def test_python_chooses_settings_too(tmp_path, capfd):
    arguments = {"env_steps": 3000, "run__dir": str(tmp_path), "eval__episodes": 1}
    run = library.train(CartPoleEnv, name="own", **arguments)
    assert "No config was given: settings were chosen for" in capfd.readouterr().err
    assert run.config["env"]["count"] == 8 and run.config["surrogate"]["centre"] == "proximal"
    known = library.train(env="CartPole-v1", name="known", progress=False, **arguments)
    same = library.train("zoo/CartPole-v1", name="same", progress=False, **arguments)
    assert known.summary["fingerprint"] == same.summary["fingerprint"]
