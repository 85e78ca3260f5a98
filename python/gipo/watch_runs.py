"""What `gipo watch` knows of a run, read from the files of its folder alone."""

from __future__ import annotations

import json
import math
import os
import re
import time
import tomllib
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gipo.runs import Record, is_number, last_record
from gipo.watch_files import EventTimes, Tail, Track, records_of

CURVE_POINTS, AGE_POINTS, EPISODE_POINTS, TIME_POINTS = 1000, 240, 400, 1000  # at most, of each run
WARNINGS = 50  # the newest are kept
SILENT_SECONDS = 60.0  # on a network file system, whose locks are not seen
RATE_SECONDS = 30.0  # over which the speed of now is taken
REST_SECONDS = 10.0  # between looks at a run that has ended

FIGURES = (
    "return_mean", "success_rate", "share_old", "old_frac", "d95", "trust_d95", "kl", "entropy", "dead_frac",
    "near_zero_frac", "suppressed_frac", "ess_norm", "ess_old_norm", "clip_frac", "gap_mean", "policy_loss", "value_loss",
    "explained_variance", "policy_grad_norm", "advantage_std", "replay_size",
)  # fmt: skip
CURVE = ("update", "env_steps", *FIGURES)
AGES, SIZES, SIGNED = 8, 8, 28  # rows and columns of the histograms; bins of signed log ratios
# What a row of the ages' track holds, in this order, and how many numbers of each.
AGE_PARTS = {
    "update": 1, "env_steps": 1, "sizes": AGES * SIZES, "share_by_age": AGES, "ess_by_age": AGES, "dead_by_age": AGES,
    "log_ratio_counts": SIGNED, "trust_counts": SIGNED, "multiplier_mean": SIGNED,
}  # fmt: skip
EPISODES = ("env_steps", "return")
EVALUATIONS = ("update", "env_steps", "mean", "std")
TIMES = ("update", "seconds")

REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "lustre", "glusterfs", "beegfs"}
ENDED = re.compile(r"finished$|solved$|interrupted$|stopped$|failed: ")


def number(value: object) -> float:
    """The value as a float; NaN where it is none."""
    return float(value) if is_number(value) else math.nan


def numbers(values: object, count: int) -> list[float]:
    """A list of so many numbers, or a list of lists with so many in all; NaN where it is none."""
    if isinstance(values, list) and values and isinstance(values[0], list):
        values = [value for row in values for value in (row if isinstance(row, list) else [])]
    if not isinstance(values, list) or len(values) != count:
        return [math.nan] * count
    return values if set(map(type, values)) <= {int, float} else [number(value) for value in values]


def scalar_rows(records: Sequence[Record], names: Sequence[str]) -> np.ndarray:
    return np.array([[number(record.get(name)) for name in names] for record in records], float)


def age_rows(records: Sequence[Record]) -> np.ndarray:
    rows = []
    for record in records:
        row = [number(record.get("update")), number(record.get("env_steps"))]
        for name, count in AGE_PARTS.items():
            if count > 1:
                row += numbers(record.get("contribution_by_age" if name == "sizes" else name), count)
        rows.append(row)
    return np.array(rows, float)


def held_locks() -> set[tuple[int, int, int]] | None:
    """Device and inode of every file with a lock of flock(2) on this machine; None where the system does not say.

    Taking the lock to see whether it is free could make a run that begins at that moment fail.
    """
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    found = set()
    for line in lines:
        words = line.split()
        if "FLOCK" in words and len(words) > 5 and "->" not in words:
            major, minor, inode = words[-3].split(":")
            found.add((int(major, 16), int(minor, 16), int(inode)))
    return found


def is_remote(path: Path) -> bool:
    """Whether the path lies on a file system of another machine."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    best, kind, real = "", "", str(path.resolve())
    for mount in mounts:
        before, _, after = mount.partition(" - ")
        point = before.split()[4]
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind in REMOTE or kind.startswith("fuse")


class RunReader:
    """One run. `look` is cheap and tells where it stands; `follow` reads all that was appended, a bounded part at a time.

    Not for several threads at once.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.curve, self.ages = Track(len(CURVE), CURVE_POINTS), Track(sum(AGE_PARTS.values()), AGE_POINTS)
        self.episodes, self.times = Track(len(EPISODES), EPISODE_POINTS), Track(len(TIMES), TIME_POINTS)
        self.evaluations = Track(len(EVALUATIONS), CURVE_POINTS)
        self.config: Record = {}
        self.summary: Record = {}
        self.last: Record = {}  # the newest line of metrics.jsonl
        self.last_evaluation: Record = {}
        self.warnings: deque[str] = deque(maxlen=WARNINGS)
        self.lines: dict[str, int] = {}  # read, by file
        self.damaged: dict[str, int] = {}
        self.state = "waiting"
        self.why = ""
        self.behind = True  # more is there than was read
        self.window = math.nan
        self.updates_planned = math.nan
        self._ended = ""  # as log.txt says; empty while the run goes on
        self._started = False  # log.txt says so
        self._remote = is_remote(folder)
        self._stamps: dict[str, tuple[int, int]] = {}
        self._changed_at = -math.inf
        self._looked_at = -math.inf
        self._timed_at = -math.inf
        self._metrics, self._log = Tail(folder / "metrics.jsonl"), Tail(folder / "log.txt")
        self._episodes, self._evaluations = Tail(folder / "episodes.jsonl"), Tail(folder / "evaluations.jsonl")
        self._events: EventTimes | None = None
        self._seen: deque[tuple[float, float, float]] = deque()  # time, update, env_steps of the last seconds

    # Where the run stands

    def look(self, locks: set[tuple[int, int, int]] | None, now: float) -> None:
        if self.state not in ("running", "waiting") and now - self._looked_at < REST_SECONDS:
            return
        self._looked_at = now
        if self._stamp("config.toml"):
            self.config = self._toml("config.toml")
        if self._stamp("summary.json"):
            self.summary = self._json("summary.json")
        if self._stamp("metrics.jsonl"):
            age = time.time() - self._stamps["metrics.jsonl"][0] / 1e9 if math.isinf(self._changed_at) else 0.0
            self._changed_at = now - max(0.0, age)
            self._read_last(now)
        if self._stamp("evaluations.jsonl"):
            self.last_evaluation = self._last("evaluations.jsonl")
        self._read_log()
        self._find_state(locks, now)

    def _stamp(self, name: str) -> bool:
        """Whether the file changed since the last look."""
        try:
            info = (self.folder / name).stat()
            stamp = (info.st_mtime_ns, info.st_size)
        except OSError:
            stamp = (0, -1)
        changed = self._stamps.get(name, (0, -1)) != stamp
        self._stamps[name] = stamp
        return changed

    def _toml(self, name: str) -> Record:
        try:
            return tomllib.loads((self.folder / name).read_text())
        except (OSError, ValueError):
            return {}

    def _json(self, name: str) -> Record:
        try:
            value = json.loads((self.folder / name).read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def _last(self, name: str) -> Record:
        try:
            record = last_record(self.folder / name)
        except (OSError, ValueError, RecursionError):
            return {}
        return record if isinstance(record, dict) else {}

    def _read_last(self, now: float) -> None:
        self.last = self._last("metrics.jsonl")
        update, env_steps = number(self.last.get("update")), number(self.last.get("env_steps"))
        if math.isnan(update) or math.isnan(env_steps):
            return
        if self._seen and update < self._seen[-1][1]:  # resumed from further back
            self._seen.clear()
        self._seen.append((now, update, env_steps))
        while self._seen[-1][0] - self._seen[0][0] > RATE_SECONDS and len(self._seen) > 2:
            self._seen.popleft()

    def _read_log(self) -> None:
        lines, reset = self._log.read()
        if reset:
            self.warnings.clear()
            self._started, self._ended = False, ""
        for line in lines:
            text = line.decode(errors="replace")[20:]  # after the time
            if text.startswith(("start: ", "resumed ")):
                self._started, self._ended = True, ""
                if planned := re.match(r"start: (\d+) updates, .* window ([\d.e+-]+) updates", text):
                    self.updates_planned, self.window = float(planned[1]), float(planned[2])
            elif text.startswith("warning: "):
                self.warnings.append(line.decode(errors="replace"))
            elif ENDED.match(text) or text == self.summary.get("ended"):
                self._ended = text

    def _find_state(self, locks: set[tuple[int, int, int]] | None, now: float) -> None:
        ended = self._ended or ("" if self._started else str(self.summary.get("ended", "")))
        word, _, self.why = ended.partition(": ")
        if not self.config and not self.last and not ended:
            self.state = "waiting"
        elif ended and not self._locked(locks):
            self.state = {"interrupted": "stopped"}.get(word, word)
        elif self._locked(locks):
            self.state = "running"
        elif self._remote or locks is None:
            self.state = "running" if now - self._changed_at < SILENT_SECONDS else "silent"
        else:
            self.state = "running" if now - self._changed_at < REST_SECONDS and self._alive() else "killed"

    def _alive(self) -> bool:
        """Whether the process that last worked there lives: some file systems list their locks under other numbers."""
        try:
            return Path("/proc", str(int((self.folder / "lock").read_text()))).exists()
        except (OSError, ValueError):
            return False

    def _locked(self, locks: set[tuple[int, int, int]] | None) -> bool:
        try:
            info = (self.folder / "lock").stat()
        except OSError:
            return False
        return locks is not None and (os.major(info.st_dev), os.minor(info.st_dev), info.st_ino) in locks

    def rates(self) -> tuple[float, float]:
        """Updates and environment steps a second: of the last half minute while it runs, of the whole run afterwards."""
        if self.state == "running":
            if len(self._seen) > 1 and self._seen[-1][0] - self._seen[0][0] > 2:
                span = self._seen[-1][0] - self._seen[0][0]
                return (self._seen[-1][1] - self._seen[0][1]) / span, (self._seen[-1][2] - self._seen[0][2]) / span
            return self._logged_rates()
        seconds = number(self.summary.get("seconds"))
        if not seconds > 0:
            return self._logged_rates()
        return number(self.summary.get("updates")) / seconds, number(self.summary.get("env_steps")) / seconds

    def _logged_rates(self) -> tuple[float, float]:
        """Of the newest rows of the event file."""
        _, rows = self.times.since(0, 0)
        rows = rows[rows[:, 1] > rows[-1, 1] - RATE_SECONDS] if len(rows) else rows
        if len(rows) < 2 or rows[-1, 1] <= rows[0, 1]:
            return math.nan, math.nan
        updates = (rows[-1, 0] - rows[0, 0]) / (rows[-1, 1] - rows[0, 1])
        done = number(self.last.get("update"))
        return updates, updates * number(self.last.get("env_steps")) / done if done else math.nan

    def standing(self) -> Record:
        """All that the page shows of a run beside its curves."""
        planned = number(self._setting("learner.updates")) if math.isnan(self.updates_planned) else self.updates_planned
        update, env_steps = number(self.last.get("update")), number(self.last.get("env_steps"))
        update = 0.0 if math.isnan(update) else update
        fraction = 1.0 if self.state in ("finished", "solved") else min(1.0, update / planned) if planned > 0 else math.nan
        updates, steps = self.rates()
        left = (planned - update) / updates if self.state == "running" and updates > 0 else math.nan
        final, greedy = self.summary.get("final_return"), self.last_evaluation
        if self.state != "running" and isinstance(self.summary.get("eval_return"), dict):
            greedy = self.summary["eval_return"]
        train = self.last.get("return_mean")
        if not self.last and isinstance(final, dict):
            train = final.get("mean")
        staleness = self.summary.get("staleness")
        window = number(staleness.get("window")) if isinstance(staleness, dict) else self.window
        return clean({
            "name": self.name, "state": self.state, "why": self.why, "fraction": fraction, "update": update,
            "updates": planned, "env_steps": env_steps, "updates_rate": updates, "steps_rate": steps, "left": left,
            "seconds": number(self.summary.get("seconds")) if self.state != "running" else math.nan,
            "train": number(train), "greedy": number(greedy.get("mean")), "episodes": number(self.last.get("episodes")),
            "success": number(self.last.get("success_rate")), "window": window, "faults": self.faults(),
            "env": self._setting("env.id"), "surrogate": self._setting("surrogate.name"), "mode": self._setting("run.mode"),
            "seed": self._setting("run.seed"), "centred": self._setting("surrogate.centre") == "proximal",
        })  # fmt: skip

    def _setting(self, key: str) -> Any:
        group, _, name = key.partition(".")
        part = self.config.get(group)
        return part.get(name) if isinstance(part, dict) else None

    def faults(self) -> list[str]:
        """What went wrong, in words, the gravest first."""
        found = [f"failed: {self.why}"] if self.state == "failed" else []
        if self.state == "killed":
            found.append(f"no process works in the folder, and it did not end by itself: continue with gipo resume {self.folder}")
        for key, words in (("skipped_updates", "updates were skipped because they were not finite"),
                           ("rejected_segments", "segments were rejected because they were not finite")):  # fmt: skip
            if (count := number(self.last.get(key))) > 0:
                found.append(f"{count:.0f} {words}")
        counts = self.summary.get("counts")
        for key, words in (("faults", "segments were rejected"), ("eval_faults", "episodes of evaluations were played again")):
            by_name = counts.get(key) if isinstance(counts, dict) else None
            if isinstance(by_name, dict):
                found += [f"{count} {words}: {name}" for name, count in by_name.items()]
        found += [f"{name}: {count} damaged lines were left out" for name, count in self.damaged.items() if count]
        return found + list(reversed(self.warnings))

    # All that was appended

    def follow(self) -> None:
        self._follow_times()
        parts = (
            (self._metrics, ((self.curve, CURVE), (self.ages, ()))),
            (self._episodes, ((self.episodes, EPISODES),)),
            (self._evaluations, ((self.evaluations, EVALUATIONS),)),
        )
        for tail, tracks in parts:
            lines, reset = tail.read()
            # Of a long file not every line is needed, and most of the time goes into parsing them.
            name, weight = tail.path.name, 1 if reset else tracks[0][0].sampling
            first = 0 if reset else -self.lines.get(name, 0) % weight
            self.lines[name] = len(lines) + (0 if reset else self.lines.get(name, 0))
            records, damaged = records_of(lines[first::weight])
            self.damaged[name] = damaged + (0 if reset else self.damaged.get(name, 0))
            for track, names in tracks:
                if reset:
                    track.clear()
                if records:
                    track.add(scalar_rows(records, names) if names else age_rows(records), weight)
        self.behind = any(tail.behind for tail, _ in parts) or (self._events is not None and self._events.behind)

    def _follow_times(self) -> None:
        """Times are those of the event file; of a run without one, those at which this program saw its lines."""
        if self._events is None and self._setting("log.tensorboard") is not False:
            files = sorted(self.folder.glob("events.out.tfevents.*"))
            self._events = EventTimes(files[-1]) if files else None
        if self._events:
            pairs, reset = self._events.read()
            if reset:
                self.times.clear()
            if pairs:
                self.times.add(np.array(pairs, float))
        elif self.state == "running" and self._seen and self._seen[-1][0] > self._timed_at:
            self._timed_at, update, _ = self._seen[-1]
            self.times.add(np.array([[update, time.time()]]))

    def surrogate_words(self) -> str:
        """The surrogate with its options, as `gipo study multipliers` takes it; empty where that has no say."""
        settings = self.config.get("surrogate")
        name = self._setting("surrogate.name")
        if not isinstance(settings, Mapping) or not isinstance(name, str) or name == "m2po":
            return ""  # m2po looks at the whole batch
        return ",".join([name, *(f"{key}={value}" for key, value in settings.items() if key != "name")])


def clean(record: Record) -> Record:
    """JSON has no NaN."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()}
