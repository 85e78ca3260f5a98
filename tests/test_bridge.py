"""Environments of Python packages, through the program: the same trajectories as native ones, faults by name, nothing
left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from conftest import HANG, TINY, alive, json_lines, settings, summary

HERE = Path(__file__).resolve().parent / "bridge"
sys.path.insert(0, str(HERE))

import pictures  # noqa: E402
import sample_envs  # noqa: E402

from gipo import _core, worker  # noqa: E402

SAMPLES = "python:sample_envs:"


@pytest.fixture(autouse=True)
def this_python(monkeypatch):
    monkeypatch.setenv("GIPO_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(HERE))


# Equal to the native task, and to itself.


def trained(gipo, name, options):
    run = gipo.train(name, options)
    logs = {log: (run / log).read_bytes() for log in ("metrics.jsonl", "episodes.jsonl")}
    return logs | {"fingerprint": summary(run)["fingerprint"]}


def test_cart_pole_of_gymnasium_takes_the_steps_of_the_native_one(gipo):
    """Same seeds, same starts: 800 updates of training end with the same bytes."""
    options = {"learner.updates": 800, "run.seed": 7, "env.count": 8}
    native = trained(gipo, "native", options | {"env.id": "CartPole-v1"})
    bridged = trained(gipo, "bridged", options | {"env.id": SAMPLES + "same_starts", "env.options.root_seed": 7})
    episodes = [json.loads(line) for line in native["episodes.jsonl"].splitlines()]
    assert len(episodes) > 100
    assert bridged == native


@pytest.mark.parametrize("task", ["gymnasium:CartPole-v1", "gymnasium:Pendulum-v1"])
def test_number_of_workers_and_threads_cannot_be_seen(gipo, task):
    options = {"env.id": task, "env.count": 5, "staleness.actors": 2}
    first = trained(gipo, "a", options | {"env.workers": 1})
    assert trained(gipo, "b", options | {"env.workers": 3, "run.threads": 2}) == first
    assert trained(gipo, "c", options | {"env.workers": 5, "run.seed": 2}) != first
    # Unset, all actors share as many as there are cores.
    assert trained(gipo, "d", options | {"run.threads": 2}) == first


def test_groups_of_a_task_with_a_limit_of_its_own_async_killed_and_resumed(gipo):
    options = {"env.id": "gymnasium:CartPole-v1", "advantage.mode": "group", "advantage.group_size": 4, "run.mode": "async",
               "learner.updates": 1000, "checkpoint.every_updates": 20}  # fmt: skip
    process = start(gipo, "killed", options)
    run = Path(gipo.folder, "runs", "killed")
    wait_for(lambda: (run / "checkpoints/LATEST").exists(), HANG, "no checkpoint")
    process.kill()
    process.wait()
    done = gipo("resume", run, "--quiet")
    assert done.returncode == 0, done.stderr
    assert summary(run)["ended"] == "finished"
    groups = [line["groups"] for line in json_lines(run / "metrics.jsonl")]
    assert groups == sorted(groups) and groups[-1] > 0


@pytest.mark.parametrize("workers", [{}, {"env.workers": 2}])
def test_episodes_of_a_group_begin_with_the_same_seed(gipo, tmp_path, workers):
    starts = tmp_path / "starts"
    starts.mkdir()
    options = {"env.id": SAMPLES + "RecordsStarts", "env.options.folder": starts, "env.count": 3,
               "advantage.mode": "group", "advantage.group_size": 4}
    run = gipo.train("groups", options | workers)
    seen = [[float(line) for line in file.read_text().split()] for file in starts.iterdir()]
    played = [all_of for all_of in seen if len(all_of) > 8]  # the others are of evaluations
    assert len(played) == 6
    for all_of in played:
        groups = [all_of[i : i + 4] for i in range(0, len(all_of), 4)]
        assert all(len(set(group)) == 1 for group in groups)
        assert len({group[0] for group in groups}) == len(groups)
    finished = json_lines(run / "metrics.jsonl")[-1]["groups"]
    assert finished == sum(len(all_of) // 4 - (len(all_of) % 4 == 0) for all_of in played) > 0


def test_sixteen_actors_share_a_process_for_each_core(gipo, tmp_path):
    pids = tmp_path / "pids"
    pids.mkdir()
    options = {"env.id": SAMPLES + "ReportsItself", "env.options.folder": pids, "env.count": 1, "staleness.actors": 16,
               "learner.updates": 1000000, "replay.capacity": 20000, "staleness.regime": "custom"}
    process = start(gipo, "many", options | {"staleness.env_steps_per_update": 16})
    try:
        metrics = Path(gipo.folder, "runs", "many", "metrics.jsonl")
        wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0, HANG, "no update")
        assert len(alive(pids)) == min(16, os.cpu_count())
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG) == 130, process.stderr.read()
    finally:
        process.kill()
        process.wait()
    assert alive(pids) == []


def test_images_that_become_rows_are_warned_of(gipo):
    done = gipo("train", "--name", "r", *settings(TINY | {"env.id": SAMPLES + "Spaced", "env.options.observation": "image",
                                                          "env.options.action": "choice"}))
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if "warning" in line]
    assert "observation is an image of 2 x 3 x 1, which the networks read as a row of 6 numbers" in line
    assert line.removeprefix("gipo: warning: ") in Path(gipo.folder, "runs", "r", "log.txt").read_text()


def test_async_mode_runs_to_the_end(gipo):
    run = gipo.train("async", {"env.id": "gymnasium:CartPole-v1", "run.mode": "async"})
    assert summary(run)["ended"] == "finished"


def test_a_discrete_observation_is_learned_from(gipo):
    run = gipo.train("lake", {"env.id": "gymnasium:FrozenLake-v1", "env.options.is_slippery": "false"})
    assert summary(run)["env_steps"] > 0


# Episodes.


def test_time_limit_truncates_and_may_be_longer_than_the_tasks_own(gipo):
    for limit, options in ((7, {"env.id": SAMPLES + "Base"}), (300, {"env.id": "gymnasium:Pendulum-v1"})):
        updates = {"learner.updates": 400} if limit == 300 else {}
        run = gipo.train(f"limit{limit}", options | updates | {"env.time_limit": limit})
        episodes = json_lines(run / "episodes.jsonl")
        assert episodes and {(e["length"], e["terminated"]) for e in episodes} == {(limit, False)}


def test_terminated_and_truncated_stay_apart(gipo):
    for name, terminated in (("Base", True), ("Truncates", False)):
        episodes = json_lines(gipo.train(name, {"env.id": SAMPLES + name}) / "episodes.jsonl")
        assert episodes and {(e["length"], e["terminated"]) for e in episodes} == {(20, terminated)}


@pytest.mark.parametrize("name", ["Succeeds", "IsSuccessful"])
def test_success_is_logged_at_any_step_and_at_the_last(gipo, name):
    run = gipo.train("s", {"env.id": SAMPLES + name, "eval.every_updates": 100, "eval.episodes": 4})
    episodes = json_lines(run / "episodes.jsonl")
    assert all(e["success"] for e in episodes)
    last = {e["episode"]: e["success_last"] for e in episodes}
    assert last[0] is False and last[1] is True
    line = json_lines(run / "metrics.jsonl")[-1]
    assert line["success_rate"] == 1 and 0.4 < line["success_rate_last"] < 0.6
    done = summary(run)
    assert done["final_return"]["success_rate"] == 1
    assert done["eval_return"]["success_rate"] == 1 and done["eval_return"]["success_rate_last"] < 1
    assert all("success_rate" in e for e in json_lines(run / "evaluations.jsonl"))
    assert "success 1.00" in gipo("eval", run, "--episodes", 2).stdout


def test_a_task_without_success_says_nothing_of_it(gipo):
    run = gipo.train("n", {"env.id": SAMPLES + "Base"})
    assert "success" not in "".join((run / n).read_text() for n in ("episodes.jsonl", "metrics.jsonl", "summary.json"))


def test_the_start_of_workers_is_not_taken_for_the_cost_of_a_step(gipo):
    done = gipo("train", "--dry-run", "--json", *settings(TINY | {"env.id": SAMPLES + "Base", "learner.updates": 2000}))
    assert json.loads(done.stdout)["estimated_seconds"] < 60  # starting one takes a tenth of a second, a step a thousandth


def test_resume_begins_new_episodes_and_says_so(gipo):
    options = {"env.id": SAMPLES + "Base", "env.options.length": 20, "checkpoint.every_updates": 50}
    done = gipo("train", "--name", "r", *settings(TINY | options))
    assert done.returncode == 0 and "a resumed run begins new episodes" in done.stderr
    run = Path(gipo.folder, "runs", "r")
    assert summary(run)["on_resume"] == "new episodes"
    assert gipo("resume", run, "--updates", 300, "--quiet").returncode == 0
    assert summary(run)["updates"] == 300
    assert gipo("doctor", run).returncode == 0
    # What is the machine's may change, what is the task's may not.
    config = run / "config.toml"
    config.write_text(config.read_text().replace("max_deaths = 5", "max_deaths = 7"))
    assert gipo("resume", run, "--updates", 310, "--quiet").returncode == 0
    config.write_text(config.read_text().replace("length = 20", "length = 21"))
    refused = gipo("resume", run, "--updates", 320, "--quiet")
    assert refused.returncode == 2 and "env.options.length was 20 and is now 21" in refused.stderr


# Spaces.


def flattened(space, value, batch=None):
    """As rows that networks read."""
    fields = worker.Fields(space)
    columns = [np.ascontiguousarray(v, f.dtype) for f, v in zip(fields.all, fields.values(value, batch))]
    return _core.Encoder(json.dumps([d | {"raw": False} for d in fields.described()])).rows(columns, batch or 1)


@pytest.mark.parametrize("space", [
    gymnasium.spaces.Box(-1, 1, (2, 3)), gymnasium.spaces.Box(0, 255, (2, 2), np.uint8),
    gymnasium.spaces.Discrete(5, start=-2), gymnasium.spaces.MultiDiscrete([[2, 3], [4, 5]]),
    gymnasium.spaces.MultiBinary([2, 2]), sample_envs.Arrays.observation_space,
    gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(-1, 1, (1,)))),
], ids=str)
def test_observations_are_flattened_as_gymnasium_does(space):
    space.seed(1)
    for _ in range(20):
        value = space.sample()
        expected = sample_envs.as_row(space, value)
        assert expected.shape == (gymnasium.spaces.flatdim(space),)
        assert np.array_equal(flattened(space, value), [expected])


def test_batches_are_flattened_row_by_row():
    space = sample_envs.Arrays.observation_space
    space.seed(1)
    values = [space.sample() for _ in range(3)]
    batch = {
        "image": np.stack([v["image"] for v in values]), "place": np.array([v["place"] for v in values]),
        "pair": tuple(np.stack([v["pair"][i] for v in values]) for i in range(2)),
    }
    assert np.array_equal(flattened(space, batch, 3), [flattened(space, v)[0] for v in values])


@pytest.mark.parametrize("name", ["Arrays", "Continuous"])
def test_actions_of_every_space_are_in_it(gipo, name):
    """The environments refuse any other."""
    distributions = ["gaussian", "binned"] if name == "Continuous" else ["auto"]
    for distribution in distributions:
        gipo.train(name + distribution, {"env.id": SAMPLES + name, "policy.distribution": distribution})


# Fields, roles and masks.


def test_masks_of_info_have_to_be_asked_for(gipo):
    for mask in ("auto", "info"):
        gipo.train(mask, {"env.id": "gymnasium:Taxi-v4", "env.mask": mask})


@pytest.mark.parametrize("name, options, code, words", [
    ("WithRoles", {"env.critic_fields": "state"}, 0, ""),
    ("WithRoles", {"env.critic_fields": "stat"}, 2, "env.critic_fields = stat: python:sample_envs:WithRoles has no field stat; "
                                                    "its fields: action_mask, camera, state"),
    ("WithRoles", {"env.mask": "camera"}, 2, "the observation['camera'], the mask of actions (env.mask), is uint8 of shape (2, 2): "
                                             "wanted uint8 of shape (2,), one value for each choice of the action"),
    ("WithRoles", {"env.mask": "none"}, 0, ""),
    ("Base", {"env.mask": "info"}, 2, "info['action_mask'] of reset of environment 0 is missing: wanted a mask of shape (2,)"),
    ("Continuous", {"env.mask": "info"}, 2, "has no choices; wanted none"),
    ("ShortMask", {}, 0, ""),
    ("ShortMask", {"env.mask": "info"}, 1, "is int8 of shape (1,): wanted uint8 of shape (2,), one value for each choice"),
])  # fmt: skip
def test_roles_of_fields_are_given_or_refused_by_name(gipo, name, options, code, words):
    done = gipo("train", "--quiet", *settings(TINY | {"env.id": SAMPLES + name} | options))
    assert done.returncode == code and words in done.stderr, done.stderr


# Faults of the environment: named, exit 2, nothing left behind.


@pytest.mark.parametrize("task, words", [
    (SAMPLES + "NanAtReset", ["the observation of reset holds nan at index 1", "finite numbers"]),
    (SAMPLES + "InfinityAtStep", ["the observation of step holds inf at index 1"]),
    (SAMPLES + "NanReward", ["the reward of step holds nan"]),
    (SAMPLES + "WrongShapeAtReset", ["of reset of environment 0 is float32 of shape (4,)", "wanted float32 of shape (3,)"]),
    (SAMPLES + "OldReset", ["reset returned", "wanted a tuple of observation and info", "gym before 0.26", "shimmy"]),
    (SAMPLES + "OldSeed", ["reset takes no seed", "gym before 0.26", "shimmy.GymV21CompatibilityV0"]),
    (SAMPLES + "FourValues", ["step returned four values", "gym before 0.26", "terminated, truncated and info"]),
    (SAMPLES + "ThreeValues", ["step returned", "wanted observation, reward, terminated, truncated and info"]),
    (SAMPLES + "PettingZooParallel", ["a PettingZoo environment (parallel)", "gymnasium.Env", "one of the agents"]),
    (SAMPLES + "PettingZooAec", ["a PettingZoo environment (AEC)", "gymnasium.Env", "one of the agents"]),
    (SAMPLES + "TextSpace", ["the observation space is", "a Text: wanted Box, Discrete, MultiDiscrete, MultiBinary, or a"]),
    (SAMPLES + "TextInside", ["the observation space['outer'][1] is Text(", "a Text: wanted Box"]),
    (SAMPLES + "SequenceInside", ["the action space['tool'] is Sequence(", "a Sequence: wanted Box"]),
    (SAMPLES + "SequenceAction", ["the action space is", "a Sequence: wanted Box"]),
    (SAMPLES + "WrongChoice", ["the observation of reset of environment 0 is 4: wanted choices from 0 on, 4 of them"]),
    (SAMPLES + "FloatImage", ["the observation of step 1 of environment 0 is float64 of shape (2, 2): wanted uint8 of shape"]),
    (SAMPLES + "RaisesAtStep", ["step raised RuntimeError", "sample_envs.py", "the wheel came off"]),
    (SAMPLES + "DiesAtOnce", ["exit code 3", "these are my last words"]),
    (SAMPLES + "raises", ["raises raised ValueError", "no robot is connected"]),
    (SAMPLES + "exits", ["exits raised SystemExit", "not today"]),
    (SAMPLES + "returns_nothing", ["returned None: wanted an environment as gymnasium.Env is"]),
    (SAMPLES + "not_a_factory", ["has no class or function not_a_factory"]),
    (SAMPLES + "absent", ["has no class or function absent"]),
    ("python:no_such_module:make", ["there is no no_such_module"]),
    ("python:no_such_file.py:make", ["there is no no_such_file.py"]),
    ("python:sample_envs", ["wanted python:MODULE:FACTORY"]),
    ("gymnasium:NoSuchTask-v1", ["does not make it", "NoSuchTask"]),
    ("gymnasium:no_such_module:Task-v1", ["No module named 'no_such_module'"]),
    ("gymnasiun:CartPole-v1", ["is not known", "gymnasium:ID, python:MODULE:FACTORY, envpool:ID, libero:SUITE/N"]),
])
def test_what_is_wrong_is_named_before_the_run_begins(gipo, task, words):
    done = gipo("train", *settings(TINY | {"env.id": task}))
    assert done.returncode == 2, done.stderr
    for word in words:
        assert word in done.stderr
    assert done.stdout == ""
    assert not (Path(gipo.folder) / "runs").exists()


@pytest.mark.parametrize("name, code, words", [
    ("RaisesLater", 1, ["step raised RuntimeError", "the wheel came off", "sample_envs.py"]),
    ("WrongShapeLater", 1, ["the observation of step 7 of environment", "is float32 of shape (4,): wanted float32 of shape (3,)"]),
    ("DiesLater", 1, ["died 3 times in a row (env.max_deaths)", "signal 11", "these are my last words",
                      "Fatal Python error: Segmentation fault", "sample_envs.py", "in step"]),
    ("NanLater", 1, ["every segment was rejected (32 observation_not_finite)", "the last: environment", "not finite"]),
])
def test_what_goes_wrong_later_ends_the_run_with_its_words(gipo, name, code, words):
    options = {"env.id": SAMPLES + name, "env.max_deaths": 3}
    done = gipo("train", "--quiet", "--name", "r", *settings(TINY | options))
    assert done.returncode == code, done.stderr
    ended = summary(Path(gipo.folder, "runs", "r"))["ended"]
    for word in words:
        assert word in done.stderr and word in ended
    # Only our words of the traceback are left out.
    assert "<string>" not in done.stderr


def test_a_python_that_is_missing_or_lacks_a_package_is_named(gipo, tmp_path):
    task = {"env.id": "gymnasium:CartPole-v1"}
    done = gipo("train", *settings(task | {"env.python": "/nowhere/python"}))
    assert done.returncode == 2 and "/nowhere/python does not start" in done.stderr and "env.python" in done.stderr
    bare = tmp_path / "bare"
    bare.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
    bare.chmod(0o755)
    done = gipo("train", *settings(task | {"env.python": bare}))
    assert done.returncode == 2 and "needs the package numpy" in done.stderr


def test_options_reach_the_factory_and_what_it_prints_is_seen(gipo, tmp_path):
    module = tmp_path / "talks.py"
    module.write_text("from sample_envs import Base\ndef make(length):\n    print('hello', length)\n    return Base(length)\n")
    done = gipo("train", "--json", "--quiet", *settings(TINY | {"env.id": f"python:{module}:make", "env.options.length": 5}))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["final_return"]["episodes"] > 0
    assert "hello 5" in done.stderr


# Workers that die, and a program that dies.


def start(gipo, name, options):
    words = [gipo.binary, "train", "--quiet", "--name", name, *settings(TINY | options)]
    return subprocess.Popen(words, cwd=gipo.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def kill_workers(gipo, tmp_path, kills, every, workers, given):
    """Trains while one worker after the other is killed; the counts must add up."""
    pids = tmp_path / "pids"
    pids.mkdir()
    options = {
        "env.id": SAMPLES + "ReportsItself", "env.options.folder": pids,
        "env.max_deaths": 100, "learner.updates": 100000000, "log.every_updates": 100, "staleness.actors": 2, "replay.capacity": 20000,
        "staleness.regime": "custom", "staleness.env_steps_per_update": 8, "replay.segment_length": 16,
    }
    process = start(gipo, "killed", options | given)
    run = Path(gipo.folder, "runs", "killed")
    try:
        wait_for(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0, HANG, "no update")
        for kill in range(kills):
            wait_for(lambda: len(alive(pids)) == workers, HANG, "a worker was not started again")
            time.sleep(every)
            assert process.poll() is None, process.stderr.read()
            victim = alive(pids)[kill % workers]
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda: victim not in alive(pids), HANG, "a killed worker lives")
        wait_for(lambda: len(alive(pids)) == workers, HANG, "a worker was not started again")
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG) == 130, process.stderr.read()
    finally:
        process.kill()
        process.wait()
    return run, alive(pids)


@pytest.mark.parametrize("kills, every", [(4, 0.75), pytest.param(20, 2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_killed_workers_cost_their_open_segments_alone(gipo, tmp_path, kills, every, shared):
    # Each of two actors has four environments: in two workers of its own, or all of them in one for each core.
    workers = min(8, os.cpu_count()) if shared else 4
    given = {} if shared else {"env.workers": 2, "run.mode": "async"}
    run, left = kill_workers(gipo, tmp_path, kills, every, workers, given)
    done = summary(run)
    # A death costs the environments of that worker their open segments. One that has just been started may have none.
    died = done["counts"]["rejected_segments"]
    assert 8 // workers <= died <= -(-8 // workers) * kills and done["counts"]["faults"] == {"worker_died": died}
    assert left == []
    episodes = json_lines(run / "episodes.jsonl")
    # Those that were cut short have no line, but their numbers are taken.
    missing = 0
    for env in range(8):
        numbers = [e["episode"] for e in episodes if e["env"] == env]
        assert numbers == sorted(set(numbers))
        missing += numbers[-1] + 1 - len(numbers)
    assert died - 8 <= missing <= died
    assert {e["length"] for e in episodes} == {20}
    # Every step but the lost ones is in the replay, has left it, or waits in an open segment.
    stored = done["counts"]["replay_size"] + done["counts"]["replay_evicted"]
    assert 0 <= done["env_steps"] - stored <= 16 * (died + 8)
    print(f"{kills} kills, {died} segments dropped: {done['env_steps']} env steps, {stored} of them stored, {len(episodes)} episodes")


def test_nothing_is_left_when_the_program_is_killed(gipo, tmp_path):
    pids = tmp_path / "pids"
    pids.mkdir()
    options = {"env.id": SAMPLES + "Slow", "env.options.folder": pids, "learner.updates": 1000000,
               "run.mode": "async", "env.workers": 2}
    process = start(gipo, "killed", options)
    wait_for(lambda: len(alive(pids)) == 4, HANG, "no workers")
    time.sleep(0.5)
    process.kill()
    process.wait()
    # The memory between them has no name: it is gone with the last of them.
    wait_for(lambda: alive(pids) == [], HANG, "a worker is left")


def test_workers_end_with_a_run_that_finishes(gipo, tmp_path):
    pids = tmp_path / "pids"
    pids.mkdir()
    gipo.train("r", {"env.id": SAMPLES + "ReportsItself", "env.options.folder": pids, "env.workers": 2})
    assert len(list(pids.iterdir())) > 2 and alive(pids) == []


# EnvPool, which `make setup` does not install: wherever a Python here has it.


def python_with_envpool():
    for python in (sys.executable, str(HERE.parents[1] / ".venv-peers/bin/python")):
        if Path(python).exists() and subprocess.run([python, "-c", "import envpool"], capture_output=True).returncode == 0:
            return python
    return None


@pytest.fixture(scope="module")
def envpool():
    python = python_with_envpool()
    if python is None:
        pytest.skip("no Python here has envpool")
    return {"env.python": python, "env.count": 3}


def test_a_pool_repeats_itself_and_keeps_final_observations(gipo, envpool):
    options = envpool | {"env.id": "envpool:CartPole-v1"}
    first = trained(gipo, "a", options)
    assert trained(gipo, "b", options | {"env.options.num_threads": 1}) == first
    assert trained(gipo, "c", options | {"run.seed": 2}) != first
    episodes = [json.loads(line) for line in first["episodes.jsonl"].splitlines()]
    # One reward of 1 for every step: none is lost at the ends, and no reset is taken for a step.
    assert len(episodes) > 10 and all(e["return"] == e["length"] for e in episodes)
    assert summary(Path(gipo.folder, "runs", "a"))["engine"].startswith("EnvPool ")


def test_a_pool_takes_a_time_limit_and_speaks_of_success(gipo, envpool):
    options = envpool | {"env.id": "envpool:MetaWorld/DoorOpen-v3", "env.time_limit": 10, "learner.updates": 20}
    run = gipo.train("door", options)
    episodes = json_lines(run / "episodes.jsonl")
    assert {(e["length"], e["terminated"], e["success"]) for e in episodes} == {(10, False, False)}
    assert summary(run)["eval_return"]["success_rate"] == 0


def test_an_unknown_pool_is_named_with_the_nearest(gipo, envpool):
    done = gipo("train", *settings(envpool | {"env.id": "envpool:CartPole-v9"}))
    assert done.returncode == 2 and "does not know CartPole-v9; the nearest: CartPole-v1" in done.stderr


def test_frames_are_stacked_as_gymnasium_does():
    for as_dict in (False, True):
        ours = worker.FrameStack(pictures.Catch(as_dict=as_dict), 3)
        theirs = gymnasium.wrappers.FrameStackObservation(pictures.Catch(), 3)
        space = ours.observation_space["image"] if as_dict else ours.observation_space
        assert space == theirs.observation_space
        for episode in range(3):
            seen, wanted = ours.reset(seed=episode)[0], theirs.reset(seed=episode)[0]
            for action in (0, 1, 2, 2, 1, 0):
                np.testing.assert_array_equal(seen["image"] if as_dict else seen, wanted)
                seen, wanted = ours.step(action)[0], theirs.step(action)[0]
    with pytest.raises(worker.Mistake, match="has no image"):
        worker.FrameStack(gymnasium.make("CartPole-v1"), 2)
