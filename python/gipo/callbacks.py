"""Ready-made callbacks for `train`, `resume` and `Trainer.learn`, alone or in a list.

    gipo.train("classic/stale", callback=[StopAtReturn(475), OnNewBest(lambda e: print(e["mean"]))], eval__every_updates=500)

A callback is a function that is given the figures of every logged update, or an object of a class below or of your own
class derived from Callback. Each function returns None or True to go on, or False to end the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gipo import _core

if TYPE_CHECKING:
    from gipo.training import Run

Function = Callable[[Any], Any]


class Moments(NamedTuple):
    """What is called, once or after each; all but the first say whether the run is to go on."""

    on_start: Callable[[Any], bool] | None
    on_update: Callable[[Any], bool] | None
    on_evaluation: Callable[[Any], bool] | None
    on_episode: Callable[[Any], bool] | None


class Callback:
    """Derive from it and define what is of interest; what is not defined costs nothing."""

    def on_start(self, run: Run) -> None:
        """When the run folder is there, with the gipo.Run; also where a run is resumed."""

    def on_update(self, figures: dict[str, Any]) -> bool | None:
        """After every logged update (log.every_updates), with a line of metrics.jsonl."""

    def on_evaluation(self, figures: dict[str, Any]) -> bool | None:
        """After every evaluation (eval.every_updates), with a line of evaluations.jsonl, and `best`."""

    def on_episode(self, figures: dict[str, Any]) -> bool | None:
        """After every training episode, with a line of episodes.jsonl."""


class EveryUpdates(Callback):
    """Calls a function every n updates: at the first logged update from each multiple of n on."""

    counted = "update"

    def __init__(self, n: int, function: Function) -> None:
        _check(f"{type(self).__name__}: n", n, isinstance(n, int) and n > 0, "a whole number above 0")
        self.n, self.function = n, _callable(self, function)
        self._last = 0  # multiples that have been passed

    def on_update(self, figures: dict[str, Any]) -> bool | None:
        """Calls the function where another multiple of n has been passed."""
        passed = int(figures[self.counted]) // self.n
        if passed == self._last:
            return None
        self._last = passed
        return self.function(figures)


class EverySteps(EveryUpdates):
    """Calls a function every n environment steps: at the first logged update from each multiple of n on."""

    counted = "env_steps"


class OnNewBest(Callback):
    """Calls a function with every evaluation that is the best of the run so far."""

    def __init__(self, function: Function) -> None:
        self.function = _callable(self, function)

    def on_evaluation(self, figures: dict[str, Any]) -> bool | None:
        """Calls the function where the evaluation is the best so far."""
        return self.function(figures) if figures["best"] else None


class OnEpisode(Callback):
    """Calls a function with every finished training episode."""

    def __init__(self, function: Function) -> None:
        self.function = _callable(self, function)

    def on_episode(self, figures: dict[str, Any]) -> bool | None:
        """Calls the function."""
        return self.function(figures)


class StopOnNoImprovement(Callback):
    """Ends the run when the mean return of so many evaluations in a row is not above the best by `least`."""

    def __init__(self, evaluations: int, least: float = 0.0) -> None:
        whole = isinstance(evaluations, int) and evaluations > 0
        _check("StopOnNoImprovement: evaluations", evaluations, whole, "a whole number above 0")
        self.evaluations, self.least = evaluations, least
        self.best, self.since = -math.inf, 0

    def on_evaluation(self, figures: dict[str, Any]) -> bool:
        """Counts the evaluations since the best one."""
        if figures["mean"] > self.best + self.least:
            self.best, self.since = figures["mean"], 0
        else:
            self.since += 1
        return self.since < self.evaluations


class StopAtReturn(Callback):
    """Ends the run when the mean return of an evaluation reaches a value."""

    def __init__(self, value: float) -> None:
        number = isinstance(value, (int, float)) and math.isfinite(value)
        _check("StopAtReturn: value", value, number, "a finite number")
        self.value = value

    def on_evaluation(self, figures: dict[str, Any]) -> bool:
        """Compares the mean with the value."""
        return figures["mean"] < self.value


def together(
    callback: Callback | Function | Sequence[Callback | Function] | None,
    on_evaluation: Function | None = None,
    on_episode: Function | None = None,
) -> Moments:
    """One function for each moment, or None where nobody wants to hear of it."""
    parts = [] if callback is None else list(callback) if isinstance(callback, (list, tuple)) else [callback]
    named = [("callback", "on_update", part) for part in parts if not isinstance(part, Callback)]
    named += [("on_evaluation", "on_evaluation", on_evaluation), ("on_episode", "on_episode", on_episode)]
    functions: dict[str, list[tuple[str, Function]]] = {moment: [] for moment in Moments._fields}
    for part in parts:
        for moment in Moments._fields if isinstance(part, Callback) else ():
            if getattr(type(part), moment) is not getattr(Callback, moment):
                functions[moment].append((f"{type(part).__name__}.{moment}", getattr(part, moment)))
    for name, moment, function in named:
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be callable, not {type(function).__name__}")
        functions[moment] += [(name, function)] if function is not None else []
    return Moments(*(_one(listed) if listed else None for listed in functions.values()))


def _one(functions: list[tuple[str, Function]]) -> Callable[[Any], bool]:
    """All are called, also after one that ends the run."""

    def hear(figures: Any) -> bool:
        go_on = True
        for name, function in functions:
            said = function(figures)
            if said is not None and not isinstance(said, (bool, np.bool_)):
                raise TypeError(f"{name} returned {said!r}: wanted None or True to go on, or False to end the run")
            go_on = go_on and (said is None or bool(said))
        return go_on

    return hear


def _check(name: str, value: object, fits: bool, wanted: str) -> None:
    if not fits or isinstance(value, bool):
        raise _core.ConfigError(f"{name} = {value!r} is not accepted: wanted {wanted}")


def _callable(owner: object, function: Any) -> Function:
    if not callable(function):
        raise TypeError(f"{type(owner).__name__}: function must be callable, not {type(function).__name__}")
    return function
