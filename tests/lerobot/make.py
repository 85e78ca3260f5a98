"""Makes the datasets of this folder with the package lerobot, which is too large to install for the tests:

    python make.py v21_image.tar.xz image     # lerobot==0.3.3 writes version 2.1, lerobot==0.4.4 version 3.0
    python make.py v21_video.tar.xz video
"""

import inspect
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

LENGTHS, TASKS = (5, 3, 7, 4, 6, 2), ("put it there", "open the drawer")


def image(episode, step):
    """Tells episode, step and all four corners apart, after compression too."""
    pixels = np.zeros((64, 96, 3), np.uint8)
    pixels[..., 0], pixels[:, :48, 1], pixels[:32, :, 2] = 20 * step, 40 * episode, 200
    return pixels


def main(target, kind):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {
        "observation.state": {"dtype": "float32", "shape": (8,), "names": None},
        "observation.images.image": {"dtype": kind, "shape": (64, 96, 3), "names": ["height", "width", "channels"]},
        "action": {"dtype": "float32", "shape": (7,), "names": None},
        "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "dataset")
        dataset = LeRobotDataset.create("tests/small", 10, features, root=root, use_videos=kind == "video")
        if kind == "video" and hasattr(dataset.meta, "update_chunk_settings"):  # version 3.0: several files
            dataset.meta.update_chunk_settings(data_files_size_in_mb=0.001, video_files_size_in_mb=0.0025)
        apart = "task" in inspect.signature(dataset.add_frame).parameters
        for episode, length in enumerate(LENGTHS):
            for step in range(length):
                frame = {
                    "observation.state": np.arange(8, dtype=np.float32) + 10 * episode + step,
                    "observation.images.image": image(episode, step),
                    "action": np.linspace(-1, 1, 7, dtype=np.float32) * np.float32((step + 1) / 10),
                    "next.reward": np.array([step == length - 1], np.float32),
                }
                task = TASKS[episode % 2]
                dataset.add_frame(frame, task=task) if apart else dataset.add_frame(frame | {"task": task})
            dataset.save_episode()
        if hasattr(dataset, "finalize"):
            dataset.finalize()
        with tarfile.open(target, "w:xz") as out:
            out.add(root, "dataset", filter=lambda entry: None if entry.name.endswith(".png") else entry)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
