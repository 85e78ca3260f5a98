"""Memory: what --dry-run says against what a run takes at its peak, and the refusal of what does not fit."""

import json
import os
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
from conftest import settings

GROUPS = Path("/sys/fs/cgroup")

# Sizes at which the program itself is a small part of the whole.
NATIVE = {
    "env.id": "Pendulum-v1",
    "env.count": 16,
    "policy.hidden": "[64, 64]",
    "staleness.regime": "custom",
    "staleness.env_steps_per_update": 4096,
    "replay.capacity": 1_000_000,
    "learner.updates": 300,
    "checkpoint.every_updates": 50,
    "eval.episodes": 2,
}
RUNS = {
    "lockstep": NATIVE,
    "async": NATIVE | {"run.mode": "async", "staleness.warmup": 1_000_000, "staleness.env_steps_per_update": 64},
    "warm-up": NATIVE | {"staleness.warmup": 1_000_000, "learner.updates": 20, "checkpoint.every_updates": 5},
    "short segments": NATIVE | {"env.time_limit": 3, "replay.capacity": 600_000},
    "on-policy": NATIVE | {
        "staleness.regime": "on_policy", "replay.capacity": 524288, "learner.batch_size": 8192, "learner.epochs": 1,
        "learner.updates": 128, "checkpoint.every_updates": 1, "advantage.mode": "stored",
    },
    "wide": NATIVE | {"replay.capacity": 100_000, "policy.hidden": "[1024, 1024]", "learner.updates": 6,
                      "checkpoint.every_updates": 2},
}


def without_pace(options):
    return {k: v for k, v in options.items() if not (options["staleness.regime"] == "on_policy" and "per_update" in k
                                                     and k.startswith("staleness"))}


def resident(pid, program):
    try:
        if os.readlink(f"/proc/{pid}/exe") == str(program):
            return 0, 0  # about to become a worker: what it has is the program's
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0, 0
    found = dict(re.findall(r"^(Rss\w+):\s+(\d+)", status, re.MULTILINE))
    return 1024 * (int(found.get("RssAnon", 0)) + int(found.get("RssShmem", 0))), 1024 * int(found.get("RssFile", 0))


def high_water(pid, program):
    """Of the program since it was started. Not by rusage: that has the memory of these tests, which it was forked from."""
    try:
        if os.readlink(f"/proc/{pid}/exe") != str(program):
            return 0
        found = re.search(r"^VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


def children_of(pid):
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        return [c for t in tasks for c in Path(f"/proc/{pid}/task/{t}/children").read_text().split()]
    except OSError:
        return []


def peak_of(gipo, *words):
    """Megabytes of the program by its own account; with worker processes, their sum as a control group has it: what each
    has alone, and once what they share."""
    process = subprocess.Popen([gipo.binary, *map(str, words)], cwd=gipo.folder, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    alone = with_workers = 0

    def watch():
        nonlocal alone, with_workers
        while not done.is_set():
            alone = max(alone, high_water(process.pid, gipo.binary))
            if children := children_of(process.pid):
                own, shared = zip(*(resident(child, gipo.binary) for child in children))
                with_workers = max(with_workers, sum(resident(process.pid, None)) + sum(own) + max(shared))
            time.sleep(0.005)

    done = threading.Event()
    watcher = threading.Thread(target=watch)
    watcher.start()
    error = process.stderr.read()
    done.set()
    watcher.join()
    assert process.wait() == 0, error
    return (with_workers or alone) / 1e6


def peak_megabytes(gipo, options):
    return peak_of(gipo, "train", "--quiet", "--name", "measured", "--overwrite", *settings(options))


def estimate(gipo, options):
    done = gipo("train", "--dry-run", "--json", *settings(options))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["memory"]


@pytest.mark.parametrize("name", RUNS)
def test_dry_run_tells_the_memory_of_a_run(gipo, name):
    options = without_pace(RUNS[name])
    said, peak = estimate(gipo, options), peak_megabytes(gipo, options)
    assert said["megabytes"] == pytest.approx(sum(said["parts"].values()))
    assert 0.85 < said["megabytes"] / peak < 1.15, (said, peak)


def test_checkpoints_hold_no_copy_of_the_replay(gipo, monkeypatch):
    options = NATIVE | {"checkpoint.every_updates": 10}
    monkeypatch.setenv("GIPO_TEST_SLOW_DISK_MS", "20")  # the next falls due while one is being written
    said, peak = estimate(gipo, options), peak_megabytes(gipo, options)
    assert said["parts"]["replay"] > 30
    assert peak < 1.5 * said["parts"]["replay"] + said["parts"]["program"], (said, peak)


def test_resume_holds_no_copy_of_the_replay(gipo):
    options = NATIVE | {"learner.updates": 260}
    said = estimate(gipo, options)
    peak_megabytes(gipo, options)
    assert peak_of(gipo, "resume", "runs/measured", "--quiet") < 1.15 * said["megabytes"]


def test_dry_run_tells_the_memory_of_workers(gipo):
    options = {
        "env.id": "gymnasium:CartPole-v1", "env.count": 4, "env.workers": 2, "learner.updates": 60,
        "staleness.actors": 2, "replay.segment_length": 16, "policy.hidden": "[16, 16]", "checkpoint.every_updates": 10,
        "eval.episodes": 16,
    }
    said, peak = estimate(gipo, options), peak_megabytes(gipo, options)
    assert said["parts"]["workers"] > 4 * 10
    assert 0.85 < said["megabytes"] / peak < 1.15, (said, peak)


def test_dry_run_shows_the_parts_in_words(gipo):
    done = gipo("train", "--dry-run", *settings(NATIVE))
    assert re.search(r"^# memory: about [\d.]+ MB \(program [\d.]+, replay 3\d\.\d, .*\); .* has [\d.]+ [MG]B$", done.stdout,
                     re.MULTILINE), done.stdout


@pytest.fixture
def group():
    """A control group of our own, where the system lets us make one: (its folder, the name of its limit)."""
    for parent, limit in ((GROUPS / "memory", "memory.limit_in_bytes"), (GROUPS, "memory.max")):
        folder = parent / f"gipo-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / limit).exists():
            yield folder, limit
            folder.rmdir()
            return
        folder.rmdir()
    pytest.skip("no control group for memory can be made here")


def run_within(group, megabytes, gipo, options, *arguments):
    folder, limit = group
    (folder / limit).write_text(str(int(1e6 * megabytes)))

    def enter():
        (folder / "cgroup.procs").write_text("0")

    return subprocess.run([gipo.binary, "train", "--quiet", "--name", "within", *settings(options), *arguments],
                          cwd=gipo.folder, capture_output=True, text=True, preexec_fn=enter)


@pytest.mark.parametrize("name", ["lockstep", "async"])
def test_a_run_ends_within_a_group_of_a_fifth_more_than_the_estimate(gipo, group, name):
    said = estimate(gipo, RUNS[name])["megabytes"]
    done = run_within(group, 1.2 * said, gipo, RUNS[name])
    assert done.returncode == 0, done.stderr


def test_a_run_that_does_not_fit_into_its_group_is_refused_before_the_start(gipo, group):
    said = estimate(gipo, NATIVE)["megabytes"]
    for arguments in ((), ("--dry-run",)):
        done = run_within(group, 0.9 * said, gipo, NATIVE, *arguments)
        assert done.returncode == 2, done.stderr
        limit = f"{0.9 * said:.0f}"[:-1]
        assert re.search(r"needs about [\d.]+ MB of memory \([\d.]+ MB for replay", done.stderr), done.stderr
        assert f"the control group /{group[0].name} has {limit}" in done.stderr, done.stderr
        assert "lower replay.capacity = 1000000" in done.stderr
        assert gipo.entries() == []


def test_resume_is_refused_where_the_run_does_not_fit(gipo, group):
    options = NATIVE | {"learner.updates": 20}
    run = gipo.train("a", options)
    before = gipo.entries()
    folder, limit = group
    (folder / limit).write_text("30000000")
    done = subprocess.run([gipo.binary, "resume", run], cwd=gipo.folder, capture_output=True, text=True,
                          preexec_fn=lambda: (folder / "cgroup.procs").write_text("0"))
    assert done.returncode == 2 and "needs about" in done.stderr, done.stderr
    assert gipo.entries() == before
