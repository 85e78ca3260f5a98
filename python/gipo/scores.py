"""Aggregates over runs and tasks, with bootstrap intervals, as `gipo aggregate` and the report compute them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gipo import _core
from gipo.options import check_range

# The final scores of one method: [runs] of one task, [tasks, runs], or runs by task, which may differ in number.
Scores = ArrayLike | Sequence[ArrayLike] | Mapping[str, ArrayLike]


class Estimate(NamedTuple):
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float


def iqm(scores: Scores) -> float:
    """The interquartile mean: of the middle half of all scores, floor(n / 4) dropped at each end."""
    return _core.aggregates(_tasks(scores), 1.0)["iqm"]


def aggregate(
    scores: Mapping[str, Scores],
    *,
    repetitions: int = 50_000,
    confidence: float = 0.95,
    target: float = 1.0,
    seed: int = 1,
) -> dict[str, dict[str, Any]]:
    """IQM, median, mean and optimality gap of each method, as Estimates with stratified bootstrap intervals.

    scores: by method, each [tasks, runs] or runs by task; normalise them first where tasks differ in scale. Under
    "improvement" stands the probability that a run of this method beats one of each other method.
    """
    table = [_tasks(one) for one in scores.values()]
    check_range("repetitions", repetitions, 1, 10_000_000)
    check_range("confidence", confidence, 0.5, 0.9999)
    if len({len(tasks) for tasks in table}) > 1:
        raise _core.ConfigError("gipo.aggregate: methods have scores of different numbers of tasks")
    names = list(scores)
    methods, pairs = _core.estimates(table, repetitions, 1, confidence, target, seed, [])
    result: dict[str, dict[str, Any]] = {}
    for name, figures in zip(names, methods):
        result[name] = {key: Estimate(*value) for key, value in figures.items() if key != "profile"}
        result[name]["improvement"] = {}
    for x, y, (value, low, high) in pairs:
        result[names[x]]["improvement"][names[y]] = Estimate(value, low, high)
        result[names[y]]["improvement"][names[x]] = Estimate(1 - value, 1 - high, 1 - low)
    return result


def performance_profile(
    scores: Scores, taus: ArrayLike, *, repetitions: int = 2_000, confidence: float = 0.95, seed: int = 1
) -> np.ndarray:
    """The fraction of runs above each of `taus`, ascending, with its interval: [taus, 3] value, low, high."""
    points = np.asarray(taus, dtype=float)
    if points.ndim != 1 or np.any(np.diff(points) < 0):
        raise _core.ConfigError("gipo.performance_profile: taus must be a list of numbers in ascending order")
    check_range("repetitions", repetitions, 1, 1_000_000)
    check_range("confidence", confidence, 0.5, 0.9999)
    methods, _ = _core.estimates([_tasks(scores)], repetitions, repetitions, confidence, 1.0, seed, points.tolist())
    return methods[0]["profile"]


def probability_of_improvement(x: Scores, y: Scores) -> float:
    """How likely a run of x beats one of y: Mann-Whitney U / (n m), ties one half, averaged over tasks."""
    first, second = _tasks(x), _tasks(y)
    if len(first) != len(second):
        raise _core.ConfigError(f"gipo.probability_of_improvement: {len(first)} tasks beside {len(second)}")
    return _core.probability_of_improvement(first, second)


def _tasks(scores: Scores) -> list[list[float]]:
    """As [task][run]."""
    if isinstance(scores, Mapping):
        rows = list(scores.values())
    elif not hasattr(scores, "__len__"):
        raise TypeError(f"scores must be numbers by run, or by task and run, not {type(scores).__name__}")
    elif np.ndim(scores[0] if len(scores) else 0.0) == 0:  # type: ignore[index, arg-type]
        rows = [scores]
    else:
        rows = list(scores)  # type: ignore[arg-type]
    tasks = [np.asarray(row, dtype=float) for row in rows]
    if not tasks or any(task.ndim != 1 or task.size == 0 or not np.all(np.isfinite(task)) for task in tasks):
        raise _core.ConfigError("scores: wanted finite numbers, [runs] or [tasks, runs], at least one run of each task")
    return [task.tolist() for task in tasks]
