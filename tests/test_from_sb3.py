"""Every row of docs/from-sb3.md runs: gipo's side here, the other with Stable-Baselines3 where `make peers` installed it."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT

PAGE = (ROOT / "docs" / "from-sb3.md").read_text()
PEER_PYTHON = ROOT / ".venv-peers" / "bin" / "python"

# Runs the rows of one side in one namespace, and says of each how it went; the rows after a failed one are run, too.
# A trainer that a row makes learns a little aside, so that its options are seen to be accepted.
RUNNER = """
import copy, json, sys, traceback
imports, rows = json.load(sys.stdin)
names, results = {"__name__": "rows"}, []
if __name__ == "__main__":
    exec(imports, names)
    for row in rows:
        try:
            exec(row, names)
            if row.startswith("model = gipo.Trainer(") and ";" not in row:
                copy.copy(names["model"]).learn(2_500)
            results.append("")
        except BaseException:
            results.append(traceback.format_exc())
    print(json.dumps(results))
"""


def table():
    """What each row is for, and the code of its two sides."""
    rows = []
    for line in PAGE.split("## The lines")[1].split("##")[0].splitlines():
        cells = re.fullmatch(r"\| (.+?) \| `(.+)` \| `(.+)` \|", line)
        if cells:
            rows.append(cells.groups())
    return rows


ROWS = table()


def imports_of(side):
    return next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if block.startswith(f"# {side}"))


def run_rows(python, side, column, folder, variables):
    done = subprocess.run(
        [python, "-c", RUNNER], input=json.dumps([imports_of(side), [row[column] for row in ROWS]]), cwd=folder,
        capture_output=True, text=True, env=os.environ | variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return run_rows(sys.executable, "gipo", 2, tmp_path_factory.mktemp("gipo"), {"PYTHONPATH": str(ROOT / "python")})


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    if not PEER_PYTHON.exists():
        pytest.skip(f"{PEER_PYTHON} is not there: bench/peers/setup.sh makes it")
    return run_rows(PEER_PYTHON, "Stable-Baselines3", 1, tmp_path_factory.mktemp("sb3"), {"PYTHONPATH": ""})


def test_page_has_the_thirty_commonest_lines():
    assert len(ROWS) >= 30 and len({row[0] for row in ROWS}) == len(ROWS)
    lines = PAGE.split("## The lines")[1].split("The rows need")[0].strip().splitlines()
    assert len(ROWS) == len(lines) - 2  # each is a row that was read


@pytest.mark.parametrize("row", range(len(ROWS)), ids=[row[0] for row in ROWS])
def test_row_runs_with_gipo(ours, row):
    assert ours[row] == "", ROWS[row][2]


@pytest.mark.slow
@pytest.mark.parametrize("row", range(len(ROWS)), ids=[row[0] for row in ROWS])
def test_row_runs_with_stable_baselines3(theirs, row):
    assert theirs[row] == "", ROWS[row][1]


VECTORS = """
from gipo import ConfigError, worker
from gipo.envs import task_of, workers_find
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

if __name__ == "__main__":
    task = task_of(make_vec_env("CartPole-v1", n_envs=2))
    with workers_find(task):
        make = worker.factory_maker(task.id.removeprefix("python:"), {})
        print(task.id.rpartition("-")[0], [make(i).reset(seed=1)[0].shape for i in range(3)])
    for env in (VecNormalize(make_vec_env("CartPole-v1")), make_vec_env("CartPole-v1", vec_env_cls=SubprocVecEnv)):
        try:
            task_of(env)
        except ConfigError as error:
            print(error)
        env.close()
"""


@pytest.mark.slow
def test_vectors_of_stable_baselines3_are_taken_apart_or_refused(tmp_path):
    if not PEER_PYTHON.exists():
        pytest.skip(f"{PEER_PYTHON} is not there: bench/peers/setup.sh makes it")
    script = tmp_path / "vectors.py"
    script.write_text(VECTORS)
    done = subprocess.run(
        [PEER_PYTHON, script], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "python")}
    )
    taken, wrapped, elsewhere = done.stdout.splitlines()
    assert taken == "python:environment.pkl:CartPole-v1 [(4,), (4,), (4,)]", done.stderr
    assert "env__normalise_observations and env__normalise_rewards" in wrapped
    assert "give one of them, or the list of functions that make them" in elsewhere
