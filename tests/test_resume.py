"""Killed at any moment and resumed, a lockstep run ends with the same bytes as one that was left alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest
from conftest import HANG, wait_until

from test_lockstep import SHARED
from test_tasks import MODELS

SETTINGS = {
    "learner.updates": 400,
    "learner.batch_size": 64,
    "policy.hidden": "[16,16]",
    "replay.segment_length": 16,
    "checkpoint.every_updates": 20,
    "eval.every_updates": 90,
    "eval.episodes": 3,
    "log.every_updates": 5,
}
COMPARED = ["metrics.jsonl", "episodes.jsonl", "evaluations.jsonl", "policy.safetensors", "best.safetensors"]


def train(gipo, folder, name, **settings):
    words = [gipo.binary, "train", "--quiet", "--name", name, "--set", f"run.dir={folder}"]
    for key, value in {**SETTINGS, **settings}.items():
        words += ["--set", f"{key}={value}"]
    return words


def run(words):
    return subprocess.run(words, capture_output=True, text=True, timeout=HANG)


def whole(words):
    result = run(words)
    assert result.returncode == 0, result.stderr
    return result


def resume(gipo, folder, *more):
    return [gipo.binary, "resume", str(folder), "--quiet", *more]


def contents(folder):
    found = {name: (folder / name).read_bytes() for name in COMPARED}
    summary = json.loads((folder / "summary.json").read_text())
    return found | {name: summary[name] for name in ("fingerprint", "window", "best")}


REGIMES = {
    "stale": {},
    "shared": SHARED,
    "continuous": {"env.id": "Pendulum-v1", "run.threads": 2, "learner.proximal_coef": 0.3,
                   "env.normalise_rewards": "true"},
    "fresh": {"staleness.regime": "fresh", "staleness.window": 30, "env.count": 1, "advantage.mode": "gae"},
    "on_policy": {"staleness.regime": "on_policy", "replay.capacity": 256, "advantage.mode": "stored",
                  "replay.segment_length": 64, "surrogate.name": "ppo", "env.normalise_rewards": "true"},
    "hopper": {"env.id": "Hopper-v5", "env.options.reset_noise_scale": 0.01},
    "ant": {"env.id": "Ant-v5", "run.threads": 2},
    "groups": {"advantage.mode": "group", "advantage.group_size": 3, "env.time_limit": 40, "staleness.window": 60,
               "staleness.regime": "custom", "advantage.filter_groups": "true"},
    "published": {"learner.publish_every": 7, "env.normalise_rewards": "true"},
}


left_inside_a_write = []  # whether a kill left a checkpoint half written


def kill_and_resume(gipo, tmp_path, settings, kills, seed, longest):
    """Kills the run `kills` times at random moments of its life, resuming after each, and until it was alive once;
    returns how often it was."""
    moments = random.Random(seed)
    words, killed, trials = train(gipo, tmp_path, "killed", **settings), 0, 0
    while trials < kills or killed == 0:
        trials += 1
        if trials > kills:  # the machine has become faster, and every run was over
            longest /= 2
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0.005, longest))
        killed += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        folder = tmp_path / "killed"
        left_inside_a_write.append(any(folder.glob("checkpoints/*.tmp")))
        if any(folder.glob("checkpoints/[0-9]*[0-9]/manifest.json")):
            words = resume(gipo, folder)
        else:  # killed before the first checkpoint: begin again
            shutil.rmtree(folder, ignore_errors=True)
            words = train(gipo, tmp_path, "killed", **settings)
    whole(words)
    return killed


@pytest.mark.parametrize("regime", REGIMES)
def test_killed_and_resumed_ends_with_the_same_bytes(gipo, tmp_path, regime):
    settings = REGIMES[regime]
    begin = time.monotonic()
    whole(train(gipo, tmp_path, "alone", **settings))
    longest = 0.6 * (time.monotonic() - begin)
    kill_and_resume(gipo, tmp_path, settings, kills=6, seed=regime, longest=longest)
    assert contents(tmp_path / "alone") == contents(tmp_path / "killed")


def test_killed_at_fifty_moments_ends_with_the_same_bytes(gipo, tmp_path):
    """Also inside the write of a checkpoint: one is written every fifth update, which takes longer than the updates."""
    settings = {"checkpoint.every_updates": 5, "learner.updates": 300}
    begin = time.monotonic()
    whole(train(gipo, tmp_path, "alone", **settings))
    longest = time.monotonic() - begin
    killed = trial = inside = 0
    while killed < 50:
        trial += 1
        killed += kill_and_resume(gipo, tmp_path, settings, kills=1, seed=trial, longest=longest)
        inside += left_inside_a_write.pop() if left_inside_a_write else 0
        assert contents(tmp_path / "alone") == contents(tmp_path / "killed"), trial
        assert not list(tmp_path.glob("killed/checkpoints/*.tmp"))
        shutil.rmtree(tmp_path / "killed")
    assert inside > 0, "no kill fell into the write of a checkpoint"
    print(f"{killed} kills, {inside} of them inside the write of a checkpoint")


def test_interrupted_and_resumed_with_other_threads(gipo, tmp_path):
    whole(train(gipo, tmp_path, "alone"))
    process = subprocess.Popen(train(gipo, tmp_path, "stopped"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "stopped/checkpoints/LATEST").exists(), process)
    process.send_signal(signal.SIGINT)
    code = process.wait()
    assert code in (0, 130)
    config = tmp_path / "stopped/config.toml"
    config.write_text(config.read_text().replace("threads = 1 ", "threads = 2 "))
    whole(resume(gipo, tmp_path / "stopped"))
    assert contents(tmp_path / "alone") == contents(tmp_path / "stopped")


def test_a_finished_run_can_be_lengthened(gipo, tmp_path):
    whole(train(gipo, tmp_path, "long"))
    folder = tmp_path / "long"
    lines = (folder / "metrics.jsonl").read_bytes()
    whole(resume(gipo, folder, "--updates", "500"))
    assert (folder / "metrics.jsonl").read_bytes().startswith(lines)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["updates"], summary["ended"]) == (500, "finished")
    updates = [json.loads(line)["update"] for line in (folder / "evaluations.jsonl").open()]
    assert updates == [90, 180, 270, 360, 450, 500]  # the one that ended the shorter run is gone
    short = run(resume(gipo, folder, "--updates", "100"))
    assert short.returncode == 2 and "500 updates already" in short.stderr


def test_best_policy_is_that_of_the_best_evaluation_and_is_cut_back(gipo, tmp_path):
    whole(train(gipo, tmp_path, "a"))
    folder = tmp_path / "a"
    lines = [json.loads(line) for line in (folder / "evaluations.jsonl").open()]
    best = max(lines, key=lambda line: line["mean"])  # the first of equals
    recorded = json.loads((folder / "summary.json").read_text())["best"]
    assert recorded["update"] == best["update"] and recorded["env_steps"] == best["env_steps"]
    assert recorded["return"] == {key: best[key] for key in ("mean", "std", "episodes")}
    kept = (folder / "best.safetensors").read_bytes()
    metadata = json.loads(kept[8 : 8 + int.from_bytes(kept[:8], "little")])["__metadata__"]
    assert metadata["version"] == str(best["update"]) and metadata["env_steps"] == str(best["env_steps"])
    assert float(metadata["eval_mean"]) == best["mean"] and metadata["eval_episodes"] == "3"
    # One from an evaluation that the checkpoint does not know is replaced, and the last evaluation is made again.
    (folder / "best.safetensors").write_bytes(b"of an evaluation that never was")
    whole(resume(gipo, folder))
    assert (folder / "best.safetensors").read_bytes() == kept
    # Before the first evaluation there is none.
    whole(train(gipo, tmp_path, "b", **{"learner.updates": 80, "eval.every_updates": 81}))
    (tmp_path / "b" / "best.safetensors").write_bytes(b"of an evaluation that never was")
    whole(resume(gipo, tmp_path / "b", "--updates", "81"))
    assert json.loads((tmp_path / "b" / "summary.json").read_text())["best"]["update"] == 81
    # Without evaluations on the way none is kept.
    whole(train(gipo, tmp_path, "c", **{"learner.updates": 80, "eval.every_updates": 0}))
    assert not (tmp_path / "c" / "best.safetensors").exists()
    assert "best" not in json.loads((tmp_path / "c" / "summary.json").read_text())


def test_a_run_can_be_lengthened_by_env_steps(gipo, tmp_path):
    whole(train(gipo, tmp_path, "long"))
    folder = tmp_path / "long"
    before = json.loads((folder / "summary.json").read_text())
    whole(resume(gipo, folder, "--env-steps", str(before["env_steps"] + 80)))
    after = json.loads((folder / "summary.json").read_text())
    assert after["env_steps"] == before["env_steps"] + 80 and after["updates"] == before["updates"] + 10
    short = run(resume(gipo, folder, "--env-steps", "100"))
    assert short.returncode == 2
    assert f"learner.env_steps = 100 is not accepted: the run has made {after['updates']} updates" in short.stderr
    both = run(resume(gipo, folder, "--env-steps", "9999", "--updates", "9999"))
    assert both.returncode == 2 and "learner.env_steps = 9999 is not accepted beside learner.updates" in both.stderr


def test_damaged_checkpoints_are_passed_over_with_one_line(gipo, tmp_path):
    whole(train(gipo, tmp_path, "alone"))
    reference = contents(tmp_path / "alone")
    checkpoints = tmp_path / "alone/checkpoints"
    newest = sorted(path for path in checkpoints.iterdir() if path.is_dir())[-1]
    for file in sorted(newest.iterdir()):
        bytes_ = bytearray(file.read_bytes())
        bytes_[len(bytes_) // 2] ^= 0x10
        file.write_bytes(bytes_)
        result = whole(resume(gipo, tmp_path / "alone"))
        assert result.stderr.count("passed over") == 1 and newest.name in result.stderr
        assert contents(tmp_path / "alone") == reference


def test_a_log_that_lost_its_end_is_mended_from_an_older_checkpoint(gipo, tmp_path):
    """As after a machine that lost power: the log ends before the place that the newest checkpoint names."""
    settings = {"learner.updates": 395, "checkpoint.every_updates": 0}  # one at 395, one at 400
    whole(train(gipo, tmp_path, "alone", **settings))
    whole(resume(gipo, tmp_path / "alone", "--updates", "400"))
    reference, log = contents(tmp_path / "alone"), tmp_path / "alone/metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]) + lines[-1][:10])
    result = whole(resume(gipo, tmp_path / "alone"))
    assert result.stderr.count("passed over") == 1 and "metrics.jsonl has" in result.stderr
    assert contents(tmp_path / "alone") == reference


def test_tensorboard_can_be_turned_off_and_on(gipo, tmp_path):
    whole(train(gipo, tmp_path, "alone"))
    folder = tmp_path / "alone"
    config = folder / "config.toml"
    events = lambda: {path.name: path.stat().st_size for path in folder.glob("events*")}
    first = events()
    config.write_text(config.read_text().replace("tensorboard = true ", "tensorboard = false "))
    whole(resume(gipo, folder, "--updates", "420"))
    assert events() == first
    for path in folder.glob("events*"):
        path.unlink()
    config.write_text(config.read_text().replace("tensorboard = false ", "tensorboard = true "))
    whole(resume(gipo, folder, "--updates", "440"))
    assert len(events()) == 1


def test_checkpoints_of_another_version_are_refused(gipo, tmp_path):
    whole(train(gipo, tmp_path, "alone", **{"checkpoint.keep": 1}))
    folder = tmp_path / "alone"
    for manifest in folder.glob("checkpoints/*/manifest.json"):
        manifest.write_text(manifest.read_text().replace('"format":6', '"format":99'))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = run(resume(gipo, folder))
    assert result.returncode == 2
    assert "its format is 99, this program reads 6" in result.stderr and result.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_what_may_not_change_is_refused_by_name(gipo, tmp_path):
    whole(train(gipo, tmp_path, "alone"))
    config = tmp_path / "alone/config.toml"
    before = contents(tmp_path / "alone")
    config.write_text(config.read_text().replace("sigma = 0.5 ", "sigma = 0.25 "))
    result = run(resume(gipo, tmp_path / "alone"))
    assert result.returncode == 2
    assert "surrogate.sigma was 0.5 and is now 0.25" in result.stderr
    assert contents(tmp_path / "alone") == before


def test_options_of_the_task_may_not_change(gipo, tmp_path):
    whole(train(gipo, tmp_path, "alone", **{"env.id": "Hopper-v5", "learner.updates": 30}))
    config = tmp_path / "alone/config.toml"
    config.write_text(config.read_text().replace('ctrl_cost_weight = 0.001', 'ctrl_cost_weight = 0.5'))
    result = run(resume(gipo, tmp_path / "alone"))
    assert result.returncode == 2
    assert "env.options.ctrl_cost_weight was 0.001 and is now 0.5" in result.stderr
    config.write_text(config.read_text().replace("ctrl_cost_weight = 0.5", "ctrl_cost_wait = 0.5"))
    result = run(resume(gipo, tmp_path / "alone"))
    assert result.returncode == 2 and "config.toml: env.options.ctrl_cost_wait is not an option" in result.stderr
    # Left out, an option has its default.
    config.write_text(config.read_text().replace("ctrl_cost_wait = 0.5\n", ""))
    whole(resume(gipo, tmp_path / "alone", "--updates", "40"))


def test_another_model_is_refused(gipo, tmp_path):
    whole(train(gipo, tmp_path, "alone", **{"env.id": "InvertedPendulum-v5", "learner.updates": 30}))
    models = tmp_path / "models"
    models.mkdir()
    (models / "inverted_pendulum.xml").write_text(MODELS["inverted_pendulum.xml"].read_text() + "\n")
    result = subprocess.run(resume(gipo, tmp_path / "alone", "--updates", "40"), capture_output=True, text=True,
                            env=os.environ | {"GIPO_MUJOCO_MODELS": str(models)})
    assert result.returncode == 2 and "simulated by MuJoCo 3.3.0, inverted_pendulum.xml " in result.stderr


def test_nothing_to_resume_is_said(gipo, tmp_path):
    result = run(resume(gipo, tmp_path / "absent"))
    assert result.returncode == 2 and "no such run folder" in result.stderr
    whole(train(gipo, tmp_path, "bare"))
    shutil.rmtree(tmp_path / "bare/checkpoints")
    result = run(resume(gipo, tmp_path / "bare"))
    assert result.returncode == 2 and "no whole checkpoint" in result.stderr


def test_a_second_process_is_refused(gipo, tmp_path):
    words = train(gipo, tmp_path, "busy", **{"learner.updates": 200000})
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "busy/checkpoints/LATEST").exists(), process)
    result = run(resume(gipo, tmp_path / "busy"))
    process.kill()
    process.wait()
    assert result.returncode == 2 and f"in use by another process ({process.pid})" in result.stderr


def test_async_goes_on_with_its_counts(gipo, tmp_path):
    settings = {"run.mode": "async", "learner.updates": 3000, "checkpoint.every_updates": 200}
    process = subprocess.Popen(train(gipo, tmp_path, "a", **settings), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "a/checkpoints/LATEST").exists(), process)
    process.kill()
    process.wait()
    whole(resume(gipo, tmp_path / "a"))
    summary = json.loads((tmp_path / "a/summary.json").read_text())
    assert (summary["updates"], summary["ended"]) == (3000, "finished")
    updates = [json.loads(line)["update"] for line in (tmp_path / "a/metrics.jsonl").open()]
    assert updates == list(range(5, 3001, 5))
    # Every evaluation and every episode once, and none without its line.
    evaluations = [json.loads(line)["update"] for line in (tmp_path / "a/evaluations.jsonl").open()]
    assert evaluations == [*range(90, 3000, 90), 3000]
    episodes = [json.loads(line) for line in (tmp_path / "a/episodes.jsonl").open()]
    numbers = [(line["env"], line["episode"]) for line in episodes]
    assert len(set(numbers)) == len(numbers) == summary["episodes"]
    for env in {env for env, _ in numbers}:
        assert sorted(n for e, n in numbers if e == env) == list(range(sum(e == env for e, _ in numbers)))
