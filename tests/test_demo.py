"""`python -m gipo.demo`, short: what it prints and writes, and how it fails."""

import os
import signal
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HANG, wait_until

from gipo import runs

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / os.environ.get("GIPO_BUILD_DIR", "build/release")
MEASURES = [
    "training return", "greedy evaluation", "old_frac", "old_gap_p95/updates", "d95", "near_zero_frac", "dead_frac",
    "share_old", "ess_old_norm",
]


def start(*arguments, build=BUILD):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "GIPO_BUILD_DIR": str(build)}
    return subprocess.Popen(
        [sys.executable, "-m", "gipo.demo", *map(str, arguments)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )


def run(*arguments, build=BUILD):
    process = start(*arguments, build=build)
    output, messages = process.communicate(timeout=HANG)
    return process.returncode, output, messages


def fake_trainer(folder, script):
    folder.mkdir()
    binary = folder / "gipo"
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture(scope="module")
def short_demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "with space"
    code, output, messages = run("--updates", 300, "--seeds", 1, "--out", out)
    assert code == 0, messages
    return out, output, messages


def test_table_has_every_measure_of_every_method(short_demo):
    out, output, _ = short_demo
    lines = output.splitlines()
    heads = [line for line in lines if line.endswith("PPO 0.2")]
    assert [head.split(",")[0] for head in heads] == ["CartPole-v1", "Pendulum-v1"]
    assert all("gipo's default" in head and "GIPO 0.5 (paper)" in head for head in heads)
    for measure in MEASURES:
        rows = [line for line in lines if line.startswith(measure + " ")]
        assert [len([float(cell) for cell in row.split()[-3:]]) for row in rows] == [3, 3]
    assert (out / "table.txt").read_text().strip() in output


def test_only_the_clip_leaves_dead_samples(short_demo):
    for row in [line for line in short_demo[1].splitlines() if line.startswith("dead_frac")]:
        default, gipo, ppo = map(float, row.split()[-3:])
        assert default == gipo == 0 < ppo


def test_figure_is_an_image(short_demo):
    png = (short_demo[0] / "demo.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n") and png.rstrip().endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", png[16:24])
    assert 1000 <= width <= 3000 and 500 <= height <= 2000
    assert len(png) > 20_000, "an image of this size with curves in it is larger"
    assert "</svg>" in (short_demo[0] / "demo.svg").read_text()


def test_runs_and_next_steps_are_named(short_demo):
    out, output, messages = short_demo
    for name in (f"{task}-{key}-1" for task in ("CartPole-v1", "Pendulum-v1") for key in ("default", "gipo", "ppo")):
        assert (out / "runs" / name / "summary.json").is_file()
        assert f"{name} finished" in messages
    for step in (f"eval {out}/runs/Pendulum-v1-default-1", "--set env.id=Acrobot-v1", "tensorboard --logdir", "docs/quickstart.md"):
        assert step in output
    assert str(out / "demo.png") in output


@pytest.mark.parametrize(
    "option, value", [("--seeds", "0"), ("--updates", "ten"), ("--jobs", "-1"), ("--updates", "5")]
)
def test_bad_value_is_the_users_mistake(tmp_path, option, value):
    code, output, messages = run(f"{option}={value}", "--out", tmp_path / "out")
    assert code == 2 and option in messages and value in messages and output == ""
    assert not (tmp_path / "out").exists()


def test_missing_trainer_is_the_users_mistake(tmp_path):
    code, _, messages = run("--out", tmp_path / "out", build=tmp_path)
    assert code == 2 and str(tmp_path / "gipo") in messages and "make build" in messages
    assert not (tmp_path / "out").exists()


def test_failing_run_is_shown_with_its_message(tmp_path):
    build = fake_trainer(tmp_path / "build", "echo 'gipo: no luck today' >&2; exit 1")
    code, _, messages = run("--out", tmp_path / "out", build=build)
    assert code == 1
    assert "-1 exited with code 1" in messages and "no luck today" in messages and "gipo train" in messages
    assert "Traceback" not in messages


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_stops_the_runs(tmp_path, number):
    pids = tmp_path / "pids"
    build = fake_trainer(tmp_path / "build", f"echo $$ >> {pids}; exec sleep {HANG}")
    process = start("--out", tmp_path / "out", "--jobs", 2, build=build)
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, process)
    process.send_signal(number)
    _, messages = process.communicate(timeout=HANG)
    assert process.returncode == 130
    assert "interrupted" in messages and "Traceback" not in messages
    for pid in map(int, pids.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_interrupt_at_the_start_of_a_run_leaves_none(tmp_path, monkeypatch):
    """The signal comes when the process lives and nobody has taken note of it yet."""
    started = []

    class Interrupted(runs.Run):
        def __init__(self, spec, binary):
            super().__init__(spec, binary)
            started.append(self.process)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(runs, "Run", Interrupted)
    build = fake_trainer(tmp_path / "build", f"exec sleep {HANG}")
    spec = runs.RunSpec("a", tmp_path / "a.toml", tmp_path, 1, 1)
    try:
        with pytest.raises(KeyboardInterrupt):
            runs.run_all([spec], Path(build, "gipo"), 1, lambda *_: None, lambda _: None)
        assert [process.poll() for process in started] != [None]
    finally:
        started[0].kill()
        started[0].wait()
