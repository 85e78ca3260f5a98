"""A run's task as it can be drawn, played by the run's policy.

A task of gipo is drawn by Gymnasium's of the same id: it gets the options and the start of our episode, and from there
it does the same. A task of a Python package is made by the function that its worker calls.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from gipo import _core, worker
from gipo.policy import Policy
from gipo.runs import UserMistake

SIZES = (64, 4096)  # of a picture's sides, in pixels
READABLE = 240  # a task's own picture is enlarged to this, by a whole number, so that the text fits
UNKNOWN_RATE = 30  # steps in a second of a task that does not say
GL_TRIED = "GIPO_GL_TRIED"  # what was wrong with EGL, told to the process that tries OSMesa
GL_CODE = re.compile(r"/OpenGL/|/mujoco/(egl|osmesa|glfw|gl_context|rendering)|/mujoco_rendering")
NEEDED = "pip install 'gipo[video]'"


@dataclass(frozen=True)
class Moment:
    """One state of an episode, and the action that the policy takes there; at the end why it ended."""

    episode: int
    step: int
    total: float  # the return so far
    action: Any = None
    ended: str = ""
    instruction: str = ""  # where the task has one


def parse_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text)
    size = (int(found[1]), int(found[2])) if found else (0, 0)
    if not all(SIZES[0] <= side <= SIZES[1] for side in size):
        raise UserMistake(f"size = {text} is not accepted: wanted WIDTHxHEIGHT, each {SIZES[0]} to {SIZES[1]}")
    return size


class Scene:
    """The environment, its policy and its picture. One in a process: MuJoCo draws with the first one's context."""

    def __init__(
        self, run: str, policy: str = "last", sampled: bool = False, size: tuple[int, int] | None = None
    ) -> None:
        self.episodes, self.policy = _core.Episodes(run, policy), Policy(run, policy)
        self.id, self.sampled, self._size = self.policy.env, sampled, size
        setup = json.loads(self.episodes.setup)
        self._info_mask = setup["mask"] == "info"
        setup["options"] = json.loads(setup["options"])
        self._native = ":" not in setup["id"]
        if self._native:
            setup["id"] = f"gymnasium:{setup['id']}"
        self.size: tuple[int, int] | None = None
        with without_display():
            self.env = make_drawn(setup, self.id)
            prepare_mujoco(self.env, size, setup["options"])
            next(self.play(0, 0))
            self.size = self.picture().size

    @property
    def rate(self) -> Fraction:
        """Steps of the task in a second of its own time."""
        rate = (getattr(self.env, "metadata", None) or {}).get("render_fps") or UNKNOWN_RATE
        return Fraction(float(rate)).limit_denominator(1000)

    def play(self, episode: int, seed: int) -> Iterator[Moment]:
        """The states of this episode of an evaluation with that seed, first to last."""
        observation, info = self._begin(self.episodes.start(seed, episode))
        self.policy._core.begin_episode(seed, episode)
        state = self.policy.first_state() if self.policy.state_size else None
        step, total, limit, instruction = 0, 0.0, self.episodes.time_limit, str(info.get("instruction", ""))
        while True:
            mask = info.get("action_mask") if self._info_mask else None
            action = self.policy.act(observation, deterministic=not self.sampled, mask=mask, state=state)
            yield Moment(episode, step, total, action, instruction=instruction)
            with users_code(self.id, "step"):
                observation, reward, terminated, truncated, info = self.env.step(action)
            step, total = step + 1, total + float(reward)
            if terminated or truncated or step == limit:
                yield Moment(episode, step, total, None, "terminated" if terminated else "time limit", instruction)
                return

    def _begin(self, start: Any) -> tuple[Any, dict[str, Any]]:
        with users_code(self.id, "reset"):
            if not self._native:
                return self.env.reset(seed=start)
            self.env.reset(seed=0)
        return set_start(self.env.unwrapped, start), {}

    def picture(self) -> Image.Image:
        """What the environment draws now, in the size that was asked for; even sides, which video wants."""
        with users_code(self.id, "render"):
            frame = self.env.render()
        image = picture_of(frame, self.id)
        width, height = image.size
        if self._size:
            scale = min(self._size[0] / width, self._size[1] / height)
        else:
            scale = max(1, -(-READABLE // min(width, height)))
        if scale != 1:
            sides = (max(1, round(width * scale)), max(1, round(height * scale)))
            image = image.resize(sides, Image.Resampling.NEAREST if scale == int(scale) else Image.Resampling.BICUBIC)
        wanted = self.size or tuple(side + side % 2 for side in self._size or image.size)
        if image.size != wanted:
            whole = Image.new("RGB", wanted)
            whole.paste(image, ((wanted[0] - image.width) // 2, (wanted[1] - image.height) // 2))
            image = whole
        return image

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()


def make_drawn(setup: dict[str, Any], task: str) -> Any:
    """The environment as its worker makes it, and with render_mode = "rgb_array"."""
    if setup["id"].startswith("envpool:"):
        raise UserMistake(f"{task}: EnvPool's environments cannot be drawn; where another package has the task, train it "
                          "as gymnasium:ID")
    options = setup["options"]
    try:
        with as_mistakes(task):
            return worker.env_maker({**setup, "options": {**options, "render_mode": "rgb_array"}})(0)
    except worker.UserCode as error:
        if "render_mode" not in str(error.__cause__):
            raise understood(task, str(error), error.__cause__) from error.__cause__
    with as_mistakes(task):  # it may draw without being told
        env = worker.env_maker(setup)(0)
    if getattr(env, "render_mode", None) != "rgb_array":
        raise UserMistake(f'{task}: it cannot be drawn: it takes no option render_mode = "rgb_array"')
    return env


def prepare_mujoco(env: Any, size: tuple[int, int] | None, options: dict[str, Any]) -> None:
    """Draws in the size that is wanted. Simpler shadows and edges look the same, in a third of a processor's time.

    The camera follows the robot where the model has one for that: Gymnasium 1.4 has it stand still.
    """
    base = getattr(env, "unwrapped", env)
    renderer, model = getattr(base, "mujoco_renderer", None), getattr(base, "model", None)
    if renderer is None or not hasattr(model, "vis"):
        return
    model.vis.quality.offsamples, model.vis.quality.shadowsize = 0, 1024
    if not {"camera_id", "camera_name", "default_camera_config"} & options.keys():
        import mujoco

        track = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
        renderer.camera_id = track if track >= 0 else renderer.camera_id
    if size:
        renderer.width, renderer.height = size
        model.vis.global_.offwidth, model.vis.global_.offheight = size


def set_start(base: Any, physics: np.ndarray) -> Any:
    """Moves Gymnasium's task to the start of an episode of ours; the observation there."""
    if hasattr(base, "set_state"):  # MuJoCo: time, positions, velocities and more
        import mujoco

        mujoco.mj_resetData(base.model, base.data)
        positions, velocities = physics[1 : 1 + base.model.nq], physics[1 + base.model.nq :][: base.model.nv]
        base.set_state(positions, velocities)
    else:
        base.state = np.array(physics)
    for name in ("_get_obs", "_get_ob"):
        if hasattr(base, name):
            return getattr(base, name)()
    return np.array(base.state, dtype=np.float32)


def picture_of(frame: Any, task: str) -> Image.Image:
    frame = frame[-1] if isinstance(frame, list) and frame else frame
    array = np.asarray(frame)
    if array.ndim != 3 or array.shape[2] not in (3, 4) or array.dtype != np.uint8:
        sort = f"{array.dtype} of shape {array.shape}" if isinstance(frame, np.ndarray) else f"{frame!r:.100}"
        raise UserMistake(f"{task}: it cannot be drawn: render() returned {sort}, wanted uint8 of shape (height, width, 3)")
    return Image.fromarray(np.ascontiguousarray(array[:, :, :3]))


# What goes wrong, in one line.


@contextlib.contextmanager
def as_mistakes(task: str) -> Iterator[None]:
    try:
        yield
    except worker.Mistake as mistake:
        raise UserMistake(f"{task}: {mistake}") from None


@contextlib.contextmanager
def users_code(task: str, called: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise understood(task, called, error) from error


class NoGl(Exception):
    """MuJoCo could not draw; the text says why."""


def understood(task: str, called: str, error: BaseException) -> Exception:
    """What an exception in the environment's code means."""
    inner: BaseException | None = error
    while inner is not None:
        files = [frame.filename for frame in traceback.extract_tb(inner.__traceback__)]
        if any(GL_CODE.search(file) for file in files):
            return NoGl(re.split(r"\. |\n", str(inner).strip())[0] or type(inner).__name__)
        inner = inner.__cause__ or inner.__context__
    if type(error).__name__ == "DependencyNotInstalled":  # Gymnasium's
        return UserMistake(f"{task}: {error}; all that drawing needs: {NEEDED}")
    return UserMistake(f"{task}: {called} raised {type(error).__name__}:\n{worker.users_traceback(error)}")


@contextlib.contextmanager
def without_display() -> Iterator[None]:
    """Has MuJoCo draw with EGL or OSMesa. Workers, which draw nothing, shall not need either."""
    names = ("MUJOCO_GL", "PYOPENGL_PLATFORM")  # mujoco sets the other
    before = {name: os.environ.get(name) for name in names}
    os.environ["MUJOCO_GL"] = before["MUJOCO_GL"] or ("osmesa" if GL_TRIED in os.environ else "egl")
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def open_scene(module: str, words: list[str], *scene: Any) -> Scene:
    """A scene that draws without a display. Where EGL is of no use, this process starts again with OSMesa.

    What a process has loaded of either it cannot exchange for the other.
    """
    os.environ.setdefault("GIPO_PYTHON", sys.executable)  # for workers
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        return Scene(*scene)
    except NoGl as error:
        chosen, before = os.environ.get("MUJOCO_GL"), os.environ.get(GL_TRIED)
        if not chosen and before is None:
            os.environ[GL_TRIED] = str(error)
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, "-m", module, *words])
        tried = f"MUJOCO_GL = {chosen}: {error}" if chosen else f"EGL: {before}; OSMesa: {error}"
        sys.unraisablehook = lambda _: None  # of the context that there is not
        raise UserMistake(f"MuJoCo cannot draw here ({tried}): install the Debian packages libegl1 and libgl1-mesa-dri, or "
                          "libosmesa6") from None


# The text in the corner.


def caption(image: Image.Image, moment: Moment, more: str = "") -> Image.Image:
    """Writes episode, step, return and action into the corner, and the instruction below, on a darkened ground."""
    font = ImageFont.load_default(size=max(11, min(image.size) // 28))
    room = image.width * 0.6
    lines = [f"episode {moment.episode}  step {moment.step}", f"return {moment.total:.2f}"]
    lines += [moment.ended] if moment.ended else wrap("action", action_words(moment.action), font, room)
    write(image, lines + [more] * bool(more), font, below=False)
    if words := moment.instruction.split():
        write(image, wrap(words[0], words[1:], font, image.width - font.size), font, below=True)
    return image


def write(image: Image.Image, lines: list[str], font: Any, below: bool) -> None:
    draw, text, pad = ImageDraw.Draw(image), "\n".join(lines), font.size // 2
    _, _, right, bottom = (int(side) for side in draw.multiline_textbbox((pad, pad), text, font=font))
    top = max(0, image.height - bottom - pad) if below else 0
    box = (0, top, min(image.width, right + pad), min(image.height, top + bottom + pad))
    image.paste(image.crop(box).point(lambda value: value // 3), box)
    draw.multiline_text((pad, top + pad), text, font=font, fill=(255, 255, 255))


def action_words(action: Any) -> list[str]:
    if isinstance(action, dict):
        return [word for key, part in action.items() for word in [f"{key}:", *action_words(part)]]
    if isinstance(action, tuple):
        return [word for part in action for word in action_words(part)]
    values = np.asarray(action)
    return [f"{value:+.2f}" if values.dtype.kind == "f" else str(int(value)) for value in values.ravel()]


def wrap(name: str, words: list[str], font: Any, room: float) -> list[str]:
    """Lines that fit, six at most."""
    lines = [name]
    for word in words:
        longer = f"{lines[-1]} {word}"
        if font.getlength(longer) <= room or lines[-1] == name:
            lines[-1] = longer
        elif len(lines) == 6:
            lines[-1] += " ..."
            break
        else:
            lines.append(word)
    return lines
