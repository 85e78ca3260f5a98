"""`gipo tune`: halving over seeds that are not reported; killed at any moment it ends with the same choice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time

import pytest
from conftest import HANG, wait_until
from test_suite import BASE, finished

# 2 tasks; GIPO has 4 candidates and PPO 2: rounds of 6, 4 and 4 candidates on 1, 2 and 4 seeds.
SUITE = """
[suite]
name = "short"
config = "base.toml"
seeds = [1, 2]
tuned = "tuned/short.toml"

[tune]
seeds = [11, 12, 13, 14]
candidates = 4
first_seeds = 1
keep = 0.5
grid.learner.policy_lr = [1e-4, 3e-3]

[[task]]
name = "CartPole-v1"
random = 22.0
reference = 500.0

[[task]]
name = "Pendulum-v1"
random = -1230.0
reference = -150.0

[[method]]
name = "GIPO"
tune.surrogate.sigma = [0.25, 0.5]

[[method]]
name = "PPO 0.2"
surrogate = { name = "ppo", epsilon = 0.2 }
"""
RUNS = 2 * (6 * 1 + 4 * 1 + 4 * 2)


@pytest.fixture
def tuned(gipo):
    def write(text=SUITE, updates=200):
        (gipo.folder / "base.toml").write_text(BASE.format(updates=updates))
        (gipo.folder / "suite.toml").write_text(text)

    write()
    gipo.write = write
    return gipo


def words(out, *more):
    return ["tune", "suite.toml", "--out", out, "--jobs", "2", "--quiet", *more]


def results(out):
    return (out / "tune.json").read_bytes(), (out / "chosen.toml").read_bytes()


def test_killed_three_times_it_ends_with_the_same_bytes_and_the_suite_takes_them(tuned):
    tuned.write(updates=400)
    done = tuned(*words("alone"))
    assert done.returncode == 0, done.stderr
    assert "GIPO" in done.stdout and "learner.policy_lr = " in done.stdout and "runner-up" in done.stdout
    assert len(finished(tuned.folder / "alone")) == RUNS

    killed, moments = tuned.folder / "killed", random.Random(1)
    for target in (3, 13, 22):  # in the first round, the second and the third
        process = subprocess.Popen([tuned.binary, *words("killed")], cwd=tuned.folder, stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: len(finished(killed)) >= target, process)  # noqa: B023
            time.sleep(moments.uniform(0, 0.1))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    done = tuned(*words("killed", "--write", "--json"))
    assert done.returncode == 0, done.stderr
    assert results(killed) == results(tuned.folder / "alone")
    assert finished(killed) == finished(tuned.folder / "alone")

    # Everything that was tried and chosen is there.
    printed, kept = json.loads(done.stdout), json.loads((killed / "tune.json").read_text())
    assert printed["chosen_file"] == "tuned/short.toml" and printed["methods"] == kept["methods"]
    assert [len(m["tried"]) for m in kept["methods"]] == [4, 2] and kept["seeds_of_rounds"] == [1, 2, 4]
    for method in kept["methods"]:
        (chosen,) = [c for c in method["tried"] if c["name"] == method["chosen"]]
        last = [c["mean"] for c in method["tried"] if c["rounds"] == 3]
        assert chosen["mean"] == max(last) and len(last) == 2 and chosen["dropped_in_round"] is None
        scores = [sum(runs) / len(runs) for runs in chosen["scores"].values()]
        assert chosen["mean"] == pytest.approx(sum(scores) / 2) and chosen["seeds"] == [11, 12, 13, 14]
    run = json.loads((killed / f"runs/CartPole-v1-{kept['methods'][0]['chosen']}-12/summary.json").read_text())
    (chosen,) = [c for c in kept["methods"][0]["tried"] if c["name"] == kept["methods"][0]["chosen"]]
    assert chosen["scores"]["CartPole-v1"][1] == pytest.approx((run["final_return"]["mean"] - 22) / 478)
    assert str(tuned.folder) not in (killed / "tune.json").read_text()

    # Finished, it is not run again.
    before = {p: p.stat().st_mtime_ns for p in killed.glob("runs/*/*")}
    assert tuned(*words("killed")).returncode == 0
    assert {p: p.stat().st_mtime_ns for p in killed.glob("runs/*/*")} == before

    # The suite takes what was chosen.
    done = tuned("suite", "suite.toml", "--out", "suite", "--seed", "1", "--quiet")
    assert done.returncode == 0, done.stderr
    for method, options in ((m["method"].replace(" ", "_"), m) for m in kept["methods"]):
        (chosen,) = [c["options"] for c in options["tried"] if c["name"] == options["chosen"]]
        config = (tuned.folder / f"suite/runs/CartPole-v1-{method}-1/config.toml").read_text()
        for key, value in chosen.items():
            (line,) = [x for x in config.splitlines() if x.startswith(key.split(".")[1] + " =")]
            assert float(line.split("=")[1].split("#")[0]) == value


def test_moved_without_its_runs_it_goes_on_to_the_same_bytes(tuned):
    tuned.write(updates=50)
    assert tuned(*words("out")).returncode == 0
    out, moved = tuned.folder / "out", tuned.folder / "moved"
    rows = json.loads((out / "results.json").read_text())
    assert {row["name"] for row in rows} == finished(out) and len(rows) == RUNS
    # All but the last seed was run when the machine went away.
    moved.mkdir()
    (moved / "results.json").write_text(json.dumps([row for row in rows if row["seed"] != 14]))
    left = [r["left"] for r in json.loads(tuned(*words("moved", "--dry-run", "--json")).stdout)["rounds"]]
    assert left == [0, 0, 8]
    assert tuned(*words("moved")).returncode == 0
    assert results(moved) == results(out) and {int(name[-2:]) for name in finished(moved)} == {14}
    assert (moved / "results.json").read_bytes() == (out / "results.json").read_bytes()


def test_dry_run_lists_rounds_and_creates_nothing(tuned):
    before = tuned.entries()
    done = tuned("tune", "suite.toml", "--dry-run")
    assert done.returncode == 0 and "into results/short-tune" in done.stdout and "sigma = 0.25" in done.stdout
    printed = json.loads(tuned("tune", "suite.toml", "--dry-run", "--json", "--jobs", "2").stdout)
    assert [r["candidates"] for r in printed["rounds"]] == [6, 4, 4]
    assert [r["runs"] for r in printed["rounds"]] == [r["left"] for r in printed["rounds"]] == [12, 8, 16]
    assert printed["estimated_seconds"] > 0 and len(printed["candidates"]) == 6
    by_default = json.loads(tuned("tune", "suite.toml", "--dry-run", "--json").stdout)
    assert by_default["jobs"] >= 1 and 0 < by_default["estimated_seconds"] < 1e6
    assert tuned.entries() == before


def test_a_card_that_is_not_there_is_named_and_nothing_is_touched(tuned, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    before = tuned.entries()
    done = tuned("tune", "suite.toml", "--device", "cuda")
    assert done.returncode == 2 and done.stderr.startswith("gipo: --device cuda: ") and done.stderr.count("\n") == 1
    assert tuned.entries() == before


def test_one_method_can_be_tuned_first(tuned):
    tuned.write(updates=50)
    done = tuned(*words("out", "--method", "PPO 0.2", "--json"))
    assert done.returncode == 0, done.stderr
    assert [m["method"] for m in json.loads(done.stdout)["methods"]] == ["PPO 0.2"]
    rounds = json.loads(tuned(*words("out", "--dry-run", "--json")).stdout)["rounds"]
    assert rounds[0]["left"] == 8, "those of the other method"
    done = tuned(*words("out", "--method", "PPO"))
    assert done.returncode == 2 and "no method PPO" in done.stderr


def test_failed_candidate_is_the_worst_and_does_not_end_it(tuned):
    wild = SUITE.replace("tune.surrogate.sigma", "learner.value_coef = 1e6\ntune.env.reward_scale = [1e36, 1.0]\n#")
    tuned.write(wild, updates=100)
    done = tuned(*words("out", "--method", "GIPO"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed and counts as the worst" in done.stdout and "finite" in done.stdout
    assert "env.reward_scale = 1.0\n" in (tuned.folder / "out/chosen.toml").read_text()
    again = results(tuned.folder / "out")
    done = tuned(*words("out", "--method", "GIPO"))
    assert done.returncode == 0 and results(tuned.folder / "out") == again


def test_interrupted_it_says_so(tuned):
    tuned.write(updates=20000)
    process = subprocess.Popen([tuned.binary, *words("out")], cwd=tuned.folder, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: list(tuned.folder.glob("out/runs/*/checkpoints/LATEST")), process)
        second = tuned(*words("out"))
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert process.returncode == 130 and "interrupted; the same command goes on" in messages
    assert second.returncode == 2 and "in use" in second.stderr


@pytest.mark.parametrize(
    "change, parts",
    [
        (("first_seeds", "frist_seeds"), ["suite.toml:11:", "did you mean first_seeds?"]),
        (("[11, 12,", "[11, 2,"), ["suite.toml:9:", "tune.seeds: 2 is in suite.seeds"]),
        (("learner.policy_lr", "learner.policy_rl"), ["suite.toml:13:", "did you mean learner.policy_lr?"]),
        (("[1e-4, 3e-3]", "[]"), ["suite.toml:13:", "wanted a list"]),
        (("[1e-4, 3e-3]", "[1e-4, -1]"), ["suite.toml:13:", "learner.policy_lr = -1"]),
        (("keep = 0.5", "keep = 1"), ["suite.toml:12:", "tune.keep = 1"]),
        (("reference = 500.0", ""), ["suite.toml:16:", "random and reference go together"]),
        (("random = 22.0\nreference = 500.0", ""), ["suite.toml:16:", "task CartPole-v1", "normalised"]),
        (("[0.25, 0.5]", "[0.25, 0]"), ["suite.toml:27:", "surrogate.sigma = 0"]),
        (('tuned = "tuned/short.toml"', ""), ["--write", "tuned"]),
    ],
)
def test_mistakes_exit_with_2_and_touch_nothing(tuned, change, parts):
    tuned.write(SUITE.replace(*change))
    before = tuned.entries()
    done = tuned("tune", "suite.toml", "--write")
    assert done.returncode == 2, done.stderr
    assert [part for part in parts if part not in done.stderr] == [], done.stderr
    assert tuned.entries() == before


def test_tuned_options_that_are_not_there_are_named(tuned):
    done = tuned("suite", "suite.toml", "--dry-run")
    assert done.returncode == 2 and "tuned/short.toml" in done.stderr
    (tuned.folder / "tuned").mkdir()
    (tuned.folder / "tuned/short.toml").write_text('[[method]]\nname = "GIPO"\n')
    done = tuned("suite", "suite.toml", "--dry-run")
    assert done.returncode == 2 and "no options for method PPO 0.2" in done.stderr
    with (tuned.folder / "tuned/short.toml").open("a") as file:
        file.write('[[method]]\nname = "PPO 0.2"\nlearner.policy_lr = 0.002\n')
    done = tuned("suite", "suite.toml", "--dry-run", "--json")
    assert done.returncode == 0 and len(json.loads(done.stdout)["rows"]) == 8, done.stderr
