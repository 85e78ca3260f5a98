"""What is compared: each group makes its rows of the table, peer and gipo one after the other on the same cores."""

from __future__ import annotations

import functools
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sides import HERE, ROOT, Missing, cores, gipo_bench, gipo_seconds, gipo_train, peer, sb3_seconds

CONFIGS = HERE / "configs"
FAST = ROOT / "configs" / "fast"


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int  # medians are over these; peer and gipo take turns
    seconds: float  # of one small measurement
    sb3_steps: int
    sample_factory_steps: int
    peer_seeds: int
    gipo_seeds: int


FULL = Effort(5, 4.0, 102_400, 300_000, 3, 10)
QUICK = Effort(1, 0.5, 6_144, 40_000, 1, 1)


@dataclass
class Row:
    name: str
    peer: str
    unit: str
    peer_value: float | None = None
    gipo_value: float | None = None
    wanted: float | None = None  # times as fast as the peer
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times as fast gipo is; None where a figure is missing or was never reached."""
        if not self.peer_value or not self.gipo_value or math.isinf(self.peer_value + self.gipo_value):
            return None
        rate = self.unit.endswith("/s")
        return self.gipo_value / self.peer_value if rate else self.peer_value / self.gipo_value


class Measure:
    """Runs both sides and keeps going: a figure that cannot be had is None, and its reason is said once.

    `rows` grows with every row that is measured, and `show` is called with it: what there is outlives an interruption.
    """

    def __init__(self, effort: Effort, folder: Path, show: Callable[[Row], None] = lambda row: None) -> None:
        self.effort, self.folder, self.show = effort, folder, show
        self.rows: list[Row] = []
        self._said: set[str] = set()

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.show(row)

    def attempt(self, call: Callable, *arguments, **options):
        try:
            return call(*arguments, folder=self.folder, **options)
        except Missing as missing:
            if str(missing) not in self._said:
                self._said.add(str(missing))
                print(f"peers: {missing}", file=sys.stderr)
            return None

    def taking_turns(self, rows: list[Row], peers: list[Callable], bench: str) -> None:
        """Rows whose gipo figure is that of the same name in `gipo bench`, medians over rounds."""
        peer_values: list[list[float]] = [[] for _ in rows]
        gipo_values: list[list[float]] = [[] for _ in rows]
        whole = False
        try:
            with cores(1):
                for _ in range(self.effort.rounds):
                    figures = self.attempt(gipo_bench, bench) or {}
                    for row, call, theirs, ours in zip(rows, peers, peer_values, gipo_values):
                        if row.name in figures:
                            ours.append(figures[row.name])
                        if result := call():
                            theirs.append(result["value"])
                            row.peer, row.note = f"{row.peer.split()[0]} {result['version']}", result["settings"]
            whole = True
        finally:
            for row, theirs, ours in zip(rows, peer_values, gipo_values):
                row.peer_value, row.gipo_value = median(theirs), median(ours)
                if not whole:
                    row.note = ", ".join(filter(None, [row.note, f"interrupted after {len(theirs)} rounds"]))
                if whole or theirs:
                    self.add(row)


def median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def returns(*pairs: tuple[str, float | None]) -> str:
    return "return " + ", ".join(f"{side} {value:.0f}" for side, value in pairs if value is not None)


def torch_eager(m: Measure, what: str, rows: int) -> Callable:
    return functools.partial(m.attempt, peer, "PyTorch", "peer_torch.py", what, rows, m.effort.seconds)


def learner(m: Measure) -> None:
    """One update of 64x64 actor and critic: forward, multiplier, backward, clip, AdamW."""
    wanted = {64: 12.0, 256: 5.0}
    rows = [Row(f"learner 64x64 batch {n}", "PyTorch", "updates/s", wanted=ratio) for n, ratio in wanted.items()]
    m.taking_turns(rows, [torch_eager(m, "learner", n) for n in wanted], "learner")


def inference(m: Measure) -> None:
    """The policy's outputs for 1 and 16 observations, 64x64: against a module, and against bare calls."""
    wanted = {1: 80.0, 16: 13.0}
    rows, peers = [], []
    for what in ("module", "calls"):
        for n, ratio in wanted.items():
            rows.append(Row(f"inference 64x64 rows {n}", "PyTorch", "us", wanted=ratio if what == "module" else None))
            peers.append(torch_eager(m, what, n))
    m.taking_turns(rows, peers, "inference")


def pendulum(m: Measure) -> None:
    """300k env steps of Pendulum on one core."""
    row = Row("Pendulum 300k env steps", "RLtools", "s", wanted=1 / 0.68)
    theirs, ours = [], []
    with cores(1):
        for seed in range(11, 11 + m.effort.rounds):  # the config was chosen on others
            ours.append(m.attempt(gipo_train, CONFIGS / "pendulum.toml", seed))
            theirs.append(m.attempt(peer, row.peer, "peer_rltools.py", seed))
    known = [run for run in theirs if run]
    middle = {figure: median([run[figure] for run in known]) for figure in ("value", "return")}
    m.add(finished(row, {**known[0], **middle} if known else {}, ours))


def cartpole(m: Measure) -> None:
    """PPO on CartPole, 8 x 256 steps, ten passes in batches of 64, two cores."""
    row = Row("CartPole PPO 8 x 256", "Stable-Baselines3", "env steps/s", wanted=20.0)
    with cores(2):
        theirs = m.attempt(peer, row.peer, "peer_sb3.py", "speed", m.effort.sb3_steps, 1) or {}
        # gipo always trains to the end: it is over in seconds.
        runs = [m.attempt(gipo_train, CONFIGS / "cartpole.toml", 1 + i) for i in range(m.effort.rounds)]
    m.add(finished(row, theirs, runs))


def asynchronous(m: Measure) -> None:
    """Actors and learner apart: CartPole, 16 environments, segments of 32, batch 512, two cores."""
    row = Row("async CartPole 16 envs", "Sample-Factory", "env steps/s", wanted=40.0)
    with cores(2):
        theirs = m.attempt(peer, row.peer, "peer_sample_factory.py", m.effort.sample_factory_steps, "sample_factory")
        runs = [m.attempt(gipo_train, CONFIGS / "async.toml", 1 + i) for i in range(m.effort.rounds)]
    m.add(finished(row, theirs or {}, runs))


def finished(row: Row, theirs: dict, runs: list[dict | None]) -> Row:
    known = [run for run in runs if run]
    row.peer_value = theirs.get("value")
    row.gipo_value = median([run["seconds"] if row.unit == "s" else run["env_steps"] / run["seconds"] for run in known])
    ours = median([run["final_return"]["mean"] for run in known])
    reached = returns((row.peer, theirs.get("return")), ("gipo", ours))
    row.note = ", ".join(filter(None, [theirs.get("settings"), reached]))
    row.peer = f"{row.peer} {theirs.get('version', '')}".strip()
    return row


def environments(m: Measure) -> None:
    """Classic environments, 16 at a time on one thread."""
    wanted = {"CartPole-v1": 50.0, "Acrobot-v1": 50.0, "Pendulum-v1": 50.0, "MountainCarContinuous-v0": 20.0}
    # Two releases of Gymnasium: the one gipo's tests compare with, and the last one Sample Factory takes. Each is
    # the faster one on some task. EnvPool is there for scale: it is made for many threads.
    cases = [
        ("Gymnasium", Path(sys.executable), wanted), ("Gymnasium", None, wanted), ("EnvPool", None, {}),
    ]
    rows, peers = [], []
    for library, python, ratios in cases:
        for env in wanted:
            rows.append(Row(f"env {env} 16", library, "env steps/s", wanted=ratios.get(env)))
            arguments = (peer, library, "peer_envs.py", library.lower(), env, 16, m.effort.seconds / 4)
            peers.append(functools.partial(m.attempt, *arguments, python=python))
    m.taking_turns(rows, peers, "env")


def solve(m: Measure) -> None:
    """From the start of the process to a mean of the last 100 training episodes."""
    tasks = {
        "CartPole-v1": ("cartpole", 475), "Pendulum-v1": ("pendulum", -200), "Acrobot-v1": ("acrobot", -100),
        "MountainCarContinuous-v0": ("mountain_car_continuous", 90),
    }
    for env, (config, threshold) in tasks.items():
        row = Row(f"solve {env} {threshold}", "Stable-Baselines3", "s", wanted=15.0)
        path = FAST / f"{config}.toml"
        with cores(2):
            theirs = [m.attempt(sb3_seconds, env, threshold, 1 + i) for i in range(m.effort.peer_seeds)]
            ours = [m.attempt(gipo_seconds, path, threshold, 1 + i) for i in range(m.effort.gipo_seeds)]
        row.peer_value, row.gipo_value = (median([s for s in side if s is not None]) for side in (theirs, ours))
        row.note = f"solved: {row.peer} {solved(theirs)}, gipo {solved(ours)}"
        m.add(row)


def solved(seconds: list[float | None]) -> str:
    return f"{sum(s is not None and math.isfinite(s) for s in seconds)} of {len(seconds)}"


GROUPS: dict[str, Callable[[Measure], None]] = {
    "learner": learner, "inference": inference, "env": environments, "pendulum": pendulum, "cartpole": cartpole,
    "async": asynchronous, "solve": solve,
}
