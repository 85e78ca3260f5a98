"""The exact study of the paper's 2x2 grid: bias and variance of every surrogate's gradient, nothing sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gipo import _core
from gipo.objective import Surrogate
from gipo.options import in_pythons_words

STATES, RIGHT = 3, 3  # of the grid; the component of theta that the paper shows
BEHAVIOURS = ("A", "B", "C")


def grid_study(
    surrogates: Sequence[Surrogate] | None = None, behaviours: Sequence[str] = BEHAVIOURS, discount: float = 0.9
) -> dict[str, Any]:
    """Bias, variance and mse of one-sample gradient estimates: {"discount", "behaviours", "rows"}.

    Rows as `gipo study gridworld --json` prints them, for each behaviour, surrogate, state and component ("right", the
    paper's scalar, and "all"). behaviours: A, B, C or mixtures like "rand:0.4,right:0.3,down:0.3". surrogates: those of
    the paper's figure unless given. `gipo.study.bias_variance_figure` draws the result.
    """
    _check_discount(discount)
    rows: list[dict[str, Any]] = []
    named = []
    for text in behaviours:
        with in_pythons_words("gipo.grid_study", {}, {}):
            name, mixture, probabilities = _core.grid_behaviour(text)
        named.append({"name": name, "mixture": mixture, "probabilities": list(probabilities)})
        for surrogate in _paper() if surrogates is None else surrogates:
            for state in (*range(STATES), None):
                moments = _core.grid_moments(surrogate._core, text, discount, state)
                head = {"behaviour": name, "surrogate": surrogate.name, "parameters": dict(surrogate.options),
                        "state": "all" if state is None else f"S{state}"}
                if state is not None:
                    rows.append(head | _component(moments, RIGHT))
                rows.append(head | {"component": "all"} | moments)
    return {"discount": discount, "behaviours": named, "rows": rows}


def grid_optimum(family: str, behaviour: str = "B", discount: float = 0.9, component: str = "right") -> dict[str, Any]:
    """The estimator of least mse in a family, by exact evaluation: its parameters, bias, variance and mse.

    family: gipo, gipo_pair (a sigma for each sign of the advantage), ppo or sapo. component: "right" at S0, or "all".
    """
    _check_discount(discount)
    if component not in ("right", "all"):
        raise _core.ConfigError(f"component = {component} is not accepted: wanted right or all")
    with in_pythons_words("gipo.grid_optimum", {}, {}):
        return _core.grid_optimum(family, behaviour, discount, component == "all")


def _paper() -> list[Surrogate]:
    return [
        Surrogate("no_clip"),
        Surrogate("ppo", epsilon=0.2),
        *(Surrogate("sapo", tau_pos=pos, tau_neg=neg) for pos, neg in ((2.0, 1.0), (1.0, 2.0))),
        *(Surrogate("gipo", sigma=sigma) for sigma in (0.1, 0.3, 0.5, 1.0, 2.0)),
    ]


def _component(moments: dict[str, Any], index: int) -> dict[str, Any]:
    bias = abs(moments["expectation"][index] - moments["truth"][index])
    variance = moments["covariance"][index, index]
    return {
        "component": "right", "bias": bias, "variance": variance, "mse": bias**2 + variance,
        "truth": moments["truth"][index], "expectation": moments["expectation"][index], "covariance": variance,
    }  # fmt: skip


def _check_discount(discount: float) -> None:
    if not 0 <= discount <= 1:
        raise _core.ConfigError(f"discount = {discount!r} is not accepted: wanted a number from 0 to 1")
