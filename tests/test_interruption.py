"""Ctrl-C, SIGTERM and `timeout`, whatever a run is doing: it says that it stops, saves, and can be resumed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from conftest import HANG, ROOT, TINY, alive, json_lines, settings, summary, wait_for

SAMPLES = "python:sample_envs:"
ENDLESS = {"learner.updates": 10**9, "staleness.regime": "custom", "staleness.window": 1000}


@pytest.fixture(autouse=True)
def this_python(monkeypatch):
    monkeypatch.setenv("GIPO_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests/bridge"))


def start(gipo, name, options, *words):
    return subprocess.Popen(
        [gipo.binary, "train", *words, "--name", name, *settings(TINY | options)],
        cwd=gipo.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def interrupted(process, number=signal.SIGINT):
    process.send_signal(number)
    try:
        stdout, stderr = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert "gipo: stopping; again to quit" in stderr
    return stderr


def resumes(gipo, run, updates):
    done = gipo("resume", run, "--quiet", "--updates", updates)
    assert done.returncode == 0, done.stderr
    assert summary(run)["ended"] == "finished" and summary(run)["updates"] == updates
    assert gipo("doctor", run).returncode == 0


@pytest.mark.parametrize("mode", ["lockstep", "async"])
@pytest.mark.parametrize("where", [{"step": 700}, {"reset": 20}, {"step": 40}], ids=["step", "reset", "warm-up"])
def test_a_worker_that_hangs_does_not_keep_a_run_from_ending(gipo, tmp_path, mode, where):
    pids = tmp_path / "pids"
    pids.mkdir()
    options = {"env.id": SAMPLES + "Hangs", "env.options.folder": pids, "env.workers": 1, "run.mode": mode}
    options |= {f"env.options.{name}": value for name, value in where.items()}
    process = start(gipo, "hung", ENDLESS | options)
    wait_for(lambda: (pids / "hangs").exists(), process)
    time.sleep(0.3)  # the learner, too, has nothing left to do
    begin = time.monotonic()
    interrupted(process)
    print(f"{time.monotonic() - begin:.2f} s")
    run = gipo.folder / "runs/hung"
    assert summary(run)["ended"] == "interrupted"
    assert any(run.glob("checkpoints/[0-9]*/manifest.json"))
    assert alive(pids) == []


@pytest.mark.parametrize("mode", ["lockstep", "async"])
def test_a_warm_up_is_shown_and_can_be_interrupted(gipo, mode):
    options = {"run.mode": mode, "staleness.warmup": 10**10, "staleness.window": 10**7, "replay.capacity": 80000}
    process = start(gipo, "warm", {"learner.updates": 20, "staleness.regime": "custom"} | options)
    line = process.stderr.readline() + process.stderr.readline()
    assert "warm-up: " in line and "of 10000000000 env steps" in line
    interrupted(process, signal.SIGTERM)
    assert summary(gipo.folder / "runs/warm")["updates"] == 0


@pytest.mark.parametrize("mode", ["lockstep", "async"])
def test_the_last_evaluation_can_be_interrupted_and_is_made_by_resume(gipo, mode):
    process = start(gipo, "eval", {"run.mode": mode, "eval.episodes": 10**6, "checkpoint.every_updates": 0})
    run = gipo.folder / "runs/eval"
    wait_for(lambda: (run / "policy.safetensors").exists(), process)  # written just before
    interrupted(process)
    assert summary(run)["ended"] == "interrupted" and summary(run)["updates"] == 200
    config = run / "config.toml"
    config.write_text(config.read_text().replace("episodes = 1000000", "episodes = 3"))
    resumes(gipo, run, 200)
    assert summary(run)["eval_return"]["episodes"] == 3


@pytest.mark.parametrize("kind", ["lockstep", "async", "bridged"])
def test_two_signals_at_once_are_one_request(gipo, kind):
    """`timeout` sends SIGTERM to the program and once more to its group."""
    options = {"lockstep": {}, "async": {"run.mode": "async"}, "bridged": {"env.id": "gymnasium:CartPole-v1"}}[kind]
    run = gipo.folder / "runs/twice"
    process = start(gipo, "twice", ENDLESS | options)
    wait_for(lambda: (run / "metrics.jsonl").exists(), process)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.01)
    interrupted(process, signal.SIGTERM)
    assert summary(run)["ended"] == "interrupted"
    resumes(gipo, run, summary(run)["updates"] + 10)


@pytest.mark.parametrize("kind", ["lockstep", "async", "bridged"])
def test_the_timeout_command_leaves_a_run_that_resumes(gipo, kind):
    options = {"lockstep": {}, "async": {"run.mode": "async"}, "bridged": {"env.id": "gymnasium:CartPole-v1"}}[kind]
    run = gipo.folder / "runs/late"
    done = subprocess.run(
        ["timeout", "8", gipo.binary, "train", "--quiet", "--name", "late", *settings(TINY | ENDLESS | options)],
        cwd=gipo.folder, capture_output=True, text=True, timeout=HANG,
    )  # fmt: skip
    assert done.returncode == 124, done.stderr
    ended = summary(run)
    assert ended["ended"] == "interrupted"
    episodes = json_lines(run / "episodes.jsonl")
    assert len(episodes) == ended["episodes"]
    inserted = ended["counts"]["replay_size"] + ended["counts"]["replay_evicted"]
    open_segments = ended["staleness"]["environments"] * TINY["replay.segment_length"]
    assert ended["env_steps"] - open_segments <= inserted <= ended["env_steps"]
    resumes(gipo, run, ended["updates"] + 10)


def test_a_worker_that_takes_too_long_is_named_and_replaced(gipo, tmp_path):
    options = {"env.id": SAMPLES + "Hangs", "env.options.folder": tmp_path, "env.options.step": 200, "env.workers": 1,
               "env.step_timeout": 2, "staleness.actors": 1}  # fmt: skip
    run = gipo.train("late", options, timeout=HANG)
    done = summary(run)
    assert done["ended"] == "finished"
    assert done["counts"]["faults"]["worker_died"] > 0
    assert "did not answer within 2 s (env.step_timeout)" in (run / "log.txt").read_text()


def test_a_task_without_an_end_gets_a_time_limit_and_says_so(gipo):
    done = gipo("train", "--name", "endless", *settings(TINY | {"env.id": SAMPLES + "NeverEnds", "eval.episodes": 1}))
    assert done.returncode == 0, done.stderr
    assert "declares no time limit: an episode that goes on is cut off after 10000 steps (env.time_limit)" in done.stderr
    assert summary(gipo.folder / "runs/endless")["eval_return"]["episodes"] == 1


def test_rejected_segments_survive_a_resume(gipo):
    run = gipo.train("nan", {"env.id": SAMPLES + "NanSometimes"})
    before = summary(run)["counts"]["rejected_segments"]
    assert before > 0
    resumes(gipo, run, 210)
    after = summary(run)["counts"]
    assert after["rejected_segments"] >= before
    assert after["rejected_segments"] == sum(after["faults"].values())


def test_faults_of_an_evaluation_are_shown(gipo):
    options = {"env.id": SAMPLES + "NanInEvaluation", "eval.episodes": 32}
    done = gipo("train", "--quiet", "--name", "bad", *settings(TINY | options))
    run = gipo.folder / "runs/bad"
    # Sixteen environments play two episodes each: the second of each has numbers that are not finite, always.
    assert done.returncode == 1
    assert "observation_not_finite" in done.stderr and "10 times in a row without one whole episode" in done.stderr
    evaluated = gipo("eval", run, "--episodes", 32)
    assert evaluated.returncode == 1 and "observation_not_finite" in evaluated.stderr
    whole = gipo("eval", run, "--episodes", 16, "--json")
    assert whole.returncode == 0 and json.loads(whole.stdout)["faults"] == {}


def test_a_thread_that_cannot_be_started_ends_the_run_by_name(gipo):
    """Each thread's stack takes a gigabyte of addresses, of which there are four."""

    def few_addresses():
        resource.setrlimit(resource.RLIMIT_STACK, (2**30, 2**30))
        resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))

    done = subprocess.run(
        [gipo.binary, "train", "--quiet", "--name", "many", "--set", "run.mode=async", "--set", "staleness.actors=16",
         *settings(TINY)],
        cwd=gipo.folder, capture_output=True, text=True, timeout=HANG, preexec_fn=few_addresses,
    )  # fmt: skip
    assert done.returncode == 1
    assert "of 18 cannot be started: " in done.stderr and "staleness.actors" in done.stderr
    assert summary(gipo.folder / "runs/many")["ended"].startswith("failed: ")


SCRIPT = """
import gipo, sys, time
try:
    gipo.train({options!r}, name="a", progress={progress}, callback={callback})
except KeyboardInterrupt:
    print("raised", flush=True)
    raise
"""


def in_python(tmp_path, options, progress=False, callback="None"):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(options=options, progress=progress, callback=callback)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'tests/bridge'}"},
    )  # fmt: skip


def hidden_as_numbers(options):
    return {key: [16, 16] if key == "policy.hidden" else value for key, value in (TINY | options).items()}


@pytest.mark.parametrize("where", ["step", "reset"])
def test_ctrl_c_in_python_with_a_hung_environment(tmp_path, where):
    pids = tmp_path / "pids"
    pids.mkdir()
    options = {"env.id": SAMPLES + "Hangs", "env.options.folder": str(pids), f"env.options.{where}": 25} | ENDLESS
    process = in_python(tmp_path, hidden_as_numbers(options))
    wait_for(lambda: (pids / "hangs").exists(), process)
    process.send_signal(signal.SIGINT)
    try:
        out, errors = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert out == "raised\n" and errors.strip().endswith("KeyboardInterrupt")
    assert "gipo: stopping; again to quit" in errors
    assert summary(tmp_path / "runs/a")["ended"] == "interrupted"
    assert alive(pids) == []


def test_a_second_ctrl_c_in_python_raises_at_once(tmp_path, monkeypatch):
    """A checkpoint takes half a minute here, so that the first request is not carried out before the second comes."""
    monkeypatch.setenv("GIPO_TEST_SLOW_DISK_MS", "4000")
    process = in_python(tmp_path, hidden_as_numbers(ENDLESS | {"checkpoint.every_updates": 0}))
    wait_for(lambda: (tmp_path / "runs/a/metrics.jsonl").exists(), process)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    time.sleep(1.2)
    process.send_signal(signal.SIGINT)
    try:
        assert process.stdout.readline() == "raised\n"
        assert not (tmp_path / "runs/a/summary.json").exists(), "the checkpoint was written before"
        assert process.wait(HANG) != 0
    finally:
        process.kill()
        process.wait()
