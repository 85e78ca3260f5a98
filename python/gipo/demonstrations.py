"""Demonstrations: episodes that a script or a person played, recorded, read and made ready for `gipo clone`.

    gipo.record_demonstrations("cartpole.hdf5", env, policy, episodes=20)

Files are HDF5 as robomimic lays them out; gipo.lerobot reads LeRobot's datasets. docs/cloning.md has the user's view.
Needs the package h5py.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import struct
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np

from gipo.runs import Record, RunFailed, UserMistake
from gipo.tokeniser import BYTES, Tokeniser

if TYPE_CHECKING:
    import gymnasium
    import h5py

TENSORS = {"uint8": ("U8", np.uint8), "int32": ("I64", np.int64), "int64": ("I64", np.int64),
           "float32": ("F32", np.float32), "float64": ("F64", np.float64)}  # fmt: skip


@dataclass
class Episode:
    """One demonstration of T steps. An action stands beside the observation that it was chosen for."""

    observations: dict[str, np.ndarray]  # [T, ...] by field; of a task without named fields: "observation"
    actions: np.ndarray  # [T, dims]
    rewards: np.ndarray  # [T]
    success: bool
    instruction: str = ""


def play(env: gymnasium.Env, policy: Callable[[Any], Any], seed: int, noise: float = 0.0) -> Episode:
    """One episode. noise: standard deviation of what is added to actions when they are carried out, not when they are
    kept: the demonstration then also shows how to come back from small mistakes."""
    random = np.random.default_rng(seed)
    seen, info = env.reset(seed=seed)
    instruction = str(info.get("instruction", ""))
    observations: list[dict[str, np.ndarray]] = []
    actions, rewards, success, over = [], [], False, False
    while not over:
        fields = seen if isinstance(seen, dict) else {"observation": seen}
        observations.append({name: np.array(value) for name, value in fields.items()})
        action = np.asarray(policy(seen))
        done = action
        if action.dtype.kind == "f":
            low, high = env.action_space.low, env.action_space.high
            action = np.clip(action, low, high).astype(np.float32)
            done = np.clip(action + noise * random.standard_normal(action.shape), low, high).astype(np.float32)
        actions.append(np.atleast_1d(action))
        seen, reward, terminated, truncated, info = env.step(done if done.shape else done.item())
        rewards.append(float(reward))
        success = bool(info.get("success", success))
        over = terminated or truncated
    stacked = {name: np.stack([o[name] for o in observations]) for name in observations[0]}
    return Episode(stacked, np.stack(actions), np.array(rewards, np.float32), success, instruction)


def open_file(path: str | os.PathLike[str], mode: str) -> h5py.File:
    try:
        import h5py
    except ImportError as error:
        raise UserMistake(f"{error}: demonstrations are read and written with the package h5py; pip install h5py") from None
    try:
        return h5py.File(path, mode)
    except OSError as error:
        raise UserMistake(f"{path}: {error}") from None


def write(path: str | os.PathLike[str], episodes: Iterable[Episode], env: str) -> Record:
    """A file of these episodes, in robomimic's layout. It appears when it is whole."""
    part = Path(f"{path}.{os.getpid()}.part")
    count = steps = successes = 0
    try:
        with open_file(part, "w") as file:
            data = file.create_group("data")
            data.attrs["env_args"] = json.dumps({"env_name": env, "type": "gipo", "env_kwargs": {}})
            for episode in episodes:
                demo = data.create_group(f"demo_{count}")
                length = len(episode.actions)
                demo.attrs["num_samples"] = length
                demo.attrs["success"] = episode.success
                if episode.instruction:
                    demo.attrs["instruction"] = episode.instruction
                demo["actions"], demo["rewards"] = episode.actions, episode.rewards
                demo["dones"] = np.arange(length) == length - 1
                for name, values in episode.observations.items():
                    demo[f"obs/{name}"] = values
                count, steps, successes = count + 1, steps + length, successes + episode.success
            data.attrs["total"] = steps
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return {"file": str(path), "episodes": count, "steps": steps, "successes": successes}


def record_demonstrations(
    path: str | os.PathLike[str],
    env: gymnasium.Env,
    policy: Callable[[Any], Any],
    *,
    episodes: int = 50,
    seed: int = 0,
    noise: float = 0.0,
) -> dict[str, Any]:
    """Plays a policy in an environment of Gymnasium and keeps the episodes in an HDF5 file.

    policy: from an observation to an action. noise: standard deviation of what is added to continuous actions when they
    are carried out; the file keeps them without it. Returns how many episodes, steps and successes there were.
    """
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    return write(path, (play(env, policy, seed + k, noise) for k in range(episodes)), name)


def scripted(env: Any) -> Callable[[Any], np.ndarray]:
    """The policy of the package metaworld for the task that the environment is in."""
    from metaworld.policies import ENV_POLICY_MAP

    policies = {name: ENV_POLICY_MAP[name]() for name in env.tasks}

    def act(_: Any) -> np.ndarray:
        raw = np.array(env.raw)
        raw[-3:] = env.tasks[env.now]._get_pos_goal()  # the scripts are told where the goal is; policies see it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that actions are clipped
            return np.asarray(policies[env.now].get_action(raw), np.float32)

    return act


@functools.cache
def robot_task(name: str, options: tuple[tuple[str, Any], ...]) -> Any:
    from gipo import robot_tasks

    try:
        return robot_tasks.make("metaworld-pixels", name, dict(options))
    except robot_tasks.Mistake as error:
        raise UserMistake(str(error)) from None


def play_robot(job: tuple[str, tuple[tuple[str, Any], ...], int, float]) -> Episode:
    name, options, seed, noise = job
    env = robot_task(name, options)
    return play(env, scripted(env), seed, noise)


def record_robots(name: str, path: str, options: Record, *, episodes: int, seed: int, noise: float, workers: int) -> Record:
    """So many successful episodes of each task, played by the scripts of the package metaworld."""
    names, fixed = name.removeprefix("metaworld-pixels:").split("+"), tuple(options.items())
    with multiprocessing.get_context("spawn").Pool(workers) as pool:

        def successes(task: str) -> Iterator[Episode]:
            kept, first = 0, seed
            while kept < episodes:
                for episode in pool.imap(play_robot, [(task, fixed, first + k, noise) for k in range(episodes - kept)]):
                    if episode.success:
                        kept += 1
                        yield episode
                first += episodes
                if first - seed > 20 * episodes:
                    raise RunFailed(f"{task}: the script succeeded in {kept} of {first - seed} episodes: wanted {episodes}")

        return write(path, (episode for task in names for episode in successes(task)), name)


def is_robot(env: str) -> bool:
    return env.startswith(("libero:", "metaworld-pixels:", "robosuite:"))


def turned(images: np.ndarray) -> np.ndarray:
    return images[:, ::-1, ::-1]


def axis_angles(quaternions: np.ndarray) -> np.ndarray:
    from gipo.robot_tasks import axis_angle

    return np.array([axis_angle(q) for q in quaternions])


# Where other packages keep what the robot tasks call by one name: the fields that are put together, and how each is read.
Part = tuple[str, Callable[[np.ndarray], np.ndarray]]
ELSEWHERE: dict[str, list[list[Part]]] = {
    "image": [[("agentview_rgb", turned)], [("agentview_image", np.asarray)]],
    "wrist_image": [[("eye_in_hand_rgb", turned)], [("robot0_eye_in_hand_image", np.asarray)]],
    "state": [[("ee_states", np.asarray), ("gripper_states", np.asarray)],
              [("robot0_eef_pos", np.asarray), ("robot0_eef_quat", axis_angles), ("robot0_gripper_qpos", np.asarray)]],
}  # fmt: skip


class Reader(Protocol):
    """Episodes as a file or a folder holds them. What is missing or cut is a UserMistake that names the place."""

    path: str
    episodes: Sequence[Any]
    lengths: list[int]  # steps of each

    def label(self, episode: Any, name: str) -> str: ...  # of a column, for messages
    def observations(self, episode: Any) -> list[str]: ...
    def observation(self, episode: Any, name: str) -> np.ndarray: ...  # [length, ...]
    def actions(self, episode: Any) -> np.ndarray: ...
    def rewards(self, episode: Any) -> np.ndarray: ...
    def has_rewards(self) -> bool: ...
    def instruction(self, episode: Any) -> str: ...
    def elsewhere(self, name: str) -> list[list[Part]]: ...  # where a field is that has another name here
    def close(self) -> None: ...


class Hdf5:
    """A file in robomimic's or LIBERO's layout."""

    def __init__(self, path: str) -> None:
        self.path, self.file = path, open_file(path, "r")
        if "data" not in self.file:
            raise UserMistake(f"{path}: it has no group data: wanted data/demo_0/obs/..., data/demo_0/actions, as robomimic "
                              "writes them")
        self.data = self.file["data"]
        names = [name for name in self.data if name.startswith("demo_") and name[5:].isdecimal()]
        self.episodes = [self.data[name] for name in sorted(names, key=lambda name: int(name[5:]))]
        if not self.episodes:
            raise UserMistake(f"{path}: data holds no demo_0")
        self.lengths = [len(self._dataset(demo, "actions")) for demo in self.episodes]
        for demo, length in zip(self.episodes, self.lengths, strict=True):
            if length == 0:
                raise UserMistake(f"{path}: {demo.name}/actions is empty")

    def close(self) -> None:
        self.file.close()

    def _dataset(self, demo: h5py.Group, name: str) -> h5py.Dataset:
        if name not in demo:
            raise UserMistake(f"{self.path}: {demo.name} has no {name}; it has {', '.join(sorted(demo))}")
        return demo[name]

    def _read(self, demo: h5py.Group, name: str) -> np.ndarray:
        dataset, length = self._dataset(demo, name), len(demo["actions"])
        if len(dataset.shape) == 0 or len(dataset) != length:
            raise UserMistake(f"{self.path}: {demo.name}/{name} has the shape {dataset.shape}: wanted {length} rows, as actions has")
        try:
            return dataset[()]
        except OSError as error:
            raise UserMistake(f"{self.path}: {demo.name}/{name}: {error}") from None

    def label(self, demo: h5py.Group, name: str) -> str:
        return f"{demo.name}/{name}" if name in ("obs", "actions") else f"{demo.name}/obs/{name}"

    def observations(self, demo: h5py.Group) -> list[str]:
        return list(demo.get("obs", {}))

    def observation(self, demo: h5py.Group, name: str) -> np.ndarray:
        return self._read(demo, f"obs/{name}")

    def actions(self, demo: h5py.Group) -> np.ndarray:
        return self._read(demo, "actions")

    def rewards(self, demo: h5py.Group) -> np.ndarray:
        return self._read(demo, "rewards")

    def has_rewards(self) -> bool:
        return all("rewards" in demo for demo in self.episodes)

    def instruction(self, demo: h5py.Group) -> str:
        if "instruction" in demo.attrs:
            return str(demo.attrs["instruction"])
        said = json.loads(self.data.attrs.get("problem_info", "{}")).get("language_instruction")
        if said is None:
            raise UserMistake(f"{self.path}: {demo.name} has no attribute instruction, nor has data one problem_info with a "
                              "language_instruction, as LIBERO's files have")
        return "".join(said).strip('"')

    def elsewhere(self, name: str) -> list[list[Part]]:
        return ELSEWHERE.get(name, [])


def open_reader(path: str) -> Reader:
    """A folder is a dataset of LeRobot, a file one of HDF5."""
    if Path(path).is_dir():
        from gipo.lerobot import LeRobot

        return LeRobot(path)
    return Hdf5(path)


class Source:
    """Demonstrations as a task wants them."""

    def __init__(self, reader: Reader, task: Record) -> None:
        self.reader, self.path, self.task = reader, reader.path, task
        self.options = {name: json.loads(value) for name, value in task["options"].items() if is_robot(task["env"])}

    def _episodes(self) -> Iterator[tuple[Any, int]]:
        return zip(self.reader.episodes, self.reader.lengths, strict=True)

    def _label(self, episode: Any, name: str) -> str:
        return f"{self.path}: {self.reader.label(episode, name)}"

    def actions(self) -> Iterator[np.ndarray]:
        dims = self.task["dims"]
        for episode, length in self._episodes():
            values, label = self.reader.actions(episode).reshape(length, -1), self._label(episode, "actions")
            if dims % values.shape[1] != 0:
                raise UserMistake(f"{label} has {values.shape[1]} numbers a step: wanted {dims}, or a part of {dims}, of which "
                                  f"{self.task['env']} takes several at once")
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise UserMistake(f"{label} holds a number that is not finite")
            if values.dtype.kind == "f" and self.options.get("action_bins"):
                values = self._choices(label, values)
            yield values.astype(np.float32)

    def _choices(self, label: str, actions: np.ndarray) -> np.ndarray:
        """The robot's actions as the tokens of their bins."""
        from gipo.robot_tasks import Bins

        if np.abs(actions).max() > 1.0001:
            raise UserMistake(f"{label} holds {actions.flat[np.abs(actions).argmax()]}: wanted numbers from -1 to 1")
        return Bins(self.options["action_bins"], self.options.get("statistics"), actions.shape[1]).choices(actions)

    def rewards(self) -> Iterator[np.ndarray]:
        for episode, _ in self._episodes():
            yield self.reader.rewards(episode).astype(np.float32)

    def field(self, field: Record) -> Iterator[np.ndarray]:
        name, (_, dtype), shape = field["name"], TENSORS[field["dtype"]], tuple(field["shape"])
        for episode, length in self._episodes():
            values, label = self._values(episode, name, shape, length), self._label(episode, name)
            if values.dtype.kind == "f" and np.dtype(dtype).kind != "f":
                raise UserMistake(f"{label} is of {values.dtype}: wanted {field['dtype']}")
            if values.shape != (length, *shape) and values.size != length * int(np.prod(shape)):
                raise UserMistake(f"{label} has the shape {values.shape}: wanted {(length, *shape)}")
            yield np.ascontiguousarray(values, dtype).reshape(length, *shape)

    def _text(self, episode: Any, most: int) -> np.ndarray:
        """The instruction as the task gives it: bytes with zeros behind them, or tokens with -1 behind."""
        text, what = self.reader.instruction(episode), "tokens" if self.options.get("instruction_tokens") else "bytes"
        numbers = Tokeniser(self.options.get("tokeniser", BYTES)).prompt(text) if what == "tokens" else list(text.encode())
        if len(numbers) > most:
            raise UserMistake(f"{self._label(episode, 'instruction')}, {text!r}, has {len(numbers)} {what}: wanted at most {most} "
                              f"(env.options.instruction_{what})")
        return np.array(numbers + [-1 if what == "tokens" else 0] * (most - len(numbers)))

    def _values(self, episode: Any, name: str, shape: tuple[int, ...], length: int) -> np.ndarray:
        there, read = self.reader.observations(episode), self.reader.observation
        if name in there:
            return resized(read(episode, name), shape)
        if name == "instruction":
            return np.tile(self._text(episode, shape[0]), (length, 1))
        for parts in self.reader.elsewhere(name):
            if all(part in there for part, _ in parts):
                found = [way(read(episode, part)) for part, way in parts]
                return resized(found[0], shape) if len(found) == 1 else np.concatenate(found, 1)
        raise UserMistake(f"{self._label(episode, 'obs')} has no {name}, which {self.task['env']} gives; it has "
                          f"{', '.join(sorted(there)) or 'nothing'}")

    def optional(self, field: Record) -> bool:
        return field["optional"] and field["name"] not in self.reader.observations(self.reader.episodes[0])


def resized(images: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Images of another size, scaled; anything else as it is."""
    if len(shape) != 3 or images.ndim != 4 or images.dtype != np.uint8 or images.shape[1:] == shape or shape[2] != images.shape[3]:
        return images
    from PIL import Image

    size = (shape[1], shape[0])
    return np.stack([np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS)) for image in images])


def write_tensors(out: BinaryIO, tensors: Sequence[tuple[str, str, tuple[int, ...], Callable[[], Iterator[np.ndarray]]]]) -> None:
    """A safetensors file, each tensor from an iterator of parts of it; wide numbers first, so that all are aligned."""
    width = {"I64": 8, "F64": 8, "F32": 4, "U8": 1}
    tensors = sorted(tensors, key=lambda tensor: -width[tensor[1]])
    header, at = {"__metadata__": {"gipo": "demonstrations"}}, 0
    for name, kind, shape, _ in tensors:
        end = at + width[kind] * int(np.prod(shape))
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    out.write(struct.pack("<Q", len(text)) + text)
    for _, _, _, parts in tensors:
        for part in parts():
            out.write(part.tobytes())


def convert(path: str, target: str, task: Record) -> None:
    """The file that the program reads, of demonstrations in another layout."""
    reader = open_reader(path)
    try:
        source = Source(reader, task)
        steps, width = sum(reader.lengths), next(source.actions()).shape[1]
        ends = np.cumsum(reader.lengths).astype(np.int64)
        tensors = [("episode_ends", "I64", ends.shape, lambda: iter([ends])),
                   ("action", "F32", (steps, width), source.actions)]  # fmt: skip
        if reader.has_rewards():
            tensors.append(("reward", "F32", (steps,), source.rewards))
        for field in task["fields"]:
            if not source.optional(field):
                kind = TENSORS[field["dtype"]][0]
                tensors.append((f"obs/{field['name']}", kind, (steps, *field["shape"]), functools.partial(source.field, field)))
        with open(target, "wb") as out:
            write_tensors(out, tensors)
    finally:
        reader.close()


def option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text} is not accepted: wanted NAME=VALUE")
    try:
        return name.removeprefix("env.options."), json.loads(value)
    except json.JSONDecodeError:
        return name.removeprefix("env.options."), value


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gipo.demonstrations", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="play Meta-World's scripts before a camera")
    record.add_argument("env", help="metaworld-pixels:TASK or metaworld-pixels:TASK+TASK+...")
    record.add_argument("file", help="HDF5 file to write")
    record.add_argument("--episodes", type=int, default=50, help="successful episodes of each task; default 50")
    record.add_argument("--seed", type=int, default=0)
    record.add_argument("--noise", type=float, default=0.0, help="standard deviation of noise on actions; the file keeps them without it")
    record.add_argument("--workers", type=int, default=os.cpu_count(), help="processes; default: as many as there are cores")
    record.add_argument("--set", dest="options", type=option, action="append", default=[], help="option of the task, as size=84")
    converting = commands.add_parser("convert", help="what `gipo clone` starts; the task comes as JSON on stdin")
    converting.add_argument("source")
    converting.add_argument("target")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    arguments = parse(words)
    try:
        if arguments.command == "convert":
            convert(arguments.source, arguments.target, json.load(sys.stdin))
            return 0
        if not arguments.env.startswith("metaworld-pixels:"):
            raise UserMistake(f"{arguments.env} is not accepted: the scripts are those of metaworld-pixels:TASK; "
                              "gipo.record_demonstrations records any environment with any policy")
        if arguments.episodes < 1 or arguments.workers < 1 or arguments.noise < 0:
            raise UserMistake("wanted --episodes and --workers of 1 or more, and --noise of 0 or more")
        done = record_robots(arguments.env, arguments.file, dict(arguments.options), episodes=arguments.episodes, seed=arguments.seed,
                             noise=arguments.noise, workers=arguments.workers)  # fmt: skip
        print(f"{done['file']}: {done['episodes']} episodes, {done['steps']} steps")
        return 0
    except KeyboardInterrupt:
        return 130
    except UserMistake as error:
        code, text = 2, str(error)
    except (RunFailed, OSError) as error:
        code, text = 1, str(error)
    print(f"gipo: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
