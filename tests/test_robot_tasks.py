"""Robot tasks with cameras, without a simulator: what they share, and what is said where one is missing."""

import importlib.util
import io
import json
import pickle
import zipfile

import gymnasium.utils.env_checker
import numpy as np
import pytest
from conftest import ROOT

from gipo import robot_tasks


class Counter(robot_tasks.RobotTask):
    """Done after as many actions as are above zero in their first number. Notes which of them were drawn."""

    def __init__(self, goal=5, limit=10, **shape):
        super().__init__({"image": "camera"}, 3, 2, limit, **({"size": 16, "chunk": 1, "instruction_bytes": 0} | shape))
        self.goal, self.drawn = goal, []

    def instruction(self):
        return "count to five"

    def _seen(self, draw):
        image = {"image": np.full((16, 16, 3), self.count, np.uint8)} if draw else {}
        return {"state": np.full(3, self.count)} | image

    def begin(self):
        self.count = 0
        return self._seen(True)

    def move(self, action, draw):
        self.count += int(action[0] > 0)
        self.drawn.append(draw)
        return self._seen(draw), float(self.count >= self.goal), self.count >= self.goal

    def look(self):
        self.drawn[-1] = True
        return self._seen(True)


def test_is_an_environment_of_gymnasium():
    gymnasium.utils.env_checker.check_env(Counter(instruction_bytes=20), skip_render_check=True)


def test_a_chunk_ends_with_success_and_draws_once():
    env = Counter(chunk=4)
    env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step(np.ones(8))
    assert (observation["state"] == 4).all() and reward == 0 and not terminated and not info["success"]
    assert env.drawn == [False, False, False, True]
    observation, reward, terminated, truncated, info = env.step(np.ones(8))
    assert terminated and not truncated and info["success"] and reward == 1 and env.taken == 5
    assert env.drawn[4:] == [True] and (observation["image"] == 5).all()  # the last one shows what it led to


def test_the_limit_cuts_a_chunk():
    env = Counter(limit=6, chunk=4)
    env.reset(seed=1)
    assert not env.step(-np.ones(8))[3]
    _, _, terminated, truncated, _ = env.step(-np.ones(8))
    assert truncated and not terminated and env.taken == 6 and env.drawn == [False] * 3 + [True, False, True]


def test_the_instruction_is_bytes_of_utf_8():
    observation, info = Counter(instruction_bytes=16).reset(seed=1)
    assert bytes(observation["instruction"]) == b"count to five\0\0\0" and info["instruction"] == "count to five"
    with pytest.raises(robot_tasks.Mistake, match="has 13 bytes: wanted at most 12"):
        Counter(instruction_bytes=12).reset(seed=1)


def test_the_instruction_is_tokens():
    observation, _ = Counter(instruction_tokens=16).reset(seed=1)
    tokens = observation["instruction"]
    assert tokens.dtype == np.int32 and tokens[0] == 1 and list(tokens[14:]) == [-1, -1]
    assert bytes((tokens[1:14] - 3).tolist()) == b"count to five"
    with pytest.raises(robot_tasks.Mistake, match="has 14 tokens: wanted at most 13"):
        Counter(instruction_tokens=13).reset(seed=1)


def test_a_language_models_tokeniser_makes_the_prompt(tmp_path):
    letters = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581"]
    model = {"type": "BPE", "byte_fallback": True, "vocab": {piece: k for k, piece in enumerate(letters)}, "merges": []}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "normalizer": {"type": "Prepend", "prepend": "\u2581"}}))
    observation, _ = Counter(instruction_tokens=80, tokeniser=str(tmp_path / "tokenizer.json")).reset(seed=1)
    text = b" In: What action should the robot take to count to five?\nOut: "
    assert observation["instruction"][: len(text) + 1].tolist() == [1, *(259 if byte == 32 else 3 + byte for byte in text)]
    assert observation["instruction"][len(text) + 1] == -1
    with pytest.raises(robot_tasks.Mistake, match="env.options.tokeniser is '/none'"):
        Counter(instruction_tokens=80, tokeniser="/none")


def test_bins_are_those_of_openvla():
    """Its ids count down from 32000: bin b of 1 to 256 is id 32000 - b, choice 256 - b here."""
    edges = np.linspace(-1, 1, 256)
    centres = (edges[:-1] + edges[1:]) / 2
    bins = robot_tasks.Bins(256, None, 2)
    ids = np.arange(31744, 32000)
    published = centres[np.clip(32000 - ids - 1, 0, 254)]
    choices = np.stack([ids - 31744, ids - 31744], 1)
    assert np.allclose(bins.actions(choices)[:, 0], published)
    values = np.random.default_rng(1).uniform(-1, 1, (1000, 2))
    assert np.abs(bins.actions(bins.choices(values)) - values).max() <= 1 / 255 + 1e-9
    assert (bins.choices(bins.actions(choices[1:])) == choices[1:]).all()  # 0 and 1 mean the same


def test_statistics_say_what_the_bins_mean(tmp_path):
    path = tmp_path / "dataset_statistics.json"
    path.write_text('{"libero_spatial": {"action": {"q01": [-0.5, 0], "q99": [1.5, 1], "mask": [true, false]}, "proprio": {}}}')
    bins = robot_tasks.Bins(256, path, 2)
    assert np.allclose(bins.actions([[255, 0], [0, 255]]), [[-0.5 + 1 / 255, -1], [1.5 - 1 / 255, 1]], atol=1e-6)
    assert (bins.choices([[0.5, 1], [0.5, -1]])[:, 1] == [128, 0]).all()  # gripper: OpenVLA opens with 1, the robots with -1
    with pytest.raises(robot_tasks.Mistake, match="wanted 3 numbers in q01"):
        robot_tasks.Bins(256, path, 3)
    with pytest.raises(robot_tasks.Mistake, match="wanted a JSON file with action.q01"):
        robot_tasks.Bins(256, tmp_path / "none.json", 2)


def test_a_chunk_of_choices():
    env = Counter(chunk=4, action_bins=256)
    assert env.action_space == gymnasium.spaces.MultiDiscrete([256] * 8)
    env.reset(seed=1)
    observation, *_ = env.step(np.tile([0, 200, 255, 0], 2))
    assert (observation["state"] == 2).all()


def test_instructions_are_read_from_names():
    name = "LIVING_ROOM_SCENE2_put_both_the_alphabet_soup_and_the_tomato_sauce_in_the_basket"
    assert robot_tasks.language_of(name) == "put both the alphabet soup and the tomato sauce in the basket"
    assert robot_tasks.language_of("KITCHEN_SCENE10_close_the_top_drawer") == "close the top drawer"
    assert robot_tasks.language_of("open_the_middle_drawer") == "open the middle drawer"


def archive(tmp_path, content):
    path = tmp_path / "states.pruned_init"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", content)
    return path


def test_initial_states_are_read_and_nothing_else_is_executed(tmp_path):
    states = np.arange(6.0).reshape(2, 3)
    assert (robot_tasks.read_states(archive(tmp_path, pickle.dumps(states, protocol=2))) == states).all()

    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "made"), "w")

    with pytest.raises(robot_tasks.Mistake, match="asks for (io|_io).open"):
        robot_tasks.read_states(archive(tmp_path, pickle.dumps(Evil())))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("wrong, words", [
    ({"size": 8}, "env.options.size is 8: wanted a whole number, 16 or more"),
    ({"chunk": 0}, "env.options.chunk is 0: wanted a whole number, 1 or more"),
    ({"chunk": 2.0}, "env.options.chunk is 2.0"),
    ({"action_bins": 1}, "env.options.action_bins is 1: wanted 0, for numbers, or 2 or more"),
    ({"statistics": "x.json"}, "env.options.statistics: wanted env.options.action_bins with it"),
    ({"instruction_bytes": 20, "instruction_tokens": 20}, "wanted one of them"),
])  # fmt: skip
def test_refuses(wrong, words):
    with pytest.raises(robot_tasks.Mistake, match=words):
        Counter(**wrong)


def test_refuses_an_option_that_is_none():
    with pytest.raises(robot_tasks.Mistake, match="env.options.sizes: libero has no such option; it has data, drawing"):
        robot_tasks.make("libero", "libero_spatial/0", {"sizes": 3})


@pytest.mark.skipif(importlib.util.find_spec("libero") is not None, reason="LIBERO stands in .venv")
def test_without_its_package_the_command_that_installs_it_is_named(gipo, tmp_path):
    done = gipo("train", "classic/stale", "--set", "env.id=libero:libero_spatial/0", "--set",
                f"env.python={ROOT / '.venv/bin/python'}")  # fmt: skip
    assert done.returncode == 2 and "scripts/setup.sh --libero" in done.stderr and "Traceback" not in done.stderr
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(importlib.util.find_spec("metaworld") is None, reason="metaworld is not installed")
def test_meta_world_with_a_camera_repeats_itself():
    env = robot_tasks.make("metaworld-pixels", "door-open-v3+drawer-close-v3", {"size": 32, "drawing": "fast"})

    def played(seed):
        first, info = env.reset(seed=seed)
        return [first["image"], env.step(np.full(4, 0.5))[0]["image"]], info["instruction"]

    once, again, other = played(1), played(1), played(2)
    assert all((a == b).all() for a, b in zip(once[0], again[0])) and once[1] == again[1]
    assert any((a != b).any() for a, b in zip(once[0], other[0]))
    assert once[0][0].std() > 10  # it shows something
