"""Datasets in LeRobot's layout, versions 2.1 and 3.0, as demonstrations for `gipo clone`.

    dataset/meta/info.json, meta/tasks..., data/**/*.parquet, videos/**/*.mp4

Needs the package pyarrow; images are decoded with Pillow, videos with ffmpeg. docs/cloning.md has the user's view.
"""

from __future__ import annotations

import io
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gipo.runs import Record, UserMistake
from gipo.video import find_ffmpeg

if TYPE_CHECKING:
    import pyarrow

VERSIONS = ("v2.1", "v3.0")
ACTIONS, REWARD, IMAGES = ("action", "actions"), "next.reward", "observation.images."
OWN = ("timestamp", "frame_index", "episode_index", "index", "task_index")  # columns of LeRobot's own

Part = tuple[str, Callable[[np.ndarray], np.ndarray]]


@dataclass
class Episode:
    index: int
    file: Path  # of its rows
    first: int  # row in that file
    length: int
    task: int


class Frames:
    """A video's frames from the first to the last, as ffmpeg decodes them."""

    def __init__(self, path: Path) -> None:
        self.path, self.next = path, 0
        self._said = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [find_ffmpeg("read"), "-loglevel", "error", "-i", str(path), "-fps_mode", "passthrough", "-c:v", "ppm", "-f", "image2pipe", "-"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._said,
        )  # fmt: skip

    def read(self) -> np.ndarray | None:
        """The next frame [height, width, 3]; None after the last."""
        out = self._process.stdout
        assert out is not None
        if out.readline() != b"P6\n":
            return None
        width, height = (int(word) for word in out.readline().split())
        out.readline()  # the largest value, 255
        image = out.read(3 * width * height)
        self.next += 1
        return np.frombuffer(image, np.uint8).reshape(height, width, 3) if len(image) == 3 * width * height else None

    def said(self) -> str:
        self._said.seek(0)
        return self._said.read().decode(errors="replace").strip().partition("\n")[0] or "it has no more"

    def close(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()
        self._said.close()


class LeRobot:
    """The episodes of a dataset, in the order of their numbers. See demonstrations.Reader."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.info = self._json("meta/info.json")
        version = self.info.get("codebase_version")
        if version not in VERSIONS:
            raise UserMistake(f"{path}: meta/info.json has codebase_version = {json.dumps(version)}: wanted {' or '.join(VERSIONS)}")
        self.features: Record = self.info.get("features", {})
        self.action = next((name for name in ACTIONS if name in self.features), None)
        if self.action is None:
            raise UserMistake(f"{path}: it has no action; its features are {', '.join(sorted(self.features)) or 'none'}")
        self._tables: dict[str, tuple[Path, pyarrow.Table]] = {}  # of each column the file that was read last
        self._frames: dict[str, Frames] = {}
        self.episodes = self._find_episodes()
        self.lengths = [episode.length for episode in self.episodes]
        self.tasks = self._read_tasks()
        self._positions = self._read_positions() if version == "v3.0" and self._videos() else {}

    def close(self) -> None:
        for frames in self._frames.values():
            frames.close()

    # What demonstrations.Source asks.

    def label(self, episode: Episode, name: str) -> str:
        return f"episode {episode.index}" if name == "obs" else f"{name} of episode {episode.index}"

    def observations(self, _: Episode) -> list[str]:
        return [name for name in self.features if name not in (*OWN, *ACTIONS) and not name.startswith("next.")]

    def observation(self, episode: Episode, name: str) -> np.ndarray:
        if self.features[name].get("dtype") == "video":
            return self._video(episode, name)
        return self._rows(episode, name)

    def actions(self, episode: Episode) -> np.ndarray:
        assert self.action is not None
        return self._rows(episode, self.action)

    def rewards(self, episode: Episode) -> np.ndarray:
        return self._rows(episode, REWARD).reshape(episode.length)

    def has_rewards(self) -> bool:
        return REWARD in self.features

    def instruction(self, episode: Episode) -> str:
        if episode.task not in self.tasks:
            raise UserMistake(f"{self.path}: episode {episode.index} has the task {episode.task}, which meta/tasks does not have")
        return self.tasks[episode.task]

    def elsewhere(self, name: str) -> list[list[Part]]:
        """Names that a field of a task may have here."""
        names = [f"observation.{name}", IMAGES + name]
        names += {"observation": ["observation.state"], "wrist_image": [IMAGES + "image2"]}.get(name, [])
        return [[(other, np.asarray)] for other in names]

    # Files.

    def _json(self, name: str) -> Any:
        try:
            return json.loads((Path(self.path) / name).read_text())
        except FileNotFoundError:
            raise UserMistake(f"{self.path}: it has no {name}: wanted a dataset in LeRobot's layout, or an HDF5 file") from None
        except (OSError, ValueError) as error:
            raise UserMistake(f"{self.path}: {name}: {error}") from None

    def _parquet(self, path: Path, columns: list[str] | None = None) -> pyarrow.Table:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise UserMistake(f"{error}: LeRobot's datasets are read with the package pyarrow; pip install pyarrow") from None
        try:
            file = parquet.ParquetFile(path)
            for name in columns or []:
                if name not in file.schema_arrow.names:
                    raise UserMistake(f"{path}: it has no column {name}; it has {', '.join(file.schema_arrow.names)}")
            return file.read(columns)
        except (OSError, pyarrow.ArrowException) as error:
            raise UserMistake(f"{path}: {str(error).partition(chr(10))[0]}") from None

    def _find_episodes(self) -> list[Episode]:
        """By the rows themselves, which is the same in both versions."""
        found: list[Episode] = []
        for file in sorted((Path(self.path) / "data").rglob("*.parquet")):
            table = self._parquet(file, ["episode_index", "task_index"])
            index, task = (np.asarray(table[name]).reshape(-1) for name in ("episode_index", "task_index"))
            starts = np.flatnonzero(np.diff(index, prepend=-1))
            for first, end in zip(starts, [*starts[1:], len(index)], strict=True):
                found.append(Episode(int(index[first]), file, int(first), int(end - first), int(task[first])))
        found.sort(key=lambda episode: episode.index)
        for what, key, there in (("episodes", "total_episodes", len({episode.index for episode in found})),
                                 ("steps", "total_frames", sum(episode.length for episode in found))):  # fmt: skip
            if there != self.info.get(key, there):
                raise UserMistake(f"{self.path}: meta/info.json has {key} = {self.info[key]}, but there are {there} {what} in data: a "
                                  "file is missing or cut")
        for one, other in zip(found, found[1:]):
            if one.index == other.index:
                raise UserMistake(f"{self.path}: the rows of episode {one.index} do not lie together")
        if not found:
            raise UserMistake(f"{self.path}: data holds no episode")
        return found

    def _read_tasks(self) -> dict[int, str]:
        meta = Path(self.path) / "meta"
        if (meta / "tasks.parquet").exists():
            table = self._parquet(meta / "tasks.parquet").to_pydict()
            numbers = table.pop("task_index", [])
            return dict(zip(numbers, next(iter(table.values()), []), strict=False))
        try:
            lines = (meta / "tasks.jsonl").read_text().splitlines()
            return {task["task_index"]: task["task"] for task in map(json.loads, lines)}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError) as error:
            raise UserMistake(f"{self.path}: meta/tasks.jsonl: {error!r}") from None

    def _rows(self, episode: Episode, name: str) -> np.ndarray:
        """[length, ...] of a column of numbers or of images."""
        if self._tables.get(name, (None,))[0] != episode.file:
            self._tables[name] = (episode.file, self._parquet(episode.file, [name]))
        column = self._tables[name][1][name].slice(episode.first, episode.length)
        if self.features[name].get("dtype") == "image":
            return np.stack([self._image(episode, name, image) for image in column.to_pylist()])
        try:
            values = np.array(column.to_pylist())
        except ValueError:  # rows of different lengths
            values = np.array(None)
        if values.dtype.kind not in "fiub":
            raise UserMistake(f"{self.path}: {self.label(episode, name)} has rows of different lengths, or what is no number")
        return values

    def _image(self, episode: Episode, name: str, image: Record | None) -> np.ndarray:
        from PIL import Image, UnidentifiedImageError

        try:
            data = (image or {}).get("bytes")
            if data is None:
                raise ValueError("wanted images inside the Parquet file")
            return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        except (UnidentifiedImageError, OSError, ValueError) as error:
            raise UserMistake(f"{self.path}: {self.label(episode, name)}: {error}") from None

    # Videos: of version 2.1 one for each episode, of 3.0 one for several.

    def _videos(self) -> bool:
        return any(feature.get("dtype") == "video" for feature in self.features.values())

    def _read_positions(self) -> dict[int, Record]:
        """Of each episode: in which file of each camera it is, and from when on."""
        rows: dict[int, Record] = {}
        for file in sorted((Path(self.path) / "meta" / "episodes").rglob("*.parquet")):
            table = self._parquet(file)
            names = [name for name in table.column_names if name == "episode_index" or name.startswith("videos/")]
            rows.update({row["episode_index"]: row for row in table.select(names).to_pylist()})
        return rows

    def _place(self, episode: Episode, name: str) -> tuple[Path, int]:
        """The file with the episode's frames, and how many come before them there."""
        pattern = self.info.get("video_path")
        if self.info["codebase_version"] == "v2.1":
            chunk = episode.index // self.info.get("chunks_size", 1000)
            where, before = {"episode_chunk": chunk, "episode_index": episode.index}, 0
        else:
            row = self._positions.get(episode.index, {})
            if f"videos/{name}/from_timestamp" not in row:
                raise UserMistake(f"{self.path}: meta/episodes does not say where the video {name} of episode {episode.index} is")
            where = {key: row[f"videos/{name}/{key}"] for key in ("chunk_index", "file_index")}
            before = round(row[f"videos/{name}/from_timestamp"] * self.info.get("fps", 1))
        try:
            return Path(self.path) / pattern.format(video_key=name, **where), before
        except (AttributeError, KeyError, IndexError, ValueError):
            raise UserMistake(f"{self.path}: meta/info.json has video_path = {json.dumps(pattern)}, which names no file") from None

    def _video(self, episode: Episode, name: str) -> np.ndarray:
        path, before = self._place(episode, name)
        if not path.exists():
            raise UserMistake(f"{path}: no such file; it has the images {self.label(episode, name)}")
        frames = self._frames.get(name)
        if frames is None or frames.path != path or frames.next > before:
            if frames is not None:
                frames.close()
            frames = self._frames[name] = Frames(path)
        images = list(self._following(frames, before, episode.length))
        if len(images) < episode.length:
            raise UserMistake(f"{path}: {len(images)} frames of episode {episode.index}, which has {episode.length} steps: {frames.said()}")
        return np.stack(images)

    def _following(self, frames: Frames, before: int, count: int) -> Iterator[np.ndarray]:
        while frames.next < before + count:
            wanted = frames.next >= before
            image = frames.read()
            if image is None:
                return
            if wanted:
                yield image
