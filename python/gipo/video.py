"""Draws episodes of a run's policy into an mp4 file: what `gipo eval RUN --video FILE` and `run.video()` start.

The episodes are those that an evaluation plays. It comes first, at the speed of the program, and says which is the best;
then the chosen one is played again and drawn.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from gipo.runs import Record, RunFailed, UserMistake

if TYPE_CHECKING:
    from PIL.Image import Image

    from gipo.scene import Scene

EPISODES = 10  # played unless told
MOST_FPS = 60  # a task with more steps in a second has only some of them drawn
WORDS = ("best", "worst", "all")


@dataclass(frozen=True)
class Video:
    """A drawn episode: `path` is the mp4 file; a notebook shows it."""

    path: Path
    episodes: list[Record]  # of those that were drawn: episode, return, length
    frames: int
    fps: float
    width: int
    height: int

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.path.read_bytes()).decode()
        return (f'<video controls autoplay muted loop width="{self.width}" style="max-width: 100%" '
                f'src="data:video/mp4;base64,{data}"></video>')


def make_video(folder: Path, path: Path, python: str, options: dict[str, Any]) -> Video:
    """Draws in a process of its own: what draws MuJoCo's pictures cannot be exchanged in one, nor be used twice."""
    words = [python, "-m", "gipo.video", str(folder), "--video", str(path), "--json"]
    for name, value in options.items():
        if value is not None and value is not False:
            words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    said = done.stderr.strip()
    if done.returncode != 0:
        from gipo import _core

        raise (_core.ConfigError if done.returncode == 2 else _core.RunError)(said.removeprefix("gipo: "))
    if said:
        print(said, file=sys.stderr)
    found = json.loads(done.stdout)
    return Video(path, found["drawn"], found["frames"], found["fps"], found["width"], found["height"])


def find_ffmpeg(purpose: str = "write") -> str:
    """That of the package imageio-ffmpeg, else the system's."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        pass
    found = shutil.which("ffmpeg")
    if found is None:
        raise UserMistake(f"no ffmpeg to {purpose} the video with: pip install 'gipo[video]', or the Debian package ffmpeg")
    return found


class Encoder:
    """Writes pictures as H.264 that any browser plays. The file appears when it is whole."""

    def __init__(self, path: Path, size: tuple[int, int], fps: Fraction) -> None:
        self._path, self._part = path, path.with_name(f".{path.name}.{os.getpid()}.part")
        self._said = tempfile.TemporaryFile()
        self.frames = 0
        self._process = subprocess.Popen(
            [find_ffmpeg(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24",
             "-s", f"{size[0]}x{size[1]}", "-r", str(fps), "-i", "-", "-c:v", "libx264", "-crf", "20",
             "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(self._part)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._said,
            process_group=0,  # Ctrl-C is for this process, which then ends that one
        )

    def write(self, image: Image) -> None:
        try:
            self._process.stdin.write(image.tobytes())
        except BrokenPipeError:
            self._finish()
        self.frames += 1

    def _finish(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._process.wait() != 0:
            self._said.seek(0)
            said = self._said.read().decode(errors="replace").strip()
            raise RunFailed(f"{self._path}: the encoder failed: {said or f'exit code {self._process.returncode}'}")

    def __enter__(self) -> Encoder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._finish()
                os.replace(self._part, self._path)
        finally:
            self._process.kill()
            self._process.wait()
            self._part.unlink(missing_ok=True)


def check_path(path: Path) -> None:
    if path.suffix.lower() != ".mp4":
        raise UserMistake(f"video = {path} is not accepted: wanted a name that ends in .mp4")
    if not path.parent.is_dir():
        raise UserMistake(f"video = {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise UserMistake(f"video = {path}: that is a folder")
    if not os.access(path.parent, os.W_OK):
        raise UserMistake(f"video = {path}: the folder {path.parent} cannot be written to")


def check_numbers(arguments: argparse.Namespace) -> None:
    """As the program's own command line does; here for Run.video."""
    for name, least, most in (("episodes", 1, 1_000_000), ("seed", 0, 2**64 - 1), ("fps", 0.1, 1000)):
        value = getattr(arguments, name)
        if value is not None and not least <= value <= most:
            raise UserMistake(f"{name} = {value} is not accepted: wanted {least} to {most}")


def check_choice(which: str, episodes: int) -> None:
    if which in WORDS or which.isdecimal() and int(which) < episodes:
        return
    raise UserMistake(f"episode = {which} is not accepted: wanted {', '.join(WORDS)} or a number from 0 to {episodes - 1}, "
                      f"as {episodes} episodes are played")


def choose(which: str, returns: Sequence[float]) -> list[int]:
    """The numbers of the episodes to draw; of equals the first."""
    if which == "all":
        return list(range(len(returns)))
    if which in WORDS:
        return [returns.index((max if which == "best" else min)(returns))]
    return [int(which)]


def pace(rate: Fraction, fps: float | None) -> tuple[Fraction, int]:
    """Frames in a second, and of how many steps one is drawn. Real time unless fps is given, which draws every step."""
    if fps is not None:
        return Fraction(fps).limit_denominator(1000), 1
    every = max(1, -(-rate // MOST_FPS))
    return rate / every, int(every)


def draw(scene: Scene, arguments: argparse.Namespace, say: Callable[[str], None]) -> Record:
    """Evaluates, draws, and says what came of it."""
    from gipo.scene import caption

    say(f"playing {arguments.episodes} episodes")
    with interruptible():
        played = scene.episodes.evaluate(arguments.episodes, arguments.seed, not arguments.sampled)
    returns = [episode_return for episode_return, _, _ in played]
    fps, every = pace(scene.rate, arguments.fps)
    drawn = []
    with postponed() as check, Encoder(arguments.video, scene.size, fps) as encoder:
        for number in choose(arguments.episode, returns):
            _, length, seed = played[number]
            for moment in scene.play(number, seed):
                check()
                if moment.step % every == 0 or moment.ended:
                    encoder.write(caption(scene.picture(), moment))
                    say(f"drawing episode {number}: step {moment.step} of {length}")
            drawn.append({"episode": number, "return": moment.total, "length": moment.step})
    return {
        "run_dir": arguments.run, "env": scene.id, "update": scene.policy.version, "greedy": not arguments.sampled,
        "seed": arguments.seed, "video": str(arguments.video), "frames": encoder.frames, "fps": float(fps),
        "width": scene.size[0], "height": scene.size[1], "drawn": drawn, "returns": returns,
    }


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Signals end the process at once, also inside compiled code."""
    with handled(signal.SIG_DFL):
        yield


def warn_of_others(found: Record) -> None:
    """Where a task does not repeat itself, what is drawn is another episode than the one that was evaluated."""
    for shown in found["drawn"]:
        evaluated = found["returns"][shown["episode"]]
        if abs(shown["return"] - evaluated) > 1e-6 * max(1.0, abs(evaluated)):
            print(f"gipo: warning: episode {shown['episode']} had a return of {evaluated:.2f} when it was evaluated and "
                  f"{shown['return']:.2f} when it was drawn: the task does not repeat an episode of the same seed",
                  file=sys.stderr)


def in_words(found: Record) -> str:
    shown = found["drawn"]
    which = f"episode {shown[0]['episode']} of {len(found['returns'])}" if len(shown) == 1 else f"{len(shown)} episodes"
    mean = sum(found["returns"]) / len(found["returns"])
    returns = ", ".join(f"{one['return']:.2f}" for one in shown[:10]) + ", ..." * (len(shown) > 10)
    return (f"{found['video']}: {which} of {found['env']}, return {returns} (mean of all {mean:.2f}); "
            f"{found['frames']} frames of {found['width']}x{found['height']}, {found['fps']:.4g} a second")


def add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run")
    parser.add_argument("--policy", default="last")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sampled", action="store_true")
    parser.add_argument("--size")
    parser.add_argument("--fps", type=float)


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gipo eval")
    add_common(parser)
    parser.add_argument("--video", type=Path, required=True)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--episode", default="0")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def sayer(quiet: bool) -> Callable[[str], None]:
    """A line that refreshes, on a terminal alone."""
    if quiet or not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)


ENDINGS = (signal.SIGINT, signal.SIGTERM)
SAME_REQUEST = 1.0  # seconds: Ctrl-C also ends the program above, and with it comes another signal


class Interruption:
    """A handler of signals that raises KeyboardInterrupt: at the first, or where told later, but not twice in a second.

    An exception that is raised out of a handler may come anywhere: between two lines that belong together, or inside a
    function that compiled code called, where it is lost. What must be undone whatever happens takes `later`, and asks with
    `check` where it may be interrupted. Somebody who asks again a second later is not kept waiting.
    """

    def __init__(self, later: bool = False) -> None:
        self._later, self._asked = later, None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now, before = time.monotonic(), self._asked
        if before is not None and now - before < SAME_REQUEST:
            return
        self._asked = now
        if before is not None or not self._later:
            raise KeyboardInterrupt

    def check(self) -> None:
        if self._asked is not None:
            raise KeyboardInterrupt


@contextlib.contextmanager
def handled(handler: Any) -> Iterator[None]:
    before = {ending: signal.signal(ending, handler) for ending in ENDINGS}
    try:
        yield
    finally:
        for ending, former in before.items():
            signal.signal(ending, former)


@contextlib.contextmanager
def postponed() -> Iterator[Callable[[], None]]:
    """Signals are heard where the function that this gives is called, and at the end."""
    interruption = Interruption(later=True)
    with handled(interruption):
        yield interruption.check
    interruption.check()


def reported(work: Callable[[], int]) -> int:
    """The exit code of a command; what the user can mend is said in a line."""
    interruption = Interruption()
    for ending in ENDINGS:  # what was begun is removed
        signal.signal(ending, interruption)
    try:
        import gipo

        gipo.Policy  # noqa: B018 - says what to do where the compiled module is not there
        return work()
    except UserMistake as error:
        code, text = 2, error
    except ImportError as error:
        code, text = 2, f"{error}; all that drawing needs: pip install 'gipo[video]'"
    except (RunFailed, OSError) as error:
        code, text = 1, error
    except KeyboardInterrupt:
        return 130
    except gipo.ConfigError as error:
        code, text = 2, error
    except gipo.RunError as error:
        code, text = 1, error
    print(f"gipo: {text}", file=sys.stderr)
    return code


def main(words: list[str]) -> int:
    arguments = parse(words)

    def work() -> int:
        check_path(arguments.video)
        check_numbers(arguments)
        check_choice(arguments.episode, arguments.episodes)
        find_ffmpeg()
        from gipo.scene import open_scene, parse_size

        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        with contextlib.redirect_stdout(sys.stderr):  # what an environment prints
            scene = open_scene("gipo.video", words, arguments.run, arguments.policy, arguments.sampled,
                               parse_size(arguments.size))
            say = sayer(arguments.json)
            try:
                found = draw(scene, arguments, say)
            finally:
                say("")
                scene.close()
        warn_of_others(found)
        print(json.dumps(found, indent=2) if arguments.json else in_words(found))
        return 0

    return reported(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
