"""The objective on arrays: surrogates, advantages, diagnostics and the paper's bounds, as training computes them."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gipo import _core
from gipo.options import Value, check_range, in_pythons_words, plain

MAX_LOG_RATIO = 20.0  # log ratios are clamped to this before anything is computed from them


class Surrogate:
    """A surrogate objective. Its policy gradient is E[m A grad log pi]: `multiplier` is m, `loss` minus the objective.

    Arrays of any shapes that broadcast; computed and returned in float32 where both are, else in float64.
    """

    def __init__(self, name: str, **options: Value) -> None:
        self.name = name
        self.options = options
        values = {key: plain(key, v, "gipo.surrogate") for key, v in options.items()}
        given = {f"surrogate.{key}": v for key, v in {"name": name, **values}.items()}
        with in_pythons_words("gipo.surrogate", {key: key.removeprefix("surrogate.") for key in given}, given):
            self._core = _core.Surrogate(name, values)

    @property
    def clips_to_zero(self) -> bool:
        """Whether a multiplier of exactly zero is the objective's own doing, a clip."""
        return self._core.clips_to_zero

    def evaluate(
        self, log_ratio: ArrayLike, advantage: ArrayLike, age: ArrayLike = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Multiplier and loss at once. age: updates since each sample was collected, which only a growing width reads."""
        log_ratio, advantage = _same_shape(log_ratio, advantage)
        age = np.asarray(np.broadcast_to(age, log_ratio.shape), dtype=log_ratio.dtype, order="C")
        return self._core.evaluate(log_ratio, advantage, age)

    def multiplier(self, log_ratio: ArrayLike, advantage: ArrayLike, age: ArrayLike = 0) -> np.ndarray:
        """m in the gradient m A grad log pi, of every sample."""
        return self.evaluate(log_ratio, advantage, age)[0]

    def loss(self, log_ratio: ArrayLike, advantage: ArrayLike, age: ArrayLike = 0) -> np.ndarray:
        """Minus the objective, of every sample."""
        return self.evaluate(log_ratio, advantage, age)[1]

    def weight(self, log_ratio: ArrayLike, advantage: ArrayLike, age: ArrayLike = 0) -> np.ndarray:
        """The trust weight w = m / rho: what the surrogate makes of the plain ratio."""
        log_ratio, advantage = _same_shape(log_ratio, advantage)
        ratio = np.exp(np.clip(log_ratio.astype(np.float64), -MAX_LOG_RATIO, MAX_LOG_RATIO))
        weight = self.multiplier(log_ratio.astype(np.float64), advantage.astype(np.float64), age) / ratio
        return weight.astype(log_ratio.dtype)

    def __repr__(self) -> str:
        return f"Surrogate({', '.join([repr(self.name), *(f'{k}={v!r}' for k, v in self.options.items())])})"


def surrogate(name: str, **options: Value) -> Surrogate:
    """A surrogate by name, with the options of the group `surrogate` that it reads: surrogate("gipo", sigma=0.5)."""
    return Surrogate(name, **options)


def surrogates() -> dict[str, tuple[str, list[str]]]:
    """Every surrogate by name: one line about it, and the options it reads."""
    return _core.surrogates()


def gae(
    reward: ArrayLike, value: ArrayLike, terminated: ArrayLike = False, gamma: float = 0.99, lam: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Generalised advantage estimation: advantages and value targets.

    A segment lies inside one episode: reward [T] and value [T + 1], the last that of the observation after it.
    terminated: whether the last step ended the task; where it did not, the last value bootstraps. Several segments of
    one length: reward [B, T], value [B, T + 1], terminated [B].
    """
    arrays, single = _segments("gipo.gae", reward, value, terminated)
    out = _core.gae(*arrays, gamma, lam)
    return (out[0][0], out[1][0]) if single else out


def vtrace(
    reward: ArrayLike,
    value: ArrayLike,
    log_ratio: ArrayLike,
    terminated: ArrayLike = False,
    gamma: float = 0.99,
    lam: float = 0.95,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """V-trace: advantages without the ratio, and value targets, with log_ratio = log(pi / mu) shaped like reward.

    The rest as in `gae`.
    """
    arrays, single = _segments("gipo.vtrace", reward, value, terminated, log_ratio)
    out = _core.vtrace(*arrays, gamma, lam, rho_bar, c_bar)
    return (out[0][0], out[1][0]) if single else out


def normalise(values: ArrayLike) -> np.ndarray:
    """The values shifted and scaled to mean 0 and deviation 1, as training does with the advantages of a batch."""
    return _core.normalise(_contiguous(values)[0])


def diagnostics(
    log_ratio: ArrayLike,
    advantage: ArrayLike,
    multiplier: ArrayLike | Surrogate,
    gap: ArrayLike,
    age: ArrayLike | None = None,
    *,
    t_old: int = 1,
    window: float | None = None,
    epsilon: float = 0.2,
    clips_to_zero: bool | None = None,
) -> dict[str, Any]:
    """What each age of data does: the figures of metrics.jsonl (d95, ess, dead_frac, share_old, ...) for samples [N].

    log_ratio, advantage and multiplier: [N], or [N, dims] with one ratio per action dimension; a surrogate in place of
    the multipliers computes them. gap: policy versions since each sample was collected; age: environment steps since.
    t_old: from this gap on a sample is old. window: the gap at which data leaves the replay, the unit of the
    histograms and profiles by age; the largest gap unless given. clips_to_zero: whether a multiplier of zero is a clip's doing.
    """
    log_ratio, advantage = (np.ascontiguousarray(a, np.float32) for a in np.broadcast_arrays(log_ratio, advantage))
    if isinstance(multiplier, Surrogate):
        clips_to_zero = multiplier.clips_to_zero if clips_to_zero is None else clips_to_zero
        multiplier = multiplier.multiplier(log_ratio, advantage)
    multiplier = np.ascontiguousarray(multiplier, np.float32)
    gap = np.ascontiguousarray(gap, np.int64)
    age = np.zeros(gap.shape) if age is None else np.ascontiguousarray(age, np.float64)
    samples = log_ratio.shape[0] if log_ratio.ndim in (1, 2) else -1
    if multiplier.shape != log_ratio.shape or gap.shape != (samples,) or age.shape != (samples,) or log_ratio.size == 0:
        raise _core.ConfigError(
            f"gipo.diagnostics: log_ratio {log_ratio.shape}, multiplier {multiplier.shape}, gap {gap.shape}, age "
            f"{age.shape}: wanted [N] or [N, dims] for the first two, [N] for the others, N at least 1"
        )
    shape = (samples, log_ratio.size // samples)
    window = float(max(1, gap.max())) if window is None else window
    return _core.diagnostics(
        log_ratio.reshape(shape), advantage.reshape(shape), multiplier.reshape(shape), gap, age, t_old, window, epsilon,
        bool(clips_to_zero),
    )


# The inputs of the bounds with what the command line accepts.
_RANGES = {
    "sigma": (1e-3, 1e3), "importance_max": (1, 1e9), "kl": (0, 1e12), "kl_behaviour": (0, 1e12), "kl_step": (0, 1e12),
    "advantage_bound": (1e-12, 1e12), "discount": (0, 0.9999999), "gain": (-1e12, 1e12), "samples": (1, 2**50),
    "alpha": (1e-12, 0.999), "bias": (1e-12, 1e12), "interval": (1e-12, 1e12),
}  # fmt: skip


def certify(run: str | PathLike[str] | None = None, **inputs: float) -> dict[str, float]:
    """The paper's bounds as numbers, as `gipo certify` computes them; docs/certify.md explains each.

    run: take the inputs from a run of GIPO; those given beside it win. inputs: sigma, importance_max, kl,
    kl_behaviour, kl_step, advantage_bound, discount, gain, samples, alpha. bias: also find the least sigma whose bound on E[1 - w] is at most
    this; interval: the greatest whose interval is. NaN where there is none.
    """
    for key, value in inputs.items():
        if key not in _RANGES:
            raise _core.ConfigError(f"gipo.certify: unknown input {key}; known: {', '.join(_RANGES)}")
        check_range(f"gipo.certify: {key}", value, *_RANGES[key])
    wanted = {key: float(inputs.pop(key)) for key in ("bias", "interval") if key in inputs}
    if run is None and "sigma" not in inputs and not wanted:
        raise _core.ConfigError("gipo.certify: wants a run folder, or sigma, or bias or interval to find it")
    out = _core.certificate(None if run is None else fspath(run), {key: float(v) for key, v in inputs.items()})
    if run is None and "sigma" not in inputs:  # nothing to certify yet
        given = {"importance_max", "kl", "kl_behaviour", "kl_step", "advantage_bound", "discount", "gain", "samples", "alpha"}
        out = {key: value for key, value in out.items() if key in given}
    if "bias" in wanted:
        out["least_sigma"] = _core.least_sigma(wanted["bias"], out["kl"])
    if "interval" in wanted:
        out["greatest_sigma"] = _core.greatest_sigma(
            wanted["interval"], out.get("importance_max", 1.0) * out["advantage_bound"], out["samples"], out["alpha"]
        )
    return out


def _contiguous(*arrays: ArrayLike) -> list[np.ndarray]:
    """As float32 where all are, else float64; copied only where an array is neither that nor contiguous."""
    seen = [np.asarray(array) for array in arrays]
    dtype = np.float32 if all(array.dtype == np.float32 for array in seen) else np.float64
    # asarray with order="C" keeps arrays without dimensions, which ascontiguousarray does not.
    return [np.asarray(array, dtype=dtype, order="C") for array in seen]


def _same_shape(log_ratio: ArrayLike, advantage: ArrayLike) -> list[np.ndarray]:
    return _contiguous(*np.broadcast_arrays(log_ratio, advantage))


def _segments(
    where: str, reward: ArrayLike, value: ArrayLike, terminated: ArrayLike, *like_reward: ArrayLike
) -> tuple[list[np.ndarray], bool]:
    reward, value, *others = _contiguous(reward, value, *like_reward)
    single = reward.ndim == 1
    rows, steps = (1, reward.size) if single else (reward.shape if reward.ndim == 2 else (-1, -1))
    ends = np.asarray(terminated, dtype=bool)
    wanted = (steps + 1,) if single else (rows, steps + 1)
    if rows < 0 or value.shape != wanted or any(other.shape != reward.shape for other in others) or (
        ends.shape not in ((), (rows,))
    ):
        shapes = ", ".join(str(array.shape) for array in (reward, value, *others, ends))
        raise _core.ConfigError(
            f"{where}: shapes {shapes}: wanted reward [T] and value [T + 1], or [B, T] and [B, T + 1] with terminated "
            "[B], and log_ratio like reward"
        )
    ends = np.ascontiguousarray(np.broadcast_to(ends, (rows,)))
    shaped = [reward.reshape(rows, steps), value.reshape(rows, steps + 1), ends]
    return shaped + [other.reshape(rows, steps) for other in others], single
