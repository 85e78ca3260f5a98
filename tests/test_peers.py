"""bench/peers/run.py: what it prints, and that an unknown name or a missing side does not stop the rest. No peer has to
be installed."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers"))

import rows  # noqa: E402
import run  # noqa: E402
import sides  # noqa: E402

from conftest import json_lines, summary  # noqa: E402


def fake_program(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """A gipo whose bench has one row of two, and peers that are not installed."""
    fake_program(tmp_path / "gipo", 'print(\'[{"name": "inference 64x64 rows 1", "value": 0.5}]\')')
    monkeypatch.setenv("GIPO_BUILD_DIR", str(tmp_path))
    monkeypatch.setattr(sides, "PEER_PYTHON", tmp_path / "nowhere")


def install_peer(monkeypatch, tmp_path, body):
    monkeypatch.setattr(sides, "PEER_PYTHON", fake_program(tmp_path / "python", body))


def test_unknown_name_is_said_and_the_rest_goes_on(bench, capsys):
    assert run.main(["--quick", "--only", "infrence", "--only", "inference"]) == 2
    output = capsys.readouterr()
    assert "unknown name infrence; known: learner, inference" in output.err
    assert "inference 64x64 rows 16" in output.out


def test_missing_peer_is_said_once_and_gipo_is_still_measured(bench, capsys):
    assert run.main(["--quick", "--only", "inference", "--json"]) == 0
    output = capsys.readouterr()
    assert output.err.count("PyTorch: not installed; `make peers` does that") == 1
    one, sixteen, *_ = json.loads(output.out)["rows"]
    assert (one["gipo_value"], one["peer_value"], one["ratio"]) == (0.5, None, None)
    assert sixteen["gipo_value"] is None


def test_missing_package_is_said_in_one_line(bench, monkeypatch, tmp_path, capsys):
    install_peer(monkeypatch, tmp_path, "import torch_is_not_here")
    assert run.main(["--quick", "--only", "inference"]) == 0
    output = capsys.readouterr()
    assert "peers: PyTorch: ModuleNotFoundError: No module named 'torch_is_not_here' (exit code 1)" in output.err
    assert output.out.count("missing") == 6


def test_missing_program_is_said_and_the_peer_is_still_measured(bench, monkeypatch, tmp_path, capsys):
    install_peer(monkeypatch, tmp_path, 'print(\'noise\\n{"value": 40.0, "version": "9", "settings": "best"}\')')
    monkeypatch.setenv("GIPO_BUILD_DIR", str(tmp_path / "nowhere"))
    assert run.main(["--quick", "--only", "inference"]) == 0
    output = capsys.readouterr()
    assert "gipo: no program" in output.err
    assert [line.split()[4:9] for line in output.out.splitlines()[3:]] == [["PyTorch", "9", "us", "40", "missing"]] * 4


def test_training_is_compared_by_the_median_of_both_sides(bench, monkeypatch, tmp_path, capsys):
    install_peer(monkeypatch, tmp_path, 'import sys\n'
                 'print(\'{"value": %s, "return": -180, "version": "9", "settings": "best"}\' % sys.argv[2])')
    reached = {"mean": -150.0}
    monkeypatch.setattr(rows, "gipo_train", lambda config, seed, folder: {"seconds": seed / 2, "final_return": reached})
    assert run.main(["--only", "pendulum", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["peer"], row["peer_value"], row["gipo_value"], row["ratio"]) == ("RLtools 9", 13.0, 6.5, 2.0)
    assert row["note"] == "best, return RLtools -180, gipo -150"


def test_rows_are_said_as_they_are_measured_and_outlive_an_interruption(monkeypatch, capsys):
    said = []

    def first(measure):
        measure.add(rows.Row("one", "peer", "us", 4.0, 2.0))

    def second(measure):
        said.append(capsys.readouterr())
        measure.add(rows.Row("two", "peer", "us", 9.0, 3.0))
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "GROUPS", {"first": first, "second": second, "third": first})
    assert run.main([]) == 130
    assert "peers: one: peer 4, gipo 2 us, ratio 2.00" in said[0].err and said[0].out == ""
    output = capsys.readouterr()
    assert "interrupted" in output.err and [line.split()[0] for line in output.out.splitlines()[-2:]] == ["one", "two"]
    assert run.main(["--json"]) == 130
    printed = json.loads(capsys.readouterr().out)
    assert printed["interrupted"] and [row["name"] for row in printed["rows"]] == ["one", "two"]


def test_whole_rounds_outlive_an_interruption(bench, monkeypatch, tmp_path, capsys):
    install_peer(monkeypatch, tmp_path, 'print(\'{"value": 40.0, "version": "9", "settings": "best"}\')')
    real, calls = sides.gipo_bench, []

    def second_is_interrupted(name, folder):
        calls.append(name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(name, folder)

    monkeypatch.setattr(rows, "gipo_bench", second_is_interrupted)
    assert run.main(["--only", "inference", "--json"]) == 130
    one = json.loads(capsys.readouterr().out)["rows"][0]
    assert (one["peer_value"], one["gipo_value"]) == (40.0, 0.5)
    assert one["note"] == "best, interrupted after 1 rounds"


def test_missing_config_is_said(bench, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(rows, "FAST", ROOT / "configs" / "nowhere")
    assert run.main(["--quick", "--only", "solve"]) == 0
    assert "there is no configs/nowhere/cartpole.toml" in capsys.readouterr().err


@pytest.mark.parametrize("unit, peer, gipo, ratio", [
    ("env steps/s", 100.0, 2000.0, 20.0), ("us", 40.0, 0.5, 80.0), ("s", 30.0, 2.0, 15.0), ("s", 30.0, math.inf, None),
    ("s", None, 1.0, None),
])
def test_ratio_is_how_many_times_as_fast(unit, peer, gipo, ratio):
    assert rows.Row("x", "y", unit, peer, gipo).ratio == ratio


def test_what_was_not_reached_is_shown_so():
    line = run.table([rows.Row("solve", "peer", "s", 30.0, math.inf, 15.0)]).splitlines()[-1]
    assert "not reached" in line and line.split()[-2:] == [">=", "15"]


@pytest.mark.parametrize("config", sorted((ROOT / "bench" / "peers" / "configs").glob("*.toml")), ids=lambda p: p.stem)
def test_configs_are_accepted(gipo, config):
    done = gipo("train", config, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threshold, ends", [(8, True), (1e6, False)])
def test_time_to_a_threshold_is_finite_where_it_was_reached(gipo, monkeypatch, threshold, ends):
    monkeypatch.setattr(sides, "find_binary", lambda: gipo.binary)
    config = gipo.folder / "short.toml"
    config.write_text("[learner]\nupdates = 600\nbatch_size = 64\n[policy]\nhidden = [16, 16]\n"
                      "[staleness]\nenv_steps_per_update = 16.0\n[eval]\nepisodes = 1\n")
    seconds = sides.gipo_seconds(config, threshold, 1, gipo.folder)
    assert math.isfinite(seconds) == ends


def test_help_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "peers" / "run.py", "--help"], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0 and "--quick" in done.stdout
