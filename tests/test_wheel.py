"""`pip install .` in a fresh environment: program, module and tour; and what the wheel is made of."""

import json
import os
import re
import subprocess
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

PAGE = ROOT / "docs" / "python.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def tour():
    return re.search(r"## Tour.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]


def test_versions_are_those_of_the_requirements():
    pinned = {}
    for name in ("requirements.txt", "requirements-wheels.txt"):
        pinned |= dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "scripts" / name).read_text(), re.MULTILINE))
    built_with = dict(line.split("==") for line in PROJECT["build-system"]["requires"])
    assert {name: pinned[name] for name in built_with} == built_with
    assert PROJECT["project"]["optional-dependencies"]["mujoco"] == [f"mujoco=={pinned['mujoco']}"]


def run(*words, cwd, timeout=1800):
    """In a bare environment, but for a compiler cache where one is set up."""
    env = {name: value for name, value in os.environ.items() if name.startswith(("CMAKE_", "CCACHE_"))}
    env |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True, timeout=timeout, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_wheel_installs_and_the_tour_runs(tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    binaries = tmp_path / "venv" / "bin"
    run(binaries / "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    [wheel] = tmp_path.glob("gipo-*.whl")
    assert wheel.stat().st_size < 20e6
    names = zipfile.ZipFile(wheel).namelist()
    assert {"gipo/__init__.pyi", "gipo/_core.pyi", "gipo/py.typed", "gipo/mujoco_models/hopper.xml"} <= set(names)
    run(binaries / "pip", "install", f"{wheel}[mujoco]", cwd=tmp_path)
    packages = {entry["name"] for entry in json.loads(run(binaries / "pip", "list", "--format=json", cwd=tmp_path))}
    assert "gipo" in packages and "torch" not in packages

    (tmp_path / "tour.py").write_text(tour())
    printed = run(binaries / "python", "tour.py", cwd=tmp_path)
    assert "out after 10 steps" in printed and (tmp_path / "corridor.png").stat().st_size > 10_000

    small = [word for option in ("learner.updates=20", "eval.episodes=1") for word in ("--set", option)]
    program = binaries / "gipo"
    assert "MuJoCo 3.3.0" in run(program, "--version", cwd=tmp_path)
    run(program, "train", "--quiet", "--name", "hop", "--set", "env.id=Hopper-v5", *small, cwd=tmp_path)
    run(program, "export", "runs/hop", "hop.onnx", cwd=tmp_path)
    run(program, "study", "gridworld", "--figure", "study.png", cwd=tmp_path)  # starts the Python package
    run(program, "train", "classic/stale", "--quiet", "--env-steps", "2000", *small[2:], cwd=tmp_path)
    command = "import gipo; gipo.train('fast/cartpole', env_steps=2000, name='preset')"
    run(binaries / "python", "-c", command, cwd=tmp_path)
    command = "import gipo; gipo.train(env='Hopper-v5', name='hop2', learner__updates=20, eval__episodes=1)"
    run(binaries / "python", "-c", command, cwd=tmp_path)
