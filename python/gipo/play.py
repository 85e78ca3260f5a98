"""Shows a run's policy in a window, episode after episode: what `gipo play RUN` starts."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gipo.runs import UserMistake
from gipo.video import add_common, reported

if TYPE_CHECKING:
    from gipo.scene import Moment, Scene

KEYS = "space: pause, right arrow: one step, n: next episode, + and -: speed, q: quit"
SPEEDS = (1 / 16, 16)
LEAST_PICTURES = 0.2  # seconds after which a picture is drawn even where drawing cannot keep up
REST = 1.0  # seconds at the end of an episode


class Window:
    """The window, its keys and its clock."""

    def __init__(self, scene: Scene, fps: float | None) -> None:
        import pygame

        self._pygame = pygame
        self._scene = scene
        self._screen = pygame.display.set_mode(scene.size)
        self._rate = fps or float(scene.rate)
        self._speed, self._paused, self._single = 1.0, False, False
        self._due = self._shown_at = time.monotonic()
        self.skip = self.quit = False  # go to the next episode; leave

    def show(self, moment: Moment) -> None:
        """Shows a state for as long as it lasts, or until a key ends a pause. What is late is not drawn."""
        self._due = max(self._due, time.monotonic() - LEAST_PICTURES)
        late = time.monotonic() > self._due and time.monotonic() - self._shown_at < LEAST_PICTURES
        if not late or self._paused or moment.ended:
            self._draw(moment)
        self._due += 1 / (self._rate * self._speed) + (REST if moment.ended else 0)
        self._single = False
        while not self.quit and not self.skip and not self._single:
            if self._hear():
                self._draw(moment)
            if not self._paused and time.monotonic() >= self._due:
                return
            if self._paused:
                self._due = time.monotonic()
            time.sleep(min(0.02, max(0.001, self._due - time.monotonic())))

    def _draw(self, moment: Moment) -> None:
        from gipo.scene import caption

        state = ", ".join(["paused"] * self._paused + [f"speed x{self._speed:g}"] * (self._speed != 1))
        self._pygame.display.set_caption(f"gipo play {self._scene.id} {state} - {KEYS}")
        image = caption(self._scene.picture(), moment, state)
        self._screen.blit(self._pygame.image.frombuffer(image.tobytes(), image.size, "RGB"), (0, 0))
        self._pygame.display.flip()
        self._shown_at = time.monotonic()

    def _hear(self) -> bool:
        """Carries out what was typed; whether the text in the corner changes."""
        pygame, changed = self._pygame, False
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                self.quit = True
            if event.type == pygame.WINDOWEXPOSED:
                changed = True
            if event.type != pygame.KEYDOWN:
                continue
            if event.key in (pygame.K_q, pygame.K_ESCAPE):
                self.quit = True
            elif event.key == pygame.K_n:
                self.skip = True
            elif event.key == pygame.K_SPACE:
                self._paused, changed = not self._paused, True
            elif event.key == pygame.K_RIGHT:
                self._paused = self._single = changed = True
            elif event.unicode in ("+", "-", "="):  # = is + without the shift key
                factor = 0.5 if event.unicode == "-" else 2.0
                self._speed, changed = min(max(self._speed * factor, SPEEDS[0]), SPEEDS[1]), True
        return changed


def no_display(why: str) -> str:
    return f"no display to open a window on ({why}): draw into a file with gipo eval RUN --video FILE.mp4"


def open_display() -> None:
    if sys.platform == "linux":
        wayland, x11 = os.environ.get("WAYLAND_DISPLAY"), os.environ.get("DISPLAY")
        if not wayland and not x11:
            raise UserMistake(no_display("DISPLAY and WAYLAND_DISPLAY are not set"))
        # By name: where neither can be opened, pygame would show its window nowhere.
        os.environ.setdefault("SDL_VIDEODRIVER", ",".join(["wayland"] * bool(wayland) + ["x11"] * bool(x11)))
    # Its own OpenGL and MuJoCo's do not go together.
    os.environ.setdefault("SDL_FRAMEBUFFER_ACCELERATION", "0")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    import pygame

    try:
        pygame.display.init()
    except pygame.error as error:
        raise UserMistake(no_display(str(error))) from None


def show_episodes(scene: Scene, window: Window, first: int, seed: int) -> None:
    episode = first
    while not window.quit:
        window.skip = False
        for moment in scene.play(episode, seed):
            window.show(moment)
            if window.quit or window.skip:
                break
        else:
            print(f"episode {episode}: return {moment.total:.2f}, {moment.step} steps", flush=True)
        episode += 1


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gipo play")
    add_common(parser)
    parser.add_argument("--episode", default="0")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    arguments = parse(words)

    def work() -> int:
        if not arguments.episode.isdecimal():
            raise UserMistake(f"episode = {arguments.episode} is not accepted: wanted a number from 0")
        open_display()
        from gipo.scene import open_scene, parse_size

        scene = open_scene("gipo.play", words, arguments.run, arguments.policy, arguments.sampled, parse_size(arguments.size))
        window = Window(scene, arguments.fps)
        print(KEYS, flush=True)
        show_episodes(scene, window, int(arguments.episode), arguments.seed)
        scene.close()
        return 0

    return reported(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
