"""The page docs/python.md: its tour trains on an environment class of the script's own, its examples print what it says."""

import doctest
import os
import subprocess
import sys

import gipo as library
from conftest import ROOT, summary
from test_wheel import PAGE, tour


def run_tour(folder):
    folder.mkdir()
    (folder / "tour.py").write_text(tour())
    done = subprocess.run([sys.executable, "tour.py"], cwd=folder, capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "python")})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def test_tour_learns_and_repeats_itself(tmp_path):
    done = run_tour(tmp_path / "first")
    assert "out after 10 steps" in done.stdout
    first = tmp_path / "first" / "runs" / "corridor"
    assert summary(first)["eval_return"]["mean"] == -10  # the shortest way
    assert (tmp_path / "first" / "corridor.png").stat().st_size > 10_000
    run_tour(tmp_path / "second")
    second = tmp_path / "second" / "runs" / "corridor"
    assert summary(first)["fingerprint"] == summary(second)["fingerprint"]
    assert (first / "metrics.jsonl").read_bytes() == (second / "metrics.jsonl").read_bytes()


def test_training_outside_the_guard_is_told(tmp_path):
    (tmp_path / "script.py").write_text(
        tour().replace('if __name__ == "__main__":  # worker processes import this file, too', "if True:")
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "python")})  # fmt: skip
    assert done.returncode != 0 and 'under `if __name__ == "__main__":`' in done.stderr
    assert not (tmp_path / "runs").exists()


def test_examples_print_what_the_page_says():
    blocks = [block for block in PAGE.read_text().split("```python\n") if block.startswith(">>>")]
    text = "".join(block.split("```")[0] for block in blocks)
    test = doctest.DocTestParser().get_doctest(text, {"gipo": library}, "python.md", None, 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted >= 2 and result.failed == 0
