"""`gipo suite`: killed at any moment it goes on where it was, and ends as if nothing had happened."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import HANG, wait_until

COMPARED = ["metrics.jsonl", "episodes.jsonl", "evaluations.jsonl", "policy.safetensors", "config.toml"]

BASE = """
[policy]
hidden = [16, 16]
[learner]
batch_size = 64
updates = {updates}
[replay]
segment_length = 16
[eval]
episodes = 2
[checkpoint]
every_updates = 25
[log]
tensorboard = false
"""

# 3 tasks x 2 methods x 2 regimes x 2 seeds = 24 runs.
SUITE = """
[suite]
name = "short"
config = "base.toml"
seeds = [1, 2]

[[task]]
name = "CartPole-v1"
random = 22.0
reference = 500.0

[[task]]
name = "Pendulum-v1"
random = -1230.0
reference = -150.0

[[task]]
name = "Acrobot-v1"
random = -500.0
reference = -80.0

[[method]]
name = "GIPO 0.5"
surrogate.sigma = 0.5

[[method]]
name = "PPO 0.2"
surrogate = { name = "ppo", epsilon = 0.2 }

[[regime]]
name = "stale"

[[regime]]
name = "stale + KL"
learner.kl_coef = 0.1
"""


@pytest.fixture
def suite(gipo):
    def write(text=SUITE, updates=300):
        (gipo.folder / "base.toml").write_text(BASE.format(updates=updates))
        (gipo.folder / "suite.toml").write_text(text)

    write()
    gipo.write = write
    return gipo


def command(gipo, out, *more):
    return [gipo.binary, "suite", "suite.toml", "--out", out, "--jobs", "2", "--quiet", *more]


def contents(out):
    """Every byte that a suite of lockstep runs leaves and that holds no time, path or command."""
    found = {"results.json": (out / "results.json").read_bytes()}
    for run in sorted((out / "runs").iterdir()):
        for name in COMPARED:
            text = (run / name).read_bytes()
            found[f"{run.name}/{name}"] = text.replace(f'"{out.name}/'.encode(), b'"OUT/')
        found[f"{run.name}/fingerprint"] = json.loads((run / "summary.json").read_text())["fingerprint"]
    return found


def runs_at_work(out, suite):
    """Processes of the suite's runs, by their lock files: /proc may be that of another process namespace."""
    found = set()
    for lock in out.glob("runs/*/lock"):
        try:
            pid = int(lock.read_text())
            os.kill(pid, 0)
            found.add(pid)
        except (OSError, ValueError):  # ended; not yet written
            pass
    return sorted(found - {suite.pid})  # which looks at each lock before it starts a run


def locked(path):
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def finished(out):
    return {run.parent.name for run in out.glob("runs/*/summary.json") if '"finished"' in run.read_text()}


def test_killed_suite_and_killed_runs_end_with_the_same_bytes(suite):
    suite.write(updates=600)
    alone, killed = suite.folder / "alone", suite.folder / "killed"
    done = subprocess.run(command(suite, "alone"), cwd=suite.folder, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    assert "24 of 24 runs done, 0 failed" in done.stdout

    moments = random.Random(1)
    suite_kills, run_kills, summaries = 0, 0, {}
    while True:
        process = subprocess.Popen(command(suite, "killed"), cwd=suite.folder, stdout=subprocess.PIPE, text=True)
        try:
            target = 5 * (suite_kills + 1)  # finished runs at which this session is killed
            while process.poll() is None:
                if run_kills < 5 and len(finished(killed)) >= 3 * run_kills and runs_at_work(killed, process):
                    time.sleep(moments.uniform(0, 0.2))
                    try:
                        os.kill(moments.choice(runs_at_work(killed, process)), signal.SIGKILL)
                        run_kills += 1
                    except (ProcessLookupError, IndexError):  # just ended
                        pass
                if suite_kills < 3 and len(finished(killed)) >= target:
                    time.sleep(moments.uniform(0, 0.2))
                    process.kill()
                    process.wait()
                    suite_kills += 1
                    # Its runs die with it.
                    wait_until(lambda: not any(locked(path) for path in killed.glob("runs/*/lock")))
                    summaries = {killed / "runs" / name / "summary.json": 0 for name in finished(killed)} | summaries
                    summaries = {path: before or path.stat().st_mtime_ns for path, before in summaries.items()}
                    break
                time.sleep(0.02)
            else:
                assert process.returncode == 0
                assert "24 of 24 runs done, 0 failed" in process.stdout.read()
                break
        finally:
            process.kill()
            process.wait()
    for path, written in summaries.items():  # finished runs are never repeated
        assert path.stat().st_mtime_ns == written
    assert (suite_kills, run_kills) == (3, 5)
    assert len(list((killed / "runs").iterdir())) == 24
    assert contents(alone) == contents(killed)


def test_finished_suite_is_not_run_again(suite):
    words = command(suite, "out", "--json")
    first = subprocess.run(words, cwd=suite.folder, capture_output=True, text=True)
    printed = json.loads(first.stdout)
    assert printed["done"] == 24 == len(printed["rows"]) and printed["failed"] == 0
    before = {p: p.stat().st_mtime_ns for p in suite.folder.glob("out/runs/*/*")}
    again = subprocess.run(words, cwd=suite.folder, capture_output=True, text=True)
    assert json.loads(again.stdout) == printed
    assert {p: p.stat().st_mtime_ns for p in suite.folder.glob("out/runs/*/*")} == before
    row = printed["rows"][0]
    assert (row["task"], row["method"], row["regime"], row["seed"]) == ("CartPole-v1", "GIPO 0.5", "stale", 1)
    assert row["final_return"]["mean"] and row["window"]["old_frac"] >= 0
    assert Path(suite.folder, row["run_dir"], "summary.json").exists()


def test_more_seeds_are_added_to_a_finished_suite(suite):
    few = SUITE.replace("seeds = [1, 2]", "seeds = [1]")
    suite.write(few)
    assert subprocess.run(command(suite, "out"), cwd=suite.folder, capture_output=True).returncode == 0
    before = {p: p.stat().st_mtime_ns for p in suite.folder.glob("out/runs/*/summary.json")}
    suite.write(SUITE)
    done = subprocess.run(command(suite, "out"), cwd=suite.folder, capture_output=True, text=True)
    assert "24 of 24 runs done" in done.stdout
    assert all(p.stat().st_mtime_ns == t for p, t in before.items()) and len(before) == 12


OPTIONS = """
[suite]
name = "options"
config = "base.toml"
seeds = [1]
env.options.reset_noise_scale = 0.02
env.options.healthy_reward = 2

[[task]]
name = "Hopper-v5"
env.options.healthy_z_range = [0.5, inf]
env.options.healthy_reward = 4

[[method]]
name = "m"
env.options.terminate_when_unhealthy = false

[[regime]]
name = "r"
[regime.env.options]
healthy_reward = 3
forward_reward_weight = 1.5
"""


def test_options_of_tasks_reach_the_runs_from_every_part_of_the_file(suite):
    suite.write(OPTIONS, updates=5)
    done = subprocess.run(command(suite, "out"), cwd=suite.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 runs done, 0 failed" in done.stdout
    lines = (suite.folder / "out/runs/Hopper-v5-m-r-1/config.toml").read_text().splitlines()
    for line in ("reset_noise_scale = 0.02", "healthy_reward = 4.0", "healthy_z_range = [0.5, inf]",
                 "terminate_when_unhealthy = false", "forward_reward_weight = 1.5"):  # fmt: skip
        assert line in lines
    suite.write(OPTIONS.replace("healthy_reward = 4", "healthy_rewrad = 4"), updates=5)
    refused = suite("suite", "suite.toml", "--out", "other")
    assert refused.returncode == 2 and "suite.toml:12: env.options.healthy_rewrad" in refused.stderr, refused.stderr


def test_solved_run_is_done_and_is_not_run_again(suite):
    text = SUITE.replace("[1, 2]", "[1]") + "run.target_return = -1e9\n"
    suite.write(text, updates=100000)
    words = command(suite, "out", "--regime", "stale + KL", "--json", "--task", "CartPole-v1")
    done = subprocess.run(words, cwd=suite.folder, capture_output=True, text=True, timeout=HANG)
    printed = json.loads(done.stdout)
    assert done.returncode == 0 and (printed["done"], printed["failed"]) == (2, 0), done.stdout
    assert {row["ended"] for row in printed["rows"]} == {"solved"}
    before = {p: p.stat().st_mtime_ns for p in suite.folder.glob("out/runs/*/*")}
    again = subprocess.run(words, cwd=suite.folder, capture_output=True, text=True, timeout=HANG)
    assert json.loads(again.stdout) == printed
    assert {p: p.stat().st_mtime_ns for p in suite.folder.glob("out/runs/*/*")} == before


def test_failed_run_is_reported_and_does_not_stop_the_rest(suite):
    wild = SUITE + '\n[[method]]\nname = "wild"\nenv.reward_scale = 1e36\nlearner.value_coef = 1e6\n'
    suite.write(wild)
    done = subprocess.run(command(suite, "out"), cwd=suite.folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert "24 of 36 runs done, 12 failed" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("CartPole-v1-wild-stale-1 ")]
    assert "finite" in line
    # Reported again, not run again, unless asked for.
    log = suite.folder / "out/output/CartPole-v1-wild-stale-1.txt"
    before = log.read_text()
    again = subprocess.run(command(suite, "out"), cwd=suite.folder, capture_output=True, text=True)
    assert again.returncode == 1 and "24 of 36 runs done, 12 failed" in again.stdout and log.read_text() == before
    subprocess.run(command(suite, "out", "--retry"), cwd=suite.folder, capture_output=True)
    assert len(log.read_text()) > len(before)


def test_interrupt_saves_the_runs_and_the_same_command_goes_on(suite):
    suite.write(SUITE.replace("[1, 2]", "[1]"), updates=20000)
    process = subprocess.Popen(command(suite, "out"), cwd=suite.folder, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: len(list(suite.folder.glob("out/runs/*/checkpoints/LATEST"))) >= 2, process)
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert process.returncode == 130 and "interrupted" in messages
    endings = [json.loads(p.read_text())["ended"] for p in suite.folder.glob("out/runs/*/summary.json")]
    assert "interrupted" in endings


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def states(gipo, out, *more):
    """Of the runs that a dry run lists, by name."""
    done = gipo("suite", "suite.toml", "--out", out, "--dry-run", "--json", *more)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row["state"] for row in json.loads(done.stdout)["rows"]}


def move(gipo, source, target):
    """What is left of a suite whose machine went away."""
    (gipo.folder / target).mkdir()
    for name in ("suite.json", "results.json"):
        shutil.copy(gipo.folder / source / name, gipo.folder / target)


def test_interrupted_and_moved_without_its_runs_it_ends_with_the_same_bytes(suite):
    suite.write(updates=600)
    alone, cut, moved = (suite.folder / name for name in ("alone", "cut", "moved"))
    assert subprocess.run(command(suite, "alone"), cwd=suite.folder, capture_output=True).returncode == 0
    process = subprocess.Popen(command(suite, "cut"), cwd=suite.folder, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(finished(cut)) >= 3, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=HANG) == 130
    finally:
        process.kill()
    kept = finished(cut)
    rows = json.loads((cut / "results.json").read_text())
    assert {row["name"] for row in rows if row["ended"] == "finished"} == kept and 3 <= len(kept) < 24 == len(rows)

    move(suite, "cut", "moved")
    assert {name for name, state in states(suite, "moved").items() if state == "done"} == kept
    assert not (moved / "runs").exists()
    words = [word for word in command(suite, "moved", "--json") if word != "--quiet"]
    done = subprocess.run(words, cwd=suite.folder, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["done"] == 24 and {row["state"] for row in printed["rows"]} == {"done"}
    assert done.stderr.count(" done\n") == 24 - len(kept)
    assert {run.name for run in (moved / "runs").iterdir()} == {row["name"] for row in rows} - kept
    assert (moved / "results.json").read_bytes() == (alone / "results.json").read_bytes()


def test_row_of_a_run_with_other_options_is_named_and_nothing_is_changed(suite):
    suite.write(SUITE.replace("[1, 2]", "[1]"), updates=50)
    assert subprocess.run(command(suite, "out"), cwd=suite.folder, capture_output=True).returncode == 0
    move(suite, "out", "moved")
    before = files(suite.folder / "moved")
    suite.write(SUITE.replace("[1, 2]", "[1]").replace("epsilon = 0.2", "epsilon = 0.3"), updates=50)
    done = suite("suite", "suite.toml", "--out", "moved")
    assert done.returncode == 2 and "moved/results.json: CartPole-v1-PPO_0.2-stale-1 was run with other" in done.stderr
    assert "remove the row or the file, or give the suite another --out" in done.stderr
    assert files(suite.folder / "moved") == before and suite.folder / "moved/runs" not in suite.folder.rglob("*")
    # What does not decide a result may change, and rows of an earlier version are run again.
    suite.write(SUITE.replace("[1, 2]", "[1]").replace("[suite]", "[suite]\nrun.threads = 2\neval.episodes = 3"), updates=50)
    assert set(states(suite, "moved").values()) == {"done"}
    rows = json.loads((suite.folder / "moved/results.json").read_text())
    del rows[0]["options"]
    rows[1]["ended"] = "failed: no luck"
    (suite.folder / "moved/results.json").write_text(json.dumps(rows, indent=1))
    assert [name for name, state in states(suite, "moved").items() if state == "waiting"] == [r["name"] for r in rows[:2]]


def test_damaged_results_are_named_and_nothing_is_changed(suite):
    suite.write(SUITE.replace("[1, 2]", "[1]"), updates=20)
    words = ("--task", "CartPole-v1", "--regime", "stale")
    assert subprocess.run(command(suite, "out", *words), cwd=suite.folder, capture_output=True).returncode == 0
    shutil.rmtree(suite.folder / "out/runs")
    kept = suite.folder / "out/results.json"
    good = kept.read_text()
    for bad, part in ((good[: len(good) // 2], "not valid JSON"), ("{}", "wanted a list of rows"), ("[1]", "row 1"), ("", "not valid JSON"),
                      (good.replace('"env_steps":', '"env_steps":NaN,"x":', 1), "not valid JSON"), (None, "it holds more than")):  # fmt: skip
        kept.write_text(bad or "")
        if bad is None:
            os.truncate(kept, 2**40)
        before = {path: path.stat().st_mtime_ns for path in (suite.folder / "out").rglob("*")}
        for more in ((), ("--dry-run",)):
            done = suite("suite", "suite.toml", "--out", "out", *words, *more)
            assert done.returncode == 2 and "out/results.json:" in done.stderr and part in done.stderr, done.stderr
        assert {path: path.stat().st_mtime_ns for path in (suite.folder / "out").rglob("*")} == before


def test_a_part_that_is_run_loses_no_rows_of_the_rest(suite):
    suite.write(updates=20)
    assert subprocess.run(command(suite, "whole"), cwd=suite.folder, capture_output=True).returncode == 0
    whole = (suite.folder / "whole/results.json").read_bytes()
    part = command(suite, "whole", "--task", "Pendulum-v1", "--seed", "2", "--json")
    done = subprocess.run(part, cwd=suite.folder, capture_output=True, text=True)
    assert len(json.loads(done.stdout)["rows"]) == 4 and (suite.folder / "whole/results.json").read_bytes() == whole
    # Part after part, each on a machine of its own.
    for i, words in enumerate((("--seed", "2"), ("--task", "Acrobot-v1"), ())):
        out = suite.folder / "parts"
        assert subprocess.run(command(suite, "parts", *words), cwd=suite.folder, capture_output=True).returncode == 0
        assert len(list((out / "runs").iterdir())) == (12, 4, 8)[i]
        shutil.rmtree(out / "runs")
    assert (out / "results.json").read_bytes() == whole
    # A row that the file no longer asks for stands behind the others.
    names = [row["name"] for row in json.loads(whole)]
    suite.write(SUITE.replace('"Acrobot-v1"', '"MountainCar-v0"'), updates=20)
    part = command(suite, "parts", "--task", "Pendulum-v1")
    assert subprocess.run(part, cwd=suite.folder, capture_output=True).returncode == 0
    after = [row["name"] for row in json.loads((out / "results.json").read_text())]
    assert after == sorted(names, key=lambda name: name.startswith("Acrobot"))


def test_second_suite_in_the_same_folder_is_refused(suite):
    suite.write(updates=3000)
    process = subprocess.Popen(command(suite, "out"), cwd=suite.folder, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: list(suite.folder.glob("out/runs/*/metrics.jsonl")), process)
        done = suite("suite", "suite.toml", "--out", "out")
        assert done.returncode == 2 and "suite folder out is in use" in done.stderr
    finally:
        process.kill()
        process.wait()


def test_dry_run_lists_everything_and_creates_nothing(suite):
    before = suite.entries()
    done = suite("suite", "suite.toml", "--dry-run")
    assert done.returncode == 0 and done.stdout.count("waiting") == 24 and "about" in done.stdout
    printed = json.loads(suite("suite", "suite.toml", "--dry-run", "--json").stdout)
    assert len(printed["rows"]) == 24 and printed["estimated_seconds"] > 0
    assert printed["out"] == "results/short"
    assert suite.entries() == before


def test_live_view_says_how_the_whole_gets_on(suite):
    suite.write(SUITE.replace("[1, 2]", "[1]"))
    words = [word for word in command(suite, "out") if word != "--quiet"]
    done = subprocess.run(words, cwd=suite.folder, capture_output=True, text=True)
    assert done.stderr.count(" done\n") == 12
    assert "of 12 done  0 failed" in done.stderr


def test_checkpoints_are_dropped_where_the_suite_says_so(suite):
    suite.write(SUITE.replace("seeds = [1, 2]", "seeds = [1]\nkeep_checkpoints = false"))
    assert subprocess.run(command(suite, "out"), cwd=suite.folder, capture_output=True).returncode == 0
    assert not list(suite.folder.glob("out/runs/*/checkpoints"))


@pytest.mark.parametrize(
    "change, parts",
    [
        (("CartPole-v1", "CartPole-v2"), ["suite.toml:8:", "CartPole-v2", "did you mean CartPole-v1?"]),
        (('"ppo"', '"pppo"'), ["suite.toml:28:", "pppo", "did you mean ppo?"]),
        (("surrogate.sigma", "surrogate.sigam"), ["suite.toml:24:", "did you mean surrogate.sigma?"]),
        (("[[method]]", "[[methods]]"), ["suite.toml:22:", "did you mean method?"]),
        (("base.toml", "none.toml"), ["none.toml"]),
    ],
)
def test_mistakes_in_the_file_exit_with_2_and_touch_nothing(suite, change, parts):
    suite.write(SUITE.replace(*change))
    before = suite.entries()
    done = suite("suite", "suite.toml")
    assert done.returncode == 2, done.stderr
    assert [part for part in parts if part not in done.stderr] == [], done.stderr
    assert suite.entries() == before


def test_a_card_that_is_not_there_is_named_and_nothing_is_touched(suite):
    before = suite.entries()
    words = [suite.binary, "suite", "suite.toml", "--device", "cuda"]
    done = subprocess.run(words, cwd=suite.folder, capture_output=True, text=True,
                          env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})  # fmt: skip
    assert done.returncode == 2 and done.stderr.startswith("gipo: --device cuda: ") and done.stderr.count("\n") == 1
    assert suite.entries() == before
    assert suite("suite", "suite.toml", "--device", "tpu").returncode == 2
    assert suite("suite", "suite.toml", "--device", "cuda", "--ray").returncode == 2


def test_run_folder_of_another_version_or_other_options_is_named_and_untouched(suite):
    suite.write(SUITE.replace("[1, 2]", "[1]"))
    assert subprocess.run(command(suite, "out"), cwd=suite.folder, capture_output=True).returncode == 0
    run = suite.folder / "out/runs/Acrobot-v1-PPO_0.2-stale-1"
    good = (run / "summary.json").read_text()

    def refused(part):
        files = {p: p.read_bytes() for p in (suite.folder / "out").rglob("*") if p.is_file()}
        done = suite("suite", "suite.toml", "--out", "out")
        assert done.returncode == 2 and part in done.stderr, done.stderr
        assert {p: p.read_bytes() for p in (suite.folder / "out").rglob("*") if p.is_file()} == files

    for bad in ("", '{"schema_version": 2}', good[: len(good) // 2]):
        (run / "summary.json").write_text(bad)
        refused("runs/Acrobot-v1-PPO_0.2-stale-1/summary.json")
    (run / "summary.json").write_text(good)
    suite.write(SUITE.replace("[1, 2]", "[1]").replace("epsilon = 0.2", "epsilon = 0.3"))
    refused("surrogate.epsilon was 0.2 and is now 0.3")


@pytest.mark.parametrize("name, runs", [("tuning", 840), ("tuning_fresh", 840), ("classic_stale", 1120),
                                        ("classic_fresh", 1120), ("reasons", 120), ("reuse", 128), ("reuse_best", 120),
                                        ("mujoco_stale", 330), ("mujoco_fresh", 650), ("mujoco_million", 10)])  # fmt: skip
def test_suites_of_the_repository_are_whole(gipo, name, runs):
    root = Path(__file__).resolve().parent.parent
    done = gipo("suite", root / "suites" / f"{name}.toml", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["rows"]) == runs
    assert gipo.entries() == []


def test_suite_of_many_methods_is_read(suite):
    methods = "".join(f'[[method]]\nname = "m{i}"\nsurrogate.sigma = {1 + i / 1000}\n# {"x" * 40}\n' for i in range(700))
    suite.write(SUITE[: SUITE.index("[[method]]")] + methods)
    done = suite("suite", "suite.toml", "--dry-run", "--json", "--task", "CartPole-v1", "--seed", "1")
    assert done.returncode == 0 and len(json.loads(done.stdout)["rows"]) == 700, done.stderr


def test_names_that_no_folder_can_have_are_refused(suite):
    for change, part in ((("GIPO 0.5", "m" * 300), "suite.toml:23: run.name = "), (('"short"', '"' + "s" * 300 + '"'), "suite.toml:3: suite.name"),
                         (('"short"', r'"s\u0000"'), "suite.toml:3: suite.name")):  # fmt: skip
        suite.write(SUITE.replace(*change))
        before = suite.entries()
        done = suite("suite", "suite.toml")
        assert done.returncode == 2 and part in done.stderr, done.stderr
        assert suite.entries() == before


def test_a_part_can_be_run_first_and_the_rest_later(suite):
    done = suite("suite", "suite.toml", "--out", "out", "--task", "Acrobot-v1", "--seed", "2", "--json")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["rows"]
    assert {(r["task"], r["seed"]) for r in first} == {("Acrobot-v1", 2)} and len(first) == 4
    done = suite("suite", "suite.toml", "--out", "out", "--task", "Acrobot-v1", "--dry-run", "--json")
    states = [row["state"] for row in json.loads(done.stdout)["rows"]]
    assert (states.count("done"), states.count("waiting")) == (4, 4)
    done = suite("suite", "suite.toml", "--out", "out", "--task", "Acrobat-v1")
    assert done.returncode == 2 and "no task Acrobat-v1 (did you mean Acrobot-v1?)" in done.stderr
