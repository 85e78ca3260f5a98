"""An environment of one's own reaches the worker processes: by the name they import, else as a pickle of it."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import gipo as library
import gymnasium
import numpy as np
import pytest
from conftest import ROOT
from gipo import worker
from gipo.envs import Task, task_of, workers_find


class Mine:
    class Inner:
        pass


def make():
    return Mine()


def replaced():
    return Corridor(4)


first_replaced = replaced


def replaced():  # noqa: F811
    pass


class Corridor(gymnasium.Env):
    """Steps to the right lead out; every step costs 1."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=4):
        self.length = length

    def reset(self, seed=None, options=None):
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at = max(0, self.at + (1 if action == 1 else -1))
        return np.array([self.at / 10], np.float32), -1.0, self.at == self.length, False, {}


def test_names_that_a_worker_can_import():
    for env, id in [
        ("CartPole-v1", "CartPole-v1"),
        ("gipo/CartPole-v1", "CartPole-v1"),
        (Mine, f"python:{__name__}:Mine"),
        (Mine.Inner, f"python:{__name__}:Mine.Inner"),
        (make, f"python:{__name__}:make"),
        (functools.reduce, "python:_functools:reduce"),
    ]:
        assert task_of(env) == Task(id)


def test_native_environments_are_run_as_what_they_are():
    wanted = {"env.options.ctrl_cost_weight": 0.2, "env.time_limit": 9}
    for make_one in (library.make_env, library.make_vec):
        assert task_of(make_one("Hopper-v5", ctrl_cost_weight=0.2, max_episode_steps=9)) == Task("Hopper-v5", wanted)
    assert task_of(gymnasium.make("gipo/Hopper-v5", ctrl_cost_weight=0.2, max_episode_steps=9)) == Task("Hopper-v5", wanted)
    assert task_of(library.make_env("CartPole-v1")) == Task("CartPole-v1", {})
    wrapped = gymnasium.wrappers.TransformReward(library.make_env("CartPole-v1"), lambda reward: -reward)
    assert task_of(wrapped).id.startswith("python:environment.pkl:CartPole-v1-")


def local(length):
    class Local(Corridor):
        pass

    return Local, lambda: Local(length)


OBJECTS = {
    "a local class": lambda: local(4)[0],
    "a closure": lambda: local(4)[1],
    "a partial": lambda: functools.partial(Corridor, 4),
    "a bound method": lambda: Factory(4).make,
    "a function of before": lambda: first_replaced,
    "an environment": lambda: Corridor(),
    "a vector": lambda: gymnasium.vector.SyncVectorEnv([Corridor, Corridor]),
    "an asynchronous vector": lambda: gymnasium.vector.AsyncVectorEnv([Corridor]),
    "functions": lambda: [Corridor, lambda: Corridor(4)],
}


class Factory:
    def __init__(self, length):
        self.length = length

    def make(self):
        return Corridor(self.length)


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_are_pickled_and_loaded_by_the_worker(name, tmp_path):
    """What the worker would do, in this process; whole runs are below."""
    env = OBJECTS[name]()
    task = task_of(env)
    assert task.id.startswith("python:environment.pkl:") and "<" not in task.id and task.given == {}
    with workers_find(task) as keep:
        first, second = (worker.factory_maker(task.id.removeprefix("python:"), {})(i) for i in (0, 1))
        keep(tmp_path)
    assert (tmp_path / "environment.pkl").read_bytes() == task.pickled
    assert first.length == second.length == 4 and first is not second
    assert not any(variable.startswith("GIPO_ENVIRONMENT") for variable in os.environ)
    if hasattr(env, "num_envs"):
        env.close()


def test_functions_of_a_list_take_turns():
    task = task_of([functools.partial(Corridor, length) for length in (3, 5, 7)])
    with workers_find(task):
        made = worker.factory_maker(task.id.removeprefix("python:"), {})
        assert [made(i).length for i in range(7)] == [3, 5, 7, 3, 5, 7, 3]


class Unpicklable(Corridor):
    def __reduce__(self):
        raise TypeError("holds a socket")


class PassOn(gymnasium.Wrapper):
    """Says nothing of how it was made."""


gymnasium.register("Unpicklable-v0", Unpicklable, max_episode_steps=20)


def test_environment_that_no_pickle_holds_is_made_anew_from_its_spec():
    env = gymnasium.make("Unpicklable-v0", length=6)
    task = task_of(env)
    with workers_find(task):
        made = worker.factory_maker(task.id.removeprefix("python:"), {})(0)
    assert made.unwrapped.length == 6 and made.spec.max_episode_steps == 20 and str(made) == str(env)


class VecNormalizeLike:
    num_envs = 2
    venv = None


class SubprocLike:
    num_envs = 2


def test_what_cannot_be_taken_is_refused_with_what_to_give():
    for env, said in [
        (Mine(), "wanted an id, an environment, or the class or function"),
        (7, "wanted an id, an environment, or the class or function"),
        ([Mine()], "wanted an id, an environment, or the class or function"),
        ([], "wanted an id, an environment, or the class or function"),
        (Unpicklable(), "cannot be copied into worker processes .TypeError: holds a socket.: give the class"),
        (PassOn(gymnasium.make("Unpicklable-v0")), "give the class or function that makes it"),
        (VecNormalizeLike(), "env__normalise_observations and env__normalise_rewards do what VecNormalize does"),
        (SubprocLike(), "the list of functions that make them"),
        (lambda: Mine(), "this has no reset, step"),
    ]:
        with pytest.raises(library.ConfigError, match=said):
            library.train(env=env)


SCRIPT = """
import gipo, gymnasium, numpy as np

class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at = max(0, self.at + (1 if action == 1 else -1))
        return np.array([self.at / 10], np.float32), -1.0, self.at == LENGTH, False, {}

LENGTH = 10

if __name__ == "__main__":
    run = gipo.train(env=Corridor, env__time_limit=100, learner__updates=600, seed=1, name="corridor", progress=False)
    print(run.config["env"]["id"], run.summary["eval_return"]["mean"])
"""


def run(*arguments, folder, text=None):
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, input=text, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
    )  # fmt: skip


def test_class_of_the_script_itself_is_named_by_its_file(tmp_path):
    (tmp_path / "script.py").write_text("from gipo.envs import task_of\nclass Mine: pass\nprint(task_of(Mine).id)\n")
    assert run("script.py", folder=tmp_path).stdout == f"python:{Path(tmp_path).resolve()}/script.py:Mine\n"
    assert run("-m", "script", folder=tmp_path).stdout == "python:script:Mine\n"


def test_class_without_a_file_learns_and_is_resumed_with_its_pickle(tmp_path, binary):
    done = run("-", folder=tmp_path, text=SCRIPT)
    assert re.fullmatch(r"python:environment.pkl:Corridor-[0-9a-f]{12} -10.0\n", done.stdout), done.stderr
    folder = tmp_path / "runs/corridor"
    found = library.evaluate(folder, episodes=2)  # in a process that has never seen the class
    assert found.returns.tolist() == [-10, -10]
    assert library.resume(folder, updates=620, progress=False).summary["updates"] == 620

    # The program alone executes no pickle that nobody has named to it.
    words = [binary, "resume", folder, "--updates", "640", "--quiet"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2 and "executes what is in it" in done.stderr and done.stderr.count("\n") == 1
    named = {re.search("GIPO_ENVIRONMENT_[0-9a-f]{12}", done.stderr)[0]: str(folder / "environment.pkl")}
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | named | {"GIPO_PYTHON": sys.executable})
    assert done.returncode == 0, done.stderr

    data = (folder / "environment.pkl").read_bytes()
    (folder / "environment.pkl").write_bytes(data + b"x")
    with pytest.raises(library.ConfigError, match="holds another environment, or is damaged"):
        library.resume(folder, updates=660)
    (folder / "environment.pkl").unlink()
    with pytest.raises(library.ConfigError, match="cannot be read: No such file"):
        library.resume(folder, updates=660)


def test_same_class_defined_anew_is_another_environment(tmp_path):
    """As when a cell of a notebook is run again after a change."""
    again = SCRIPT.replace("LENGTH = 10", "LENGTH = 5").replace('"corridor"', '"shorter"')
    done = run("-", folder=tmp_path, text=SCRIPT + again)
    first, second = (line.split() for line in done.stdout.splitlines())
    assert first[0] != second[0] and (first[1], second[1]) == ("-10.0", "-5.0"), done.stderr


def test_workers_get_interpreter_and_path(monkeypatch, tmp_path):
    monkeypatch.delenv("GIPO_PYTHON", raising=False)
    monkeypatch.setenv("PYTHONPATH", "before")
    monkeypatch.syspath_prepend(tmp_path)
    with workers_find():
        assert os.environ["GIPO_PYTHON"] == sys.executable
        assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)
        assert not any("site-packages" in path for path in os.environ["PYTHONPATH"].split(os.pathsep))
    assert "GIPO_PYTHON" not in os.environ and os.environ["PYTHONPATH"] == "before"


def test_training_inside_a_worker_is_refused(monkeypatch):
    monkeypatch.setenv("GIPO_TRAINER", "1")
    with pytest.raises(library.ConfigError, match="if __name__ == "):
        library.train(env="CartPole-v1")
