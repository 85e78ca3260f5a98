"""gipo clone on datasets in LeRobot's layout. Those of tests/lerobot were written by the package lerobot."""

import json
import shutil
import sys
import tarfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pytest
from conftest import read_safetensors
from pyarrow import parquet

from gipo import demonstrations
from gipo.runs import UserMistake
from test_clone import cart_pole, clone, task  # noqa: F401: cart_pole is a fixture

HERE = Path(__file__).resolve().parent / "lerobot"
sys.path.insert(0, str(HERE))

from make import LENGTHS, TASKS, image  # noqa: E402

FIELDS = {"image": ("uint8", [64, 96, 3]), "state": ("float32", [8]), "instruction": ("uint8", [30])}


def unpacked(name, folder):
    with tarfile.open(HERE / f"{name}.tar.xz") as file:
        file.extractall(folder, filter="data")
    return folder / "dataset"


def converted(dataset, fields=None, **options):
    target = dataset.parent / "out"
    demonstrations.convert(str(dataset), str(target), task(fields or FIELDS, **options))
    return read_safetensors(target)


@pytest.mark.parametrize("name", ["v21_image", "v21_video", "v30_image", "v30_video"])
def test_what_lerobot_wrote_is_read(tmp_path, name):
    read = converted(unpacked(name, tmp_path))
    assert read["episode_ends"].tolist() == np.cumsum(LENGTHS).tolist()
    steps = [(episode, step) for episode, length in enumerate(LENGTHS) for step in range(length)]
    for at, (episode, step) in enumerate(steps):
        off = np.abs(read["obs/image"][at].astype(int) - image(episode, step)).mean()
        assert off == 0 if name.endswith("image") else off < 4, (episode, step)  # videos are compressed
        assert (read["obs/state"][at] == np.arange(8) + 10 * episode + step).all()
        assert read["action"][at] == pytest.approx(np.linspace(-1, 1, 7) * (step + 1) / 10)
        assert read["reward"][at] == (step == LENGTHS[episode] - 1)
        assert bytes(read["obs/instruction"][at]).rstrip(b"\0").decode() == TASKS[episode % 2]


def test_robot_tasks_take_tokens_and_smaller_images(tmp_path):
    fields = {"image": ("uint8", [32, 32, 3]), "instruction": ("int32", [40])}
    read = converted(unpacked("v30_video", tmp_path), fields, dims=14, choices=[256] * 14, chunk=2, action_bins=256, instruction_tokens=40)
    assert read["obs/image"].shape == (sum(LENGTHS), 32, 32, 3)
    assert read["obs/instruction"][5][1:16].tolist() == [3 + byte for byte in TASKS[1].encode()]
    assert read["action"].min() >= 0 and read["action"].max() <= 255 and (read["action"] == read["action"].round()).all()


def change_info(dataset, **values):
    path = dataset / "meta" / "info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_column(path, name, values):
    table = parquet.read_table(path)
    parquet.write_table(table.set_column(table.schema.get_field_index(name), name, values(table[name])), path)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


V21, V30 = "data/chunk-000/episode_000001.parquet", "data/chunk-000/file-000.parquet"
VIDEO = "videos/observation.images.image/chunk-000/file-000.mp4"


@pytest.mark.parametrize("name, spoil, words", [
    ("v21_image", lambda d: (d / "meta/info.json").unlink(), "it has no meta/info.json: wanted a dataset in LeRobot's layout"),
    ("v21_image", lambda d: (d / "meta/info.json").write_text("{"), "meta/info.json: "),
    ("v21_image", lambda d: change_info(d, codebase_version="v2.0"), 'codebase_version = "v2.0": wanted v2.1 or v3.0'),
    ("v30_image", lambda d: change_info(d, features={}), "it has no action; its features are none"),
    ("v21_image", lambda d: (d / V21).unlink(), "total_episodes = 6, but there are 5 episodes in data"),
    ("v30_image", lambda d: change_info(d, total_frames=28), "total_frames = 28, but there are 27 steps in data"),
    ("v30_image", lambda d: cut(d / V30), V30),
    ("v30_image", lambda d: shutil.rmtree(d / "data"), "there are 0 episodes in data"),
    ("v30_image", lambda d: parquet.write_table(parquet.read_table(d / V30).drop(["action"]), d / V30), f"{V30}: it has no column action"),
    ("v30_image", lambda d: change_column(d / V30, "task_index", lambda v: pyarrow.array([7] * len(v))),
     "episode 0 has the task 7, which meta/tasks does not have"),
    ("v30_image", lambda d: change_column(d / V30, "action", lambda v: pyarrow.array([[float("nan")] * 7] * len(v))),
     "actions of episode 0 holds a number that is not finite"),
    ("v30_image", lambda d: change_column(d / V30, "observation.state", lambda v: pyarrow.array([[1.0] * 9] * len(v))),
     "state of episode 0 has the shape (5, 9): wanted (5, 8)"),
    ("v30_image", lambda d: change_column(d / V30, "observation.state", lambda v: pyarrow.array([[1.0], *[[1.0] * 8] * (len(v) - 1)])),
     "observation.state of episode 0 has rows of different lengths"),
    ("v30_video", lambda d: (d / VIDEO).unlink(), "file-000.mp4: no such file"),
    ("v30_video", lambda d: cut(d / VIDEO), "file-000.mp4: 0 frames of episode 0, which has 5 steps"),
    ("v30_video", lambda d: shutil.rmtree(d / "meta/episodes"), "meta/episodes does not say where the video observation.images.image of episode 0 is"),
    ("v21_video", lambda d: change_info(d, video_path="videos/{nothing}.mp4"), "which names no file"),
])  # fmt: skip
def test_bad_datasets_are_named(tmp_path, name, spoil, words):
    dataset = unpacked(name, tmp_path)
    spoil(dataset)
    with pytest.raises(UserMistake) as caught:
        converted(dataset)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_field_that_is_not_there_is_named_with_what_is(tmp_path):
    with pytest.raises(UserMistake, match="episode 0 has no wrist_image, which .* gives; it has observation.images.image, observation.state"):
        converted(unpacked("v30_image", tmp_path), {"wrist_image": ("uint8", [64, 64, 3])})


def test_the_package_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserMistake, match="pip install pyarrow"):
        converted(unpacked("v30_image", tmp_path))


def as_lerobot(source, root):
    """The layout of version 2.1 as its documentation has it, without lerobot."""
    (root / "meta").mkdir(parents=True)
    (root / "data/chunk-000").mkdir(parents=True)
    frames = 0
    with h5py.File(source) as file:
        demos = [file[f"data/demo_{k}"] for k in range(len(file["data"]))]
        for k, demo in enumerate(demos):
            length = len(demo["actions"])
            columns = {"observation.state": demo["obs/observation"][()].tolist(), "action": demo["actions"][:, 0],
                       "next.reward": demo["rewards"][()], "timestamp": np.arange(length, dtype=np.float32) / 50,
                       "frame_index": np.arange(length), "episode_index": np.full(length, k),
                       "index": frames + np.arange(length), "task_index": np.zeros(length, np.int64)}  # fmt: skip
            parquet.write_table(pyarrow.table(columns), root / f"data/chunk-000/episode_{k:06d}.parquet")
            frames += length
    features = {"observation.state": {"dtype": "float32", "shape": [4]}, "action": {"dtype": "int64", "shape": [1]},
                "next.reward": {"dtype": "float32", "shape": [1]}}  # fmt: skip
    (root / "meta/info.json").write_text(json.dumps({"codebase_version": "v2.1", "total_episodes": len(demos), "total_frames": frames,
                                                     "chunks_size": 1000, "fps": 50, "features": features}))  # fmt: skip
    (root / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": "balance"}\n')
    return root


def test_the_same_demonstrations_make_the_same_policy(gipo, cart_pole, tmp_path):  # noqa: F811
    short = {"learner.updates": 60}
    assert clone(gipo, cart_pole, "hdf5", short).returncode == 0
    done = clone(gipo, as_lerobot(cart_pole, tmp_path / "dataset"), "lerobot", short)
    assert done.returncode == 0, done.stderr
    policies = [(tmp_path / "runs" / name / "policy.safetensors").read_bytes() for name in ("hdf5", "lerobot")]
    assert policies[0] == policies[1]
    ended = clone(gipo, tmp_path, "none", short)
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and "it has no meta/info.json" in ended.stderr
    assert not (tmp_path / "runs" / "none").exists()
