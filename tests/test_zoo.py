"""The zoo: presets that solve tasks, their figures, and the command that checks them."""

import json
import subprocess
import sys

import pytest

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
    assert "Box2D is not installed" in done.stderr and "scripts/setup.sh --box2d" in done.stderr


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


def test_mistakes_of_the_check_are_one_line(tmp_path):
    for words, said in [(["--task", "Pong"], "Pong is not in the zoo"), (["--seeds", "few"], "few is not accepted")]:
        done = run_check(*words, "--out", tmp_path)
        assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1


def test_quick_tasks_have_a_goal_and_a_measured_time():
    zoo = zoo_check.entries(find_binary())
    quick = zoo_check.chosen(zoo, [], False)
    assert 0 < len(quick) < len(zoo) == len(zoo_check.chosen(zoo, [], True))
    assert all(entry["goal"] is not None and entry["measured"]["cpu_seconds"] for entry in quick)
