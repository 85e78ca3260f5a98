"""Options of an environment of a Python package: what is given reaches its constructor unchanged, by every route."""

import json
import math
import sys
from pathlib import Path

import gipo as library
import numpy as np
import pytest
from conftest import TINY, settings

HERE = Path(__file__).resolve().parent / "bridge"
TASK = {"env.id": "python:sample_envs:RecordsOptions"}

# As Python has them, and as TOML writes them.
GIVEN = {
    "config": {
        "z": 1, "a": 1.0, "observation": {"type": "Kinematics", "features": ["x", "y"], "range": [1, 2.5, None, True]},
        "a key": {"": [[1, 2], [3.0], []]}, "B": {}, "huge": 2**62,
    },
    "desc": ["SFFF", "FHFG"], "nothing": None, "whole": 3, "real": 3.0, "flag": False, "limits": [-math.inf, 1],
    "word": "@none", "said": "@@none", "nones": [None, "@none"],
}  # fmt: skip
TOML = {
    "config": '{z = 1, a = 1.0, observation = {type = "Kinematics", features = ["x", "y"], range = [1, 2.5, "@none", '
    'true]}, "a key" = {"" = [[1, 2], [3.0], []]}, B = {}, huge = 4611686018427387904}',
    "desc": '["SFFF", "FHFG"]', "nothing": "@none", "whole": "3", "real": "3.0", "flag": "false",
    "limits": "[-inf, 1]", "word": '"@@none"', "said": "@@@none", "nones": '["@none", "@@none"]',
}  # fmt: skip
FILE = """
[env.options]
desc = ["SFFF", "FHFG"]
nothing = "@none"
whole = 3
real = 3.0
flag = false
limits = [-inf, 1]
word = "@@none"
said = "@@@none"
nones = ["@none", "@@none"]
[env.options.config]
z = 1
a = 1.0
[env.options.config.observation]
type = "Kinematics"
features = ["x", "y"]
range = [1, 2.5, "@none", true]
[env.options.config."a key"]
"" = [[1, 2], [3.0], []]
[env.options.config.B]
"""


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Reads what constructors were given since it was last called."""
    monkeypatch.setenv("GIPO_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "record"

    def read():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.unlink()
        return lines

    read.path = path
    return read


def assert_unchanged(lines, given=GIVEN):
    assert lines
    for line in lines:
        assert line == {name: repr(value) for name, value in given.items()}


def test_by_set_and_then_from_the_saved_config(gipo, record):
    options = TASK | {"env.options.record": record.path, "checkpoint.every_updates": 50, "env.count": 2}
    options |= {f"env.options.{name}": value for name, value in TOML.items()}
    done = gipo("train", "--dry-run", *settings(TINY | options))
    assert done.returncode == 0, done.stderr
    assert_unchanged(record())
    run = gipo.train("run", options)
    assert_unchanged(record())
    for arguments in (("resume", run, "--updates", 220, "--quiet"), ("eval", run, "--episodes", 2)):
        done = gipo(*arguments)
        assert done.returncode == 0, done.stderr
        assert_unchanged(record())
    assert gipo("doctor", run).returncode == 0
    # A change of any part is one of the task.
    config = run / "config.toml"
    config.write_text(config.read_text().replace('range = [1, 2.5, "@none", true]', 'range = [1, 2.5, "@none", 1]'))
    done = gipo("resume", run, "--updates", 240)
    assert done.returncode == 2 and "env.options.config was {z = 1, a = 1.0" in done.stderr


def test_from_a_file(gipo, record):
    (gipo.folder / "c.toml").write_text(FILE)
    gipo.train("run", TASK | {"env.options.record": record.path, "learner.updates": 10}, "c.toml")
    given = GIVEN | {"config": {k: v for k, v in GIVEN["config"].items() if k != "huge"}}
    assert_unchanged(record(), given)
    # A dot leads into a table; what is not there yet is made.
    changes = {"env.options.config.observation.type": "Grid", "env.options.config.B.c.d": 2, "env.options.new.x": "@none"}
    done = gipo("train", "c.toml", "--dry-run", *settings(TASK | {"env.options.record": record.path} | changes))
    assert done.returncode == 0, done.stderr
    line = record()[0]
    config = eval(line["config"])
    assert config["observation"] == {"type": "Grid", "features": ["x", "y"], "range": [1, 2.5, None, True]}
    assert (config["B"], line["new"], config["z"]) == ({"c": {"d": 2}}, "{'x': None}", 1)


def test_from_python(record):
    options = TINY | TASK | {"policy.hidden": [16, 16], "learner.updates": 10}
    whole = GIVEN | {"record": record.path}
    for i, arguments in enumerate([
        {"config": options | {"env": {"options": whole}}},
        {"config": options, "env__options": whole},
        {"config": options, **{f"env__options__{name}": value for name, value in whole.items()}},
        {"config": options | {"env.options.config": {"z": 2, "old": 3}}, "env": {"options": whole}},
    ]):  # fmt: skip
        library.train(**arguments, name=f"run{i}", progress=False)
        assert_unchanged(record())
    tried = library.train(options, env={"options": {
        "record": record.path, "array": np.arange(4).reshape(2, 2), "one": np.float32(0.5), "pair": (1, "a"), "a__b": 1,
    }}, env__options__config__x=3, name="numpy", progress=False)  # fmt: skip
    given = {"array": [[0, 1], [2, 3]], "one": 0.5, "pair": [1, "a"], "a__b": 1, "config": {"x": 3}}
    assert_unchanged(record(), given)
    assert tried.config["env"]["options"]["array"] == [[0, 1], [2, 3]]
    library.resume(tried, 20, progress=False)
    assert_unchanged(record(), given)


def test_a_map_of_frozen_lake(gipo, record):
    run = gipo.train("lake", {"env.id": "gymnasium:FrozenLake-v1", "env.options.desc": '["SF", "FF", "HG"]'})
    assert library.load(run).observation_size == 6
    options = TINY | {"policy.hidden": [16, 16], "learner.updates": 10}
    run = library.train(options, "gymnasium:FrozenLake-v1", env__options__desc=["SFG"], env__options__map_name=None,
                        progress=False)  # fmt: skip
    assert library.load(run).observation_size == 3


def test_what_cannot_be_kept_is_refused(gipo, record):
    deep = "[" * 33 + "]" * 33
    for setting, said in [
        ("env.options.a=" + deep, "lists and tables more than 32 deep"),
        ("env.options.a" + ".b" * 40 + "=1", "keys of more than 32 parts are not accepted"),
        ("env.options.a=[2024-01-02]", "env.options.a = [ 2024-01-02 ] is not accepted: wanted true or false"),
        ('env.options.a={"b": 1}', 'env.options.a = {"b": 1} is not accepted: not valid TOML'),
        ("env.options.a=[1, null]", "not valid TOML"),
        ("env.options.a..b=1", "unknown option env.options.a..b"),
        ("env.options.=1", "unknown option env.options.: wanted env.options.NAME"),
        (f'env.options.a="{"x" * 70000}"', "the options of the task take 70003 bytes as TOML, at most 65536 are kept"),
    ]:
        done = gipo("train", "--dry-run", "--set", setting, *settings(TASK))
        assert done.returncode == 2 and said in done.stderr, done.stderr
    done = gipo("train", "--dry-run", *settings(TASK | {"env.options.a": 1, "env.options.a.b": 2}))
    assert done.returncode == 2 and "env.options.a.b is not accepted: a is 1 and no table" in done.stderr
    cycle = []
    cycle.append(cycle)
    for value, said in [
        (cycle, "more than 32 levels"), ({1: 2}, "its key 1 is no text"), (object(), "wanted None, True or False"),
        (2**70, "wanted an integer of 64 bits"), ("\ud800", "UTF-8 is wanted"), ("x" * 70000, "at most 65536 are kept"),
    ]:  # fmt: skip
        with pytest.raises(library.ConfigError, match=said):
            library.train(TASK, env__options__a=value, progress=False)
    assert gipo.entries() == []


def test_native_tasks_keep_their_types(gipo):
    for setting, said in [
        ("healthy_reward={a = 1}", "env.options.healthy_reward = {a = 1} is not accepted: Hopper-v5 wants number"),
        ('healthy_z_range=[1, "a"]', 'env.options.healthy_z_range = [1, "a"] is not accepted: Hopper-v5 wants range'),
    ]:
        done = gipo("train", "--dry-run", "--set", "env.id=Hopper-v5", "--set", "env.options." + setting)
        assert done.returncode == 2 and said in done.stderr
    for option in ("healthy_z_range=[1, 2.5]", "healthy_reward=@none"):
        done = gipo("train", "--dry-run", *settings(TINY), "--set", "env.id=Hopper-v5", "--set", "env.options." + option)
        assert done.returncode == 0, done.stderr
