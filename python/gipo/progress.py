"""Shows how several runs get on: one line that refreshes on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import html
import math
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from gipo.runs import Run

PLAIN_SECONDS = 10.0


def in_time(seconds: float) -> str:
    whole = math.ceil(max(0.0, seconds))
    return f"{whole}s" if whole < 60 else f"{whole // 60}m{whole % 60:02}s"


def in_words(value: float | None) -> str:
    """Three significant digits, all of a larger whole number; "-" where there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) < 1e-4:
        return f"{value:.2e}" if value else "0"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


class ProgressLine:
    """Overall percent, the runs under way with their latest return, and the time left."""

    def __init__(self, total: int, stream: TextIO = sys.stderr) -> None:
        self._total = total
        self._stream = stream
        self._terminal = stream.isatty()
        self._start = self._shown_at = time.monotonic()
        self._open = False  # a refreshed line stands on the screen

    def tick(self, running: Sequence[Run], done: int) -> None:
        now = time.monotonic()
        if not running or (not self._terminal and now - self._shown_at < PLAIN_SECONDS):
            return
        self._shown_at = now
        fraction = (done + sum(run.fraction for run in running)) / self._total
        line = f"{100 * fraction:3.0f}%  {done}/{self._total} runs"
        for run in running:
            line += f"  {run.spec.name} {100 * run.fraction:.0f}% return {in_words(run.episode_return)}"
        if fraction >= 0.01:  # before, the warm-up is most of the time
            line += f"  ETA {in_time((now - self._start) * (1 - fraction) / fraction)}"
        if self._terminal:
            # A line that wraps could not be refreshed in place.
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{line[:width]}\x1b[K", end="", file=self._stream, flush=True)
            self._open = True
        else:
            print(line, file=self._stream, flush=True)

    def done(self, run: Run) -> None:
        """One line that stays for each run."""
        s = run.summary
        self.close()
        print(
            f"{run.spec.name} {s['ended']}: training return {in_words(s['final_return']['mean'])}, "
            f"greedy {in_words(s['eval_return']['mean'])}, {s['env_steps']} env steps, {in_time(s['seconds'])}",
            file=self._stream, flush=True,
        )

    def close(self) -> None:
        """Clears the refreshed line; whoever prints next begins on an empty one."""
        if self._open:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
        self._open = False


class TrainingLine:
    """A run that trains in this process: a line that refreshes on a terminal; plain ones elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._name = ""
        self._width = 0  # of the refreshed line that stands there
        # Where updates began, as far as it was seen: the warm-up before, and what a run had made before it was resumed,
        # say nothing of the time that an update takes.
        self._first: dict[str, float] | None = None
        self.interval = 0.2 if self._terminal else 5.0  # seconds

    def start(self, name: str, opening: str) -> None:
        self._name = name
        print(opening, file=self._stream, flush=True)

    def show(self, figures: dict[str, float]) -> None:
        line = self._text(figures)
        if not self._terminal:
            print(line, file=self._stream, flush=True)
            return
        line = line[: shutil.get_terminal_size().columns - 1]  # one that wraps could not be refreshed in place
        print("\r" + line.ljust(self._width), end="", file=self._stream, flush=True)
        self._width = len(line)

    def _text(self, figures: dict[str, float]) -> str:
        if self._first is None or figures["update"] <= self._first["update"]:
            self._first = dict(figures)
        if "warmup" in figures:
            return (
                f"{self._name} warm-up: {figures['env_steps']} of {figures['warmup']} env steps  "
                f"{figures['env_steps'] / max(figures['seconds'], 1e-9):.0f} env steps/s"
            )
        since = {name: figures[name] - self._first[name] for name in ("update", "env_steps", "seconds")}
        known = since["update"] > 0 and since["seconds"] > 0

        def rate(name: str) -> str:
            return f"{since[name] / since['seconds']:.0f}" if known else "-"

        left = figures["updates"] - figures["update"]
        eta = in_time(since["seconds"] / since["update"] * left) if known else "-"
        return (
            f"{self._name} {100 * figures['update'] / figures['updates']:3.0f}%  {rate('env_steps')} env steps/s  "
            f"{rate('update')} updates/s  return {in_words(figures['return_mean'])}  gap {figures['gap_mean']:.0f}  "
            f"{f'ETA {eta}' if left else in_time(figures['seconds'])}"
        )

    def close(self) -> None:
        """Leaves the refreshed line standing; whoever prints next begins on an empty one."""
        if self._width:
            print(file=self._stream, flush=True)
        self._width = 0


class NotebookLine(TrainingLine):
    """The same in a notebook: a bar with the line beside it, in one output that refreshes."""

    def __init__(self) -> None:
        super().__init__()
        self.interval = 0.5
        self._opening = ""
        self._display: Any = None

    def start(self, name: str, opening: str) -> None:
        self._name, self._opening = name, opening

    def show(self, figures: dict[str, float]) -> None:
        from IPython.display import display

        text = self._text(figures)
        done, whole = ("env_steps", "warmup") if "warmup" in figures else ("update", "updates")
        bar = f'<progress max="{figures[whole]}" value="{figures[done]}" style="width: 16em"></progress>'
        shown = {
            "text/plain": text,
            "text/html": f"{bar} <code>{html.escape(text)}</code><br><small>{html.escape(self._opening)}</small>",
        }
        if self._display is None:
            self._display = display(shown, raw=True, display_id=True)
        else:
            self._display.update(shown, raw=True)

    def close(self) -> None:
        """What is printed next has an output of its own."""


def training_line() -> TrainingLine:
    """For wherever this process shows its output."""
    return NotebookLine() if type(sys.stderr).__module__.startswith("ipykernel") else TrainingLine()
