"""The MuJoCo tasks on the command line: their options, what a run saves of them, and what happens without MuJoCo."""

import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from conftest import TINY, json_lines, settings, summary

MODELS = {path.name: path for path in Path(find_spec("gymnasium").origin).parent.glob("envs/mujoco/assets/*.xml")}
LIBRARY = next(Path(find_spec("mujoco").origin).parent.glob("libmujoco.so.*"))
HOPPER = {"env.id": "Hopper-v5", "learner.updates": 20}


def refused(gipo, environment, *arguments):
    """One line on stderr, exit 2, nothing written."""
    before = gipo.entries()
    done = subprocess.run([gipo.binary, *map(str, arguments)], cwd=gipo.folder, capture_output=True, text=True,
                          env=os.environ | environment)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and done.stdout == ""
    assert gipo.entries() == before
    return done.stderr


def train_words(options):
    return ["train", "--quiet", "--name", "x", *settings(options)]


def test_options_reach_the_task_and_the_saved_config(gipo, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('[env]\nid = "Hopper-v5"\n[env.options]\nhealthy_reward = 3\nhealthy_z_range = [0.5, inf]\n')
    run = gipo.train("a", {"learner.updates": 20, "env.options.reset_noise_scale": 0.02}, file)
    saved = (run / "config.toml").read_text()
    for line in ('[env.options]', 'healthy_reward = 3.0', 'healthy_z_range = [0.5, inf]',
                 'reset_noise_scale = 0.02', 'frame_skip = 4', 'xml_file = "hopper.xml"'):
        assert line in saved.splitlines(), line
    episodes = json_lines(run / "episodes.jsonl")
    assert episodes and all(e["return"] / e["length"] > 2 for e in episodes)
    again = gipo.train("b", {"learner.updates": 20}, run / "config.toml")
    assert (again / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()


def test_sizes_follow_from_the_options(gipo):
    run = gipo.train("a", HOPPER | {"env.options.exclude_current_positions_from_observation": "false"})
    policy = (run / "policy.safetensors").read_bytes()
    header = json.loads(policy[8 : 8 + int.from_bytes(policy[:8], "little")])
    assert header["observation.mean"]["shape"] == [12]
    assert gipo("eval", run, "--episodes", 2).returncode == 0


def test_version_is_printed_and_saved(gipo):
    assert "\nMuJoCo 3.3.0\n" in gipo("--version").stdout
    assert summary(gipo.train("a", HOPPER))["engine"].startswith("MuJoCo 3.3.0, hopper.xml ")
    assert "engine" not in summary(gipo.train("b"))


@pytest.mark.parametrize("setting, place, parts", [
    ("env.options.ctrl_cost_wieght=1", "--set", ["Hopper-v5 (did you mean ctrl_cost_weight?)"]),
    ("env.options.frame_skip=0", "--set", ["env.options.frame_skip = 0", "integer, 1 to 1000000"]),
    ("env.options.healthy_z_range=[2, 1]", "--set", ["env.options.healthy_z_range = [2, 1]", "range [low, high]"]),
    ("env.options.xml_file=no.xml", "--set", ["no.xml is not there", "pip install"]),
    ("env.options.xml_file=pusher_v5.txt", "--set", ["is not there"]),
])
def test_bad_option_is_refused(gipo, setting, place, parts):
    said = refused(gipo, {}, *train_words(HOPPER), "--set", setting)
    assert said.startswith(f"gipo: {place}: ")
    assert [part for part in parts if part not in said] == [], said


def test_bad_option_in_a_file_names_its_line(gipo, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('[env]\nid = "Hopper-v5"\n\n[env.options]\nhealthy_rewrad = 2\n')
    said = refused(gipo, {}, "train", file)
    assert f"{file}:5: env.options.healthy_rewrad is not an option of Hopper-v5 (did you mean healthy_reward?)" in said
    file.write_text('[env.options]\nhealthy_reward = 2\n')
    assert "is not an option of CartPole-v1; it has none" in refused(gipo, {}, "train", file)


def fake_library(folder, version):
    source = folder / "fake.c"
    source.write_text(f'const char* mj_versionString(void) {{ return "{version}"; }}\n')
    library = folder / f"libmujoco.so.{version}"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def places(folder):
    """What GIPO_MUJOCO may wrongly name, and what is then said to have been found."""
    for name in ("empty", "other", "corrupt"):
        (folder / name).mkdir()
    other = fake_library(folder / "other", "3.4.0")
    (folder / "corrupt" / LIBRARY.name).write_bytes(LIBRARY.read_bytes()[:-5000])
    (folder / "text").write_text("not a library, but long enough to be read as the beginning of one" * 10)
    old = fake_library(folder, "3.3.0")
    return [
        (folder / "absent", f"there is no {folder / 'absent'}"),
        (folder / "empty", "holds no libmujoco"),
        (folder / "other", "holds libmujoco.so.3.4.0"),
        (other, f"{other} is 3.4.0"),
        (folder / "corrupt", f"{LIBRARY.name} is cut off"),
        (folder / "text", "text "),
        (old, "has no mj_loadXML"),
    ]


def test_without_the_library(gipo, tmp_path_factory):
    for place, found in places(tmp_path_factory.mktemp("libraries")):
        environment = {"GIPO_MUJOCO": str(place)}
        said = refused(gipo, environment, *train_words(HOPPER))
        assert said.startswith("gipo: --set: MuJoCo 3.3.0 is wanted, but ") and found in said, said
        assert ".venv/bin/python -m pip install --force-reinstall --no-deps mujoco==3.3.0" in said
        version = subprocess.run([gipo.binary, "--version"], capture_output=True, text=True, env=os.environ | environment)
        assert version.returncode == 0 and "\nMuJoCo none: MuJoCo 3.3.0 is wanted, but " in version.stdout
        # Other tasks need none of it, and all are listed.
        assert subprocess.run([gipo.binary, "train", "--dry-run"], capture_output=True, env=os.environ | environment,
                              cwd=gipo.folder).returncode == 0
        listed = subprocess.run([gipo.binary, "list", "envs"], capture_output=True, text=True, env=os.environ | environment)
        assert "Hopper-v5" in listed.stdout


def test_without_the_models(gipo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    environment = {"GIPO_MUJOCO_MODELS": str(folder)}
    said = refused(gipo, environment, *train_words(HOPPER))
    assert f"the model {folder}/hopper.xml is not there; " in said and "--no-deps gymnasium==" in said
    (folder / "hopper.xml").write_text(MODELS["hopper.xml"].read_text()[:1500])
    said = refused(gipo, environment, *train_words(HOPPER))
    assert f"the model {folder}/hopper.xml is refused by MuJoCo 3.3.0: XML" in said
    (folder / "hopper.xml").write_text(MODELS["hopper.xml"].read_text())
    assert subprocess.run([gipo.binary, *train_words(HOPPER)], cwd=gipo.folder, env=os.environ | environment,
                          capture_output=True).returncode == 0


def test_a_simulation_that_breaks_down_is_counted_and_never_learned_from(gipo, tmp_path):
    """A spring that pushes away instead of pulling back: the cart is out of all bounds within a few dozen steps."""
    text = MODELS["inverted_pendulum.xml"].read_text()
    model = tmp_path / "explosive.xml"
    changed = text.replace('limited="true" name="slider"', 'limited="false" stiffness="-2000" name="slider"')
    assert changed != text
    model.write_text(changed)
    options = {"env.id": "HalfCheetah-v5", "env.options.xml_file": model, "learner.updates": 20,
               "replay.segment_length": 4}  # fmt: skip
    done = gipo("train", "--quiet", "--name", "a", *settings(TINY | options))
    # Its segments are whole and are learned from. No episode is, so that there is no return to report at the end.
    assert done.returncode == 1 and "10 times in a row without one whole episode" in done.stderr
    run = gipo.folder / "runs/a"
    assert summary(run)["updates"] == 20 and (run / "policy.safetensors").exists()
    counts = summary(run)["counts"]
    assert counts["rejected_segments"] == sum(counts["faults"].values()) > 0
    assert all(name.startswith("mujoco_") for name in counts["faults"]), counts
    assert not list(gipo.folder.rglob("MUJOCO_LOG.TXT"))
