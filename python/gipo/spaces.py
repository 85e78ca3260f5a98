"""The spaces of a task as the file of a policy describes them: raw observations to rows of numbers, numbers to actions.

How, the worker of environments says (worker.py), and what makes rows of its fields, for training and here alike. It
knows a space by the name of its class and by its attributes: those below are all that it asks for, so that Gymnasium
need not be there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gipo import _core, worker

MOST_LEVELS = 64  # of Dict and Tuple in a file


class Box:
    def __init__(self, described: dict[str, Any]) -> None:
        self.shape, self.dtype = _shape(described), _dtype(described)
        self.low = self._bound(described["low"], -np.inf)
        self.high = self._bound(described["high"], np.inf)

    def _bound(self, value: Any, missing: float) -> np.ndarray:
        """Not copied out where it is one number: a damaged shape takes no memory."""
        values = value if isinstance(value, list) else [value]
        bound = np.array([missing if v is None else v for v in values], dtype=self.dtype)
        return np.broadcast_to(bound[0], self.shape) if len(bound) == 1 else bound.reshape(self.shape)


class Discrete:
    shape = ()

    def __init__(self, described: dict[str, Any]) -> None:
        self.n, self.start, self.dtype = int(described["n"]), int(described["start"]), _dtype(described)
        if self.n < 1:
            raise ValueError("a Discrete without choices")


class MultiDiscrete:
    def __init__(self, described: dict[str, Any]) -> None:
        self.shape, self.dtype = _shape(described), _dtype(described)
        self.nvec, self.start = (np.array(described[n], dtype=np.int64).reshape(self.shape) for n in ("nvec", "start"))
        if (self.nvec < 1).any():
            raise ValueError("a MultiDiscrete without choices")


class MultiBinary:
    def __init__(self, described: dict[str, Any]) -> None:
        self.shape, self.dtype = _shape(described), _dtype(described)


class Dict:
    shape = None

    def __init__(self, spaces: dict[Any, Any]) -> None:
        self.spaces = spaces


class Tuple:
    shape = None

    def __init__(self, spaces: list[Any]) -> None:
        self.spaces = spaces


def _shape(described: dict[str, Any]) -> tuple[int, ...]:
    shape = tuple(int(n) for n in described["shape"])
    if any(n < 0 for n in shape):
        raise ValueError("a negative size")
    return shape


def _dtype(described: dict[str, Any]) -> np.dtype:
    dtype = np.dtype(described["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"{dtype} is no type of numbers")
    return dtype


def make_space(described: dict[str, Any], level: int = 0) -> Any:
    """What worker.describe_space described. Damage raises one of several exceptions."""
    if level > MOST_LEVELS:
        raise ValueError("too many levels")
    kind = described["kind"]
    if kind == "Dict":
        return Dict({key: make_space(part, level + 1) for key, part in described["spaces"]})
    if kind == "Tuple":
        return Tuple([make_space(part, level + 1) for part in described["spaces"]])
    return {"Box": Box, "Discrete": Discrete, "MultiDiscrete": MultiDiscrete, "MultiBinary": MultiBinary}[kind](described)


def _action_numbers(space: Any) -> int:
    kind = worker.kind_of(space)
    if kind in ("Dict", "Tuple"):
        return sum(_action_numbers(part) for _, part in worker.parts_of(space))
    return math.prod(space.shape)


def fields_with(fields: worker.Fields, roles: dict[str, str]) -> worker.Fields:
    """Those of an observation space, with the roles that a file says; what only a critic or nobody sees may be missing."""
    for field in fields.all:
        if roles.get(field.name) == "mask":
            field.become_mask()
        elif roles.get(field.name) == "critic":
            field.role = "critic"
    fields.let_missing()
    return fields


class Spaces:
    """Those of one policy. Raises ValueError where the description is damaged or is not that of its sizes."""

    def __init__(self, text: str, observation_size: int, action_dims: int, raw: Sequence[str] = ()) -> None:
        try:
            self.described = json.loads(text)
            self.observation, self.action = (make_space(self.described[n]) for n in ("observation", "action"))
            self._fields = fields_with(worker.Fields(self.observation), self.described.get("roles", {}))
            self._raw = [next(i for i, field in enumerate(self._fields.all) if field.name == name) for name in raw]
            described = [d | {"raw": i in self._raw} for i, d in enumerate(self._fields.described())]
            self._encoder = _core.Encoder(json.dumps(described))
            seen = any(field.role == "policy" for field in self._fields.all)
            fits = seen and self._encoder.size == observation_size and _action_numbers(self.action) == action_dims
        except worker.Mistake as mistake:
            raise ValueError(f"the description of its spaces is damaged: {mistake}") from None
        except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError, AttributeError) as error:
            raise ValueError(f"the description of its spaces is damaged: {error!r:.200}") from None
        if not fits:
            raise ValueError("the description of its spaces is not that of its networks")
        self.size = observation_size
        # Whether an observation is the networks' input as it is.
        self.takes_rows = isinstance(self.observation, (Box, MultiBinary)) and len(self.observation.shape) == 1 and not raw
        self._mask = next((i for i, field in enumerate(self._fields.all) if field.role == "mask"), None)
        self._one, self._many = worker.action_maker(self.action), worker.action_maker(self.action, together=True)

    def rows(self, obs: Any) -> tuple[np.ndarray, list[np.ndarray], np.ndarray | None, bool]:
        """Rows [N, size] of an observation, of a batch, or of rows already; and whether it was one observation.

        Between the two the fields that encoders read, [N, ...] each, and the mask of valid actions, where a field of the
        observation is one. Raises worker.Misfit where it is none of these.
        """
        if not self._raw and self._is_flat(obs):
            return np.reshape(obs, (-1, self.size)), [], None, np.ndim(obs) == 1
        batch = self._batch_of(obs)
        with np.errstate(over="ignore"):
            columns = [np.require(value, field.dtype, "CA")
                       for field, value in zip(self._fields.all, self._fields.values(obs, batch))]  # fmt: skip
        n = 1 if batch is None else batch
        mask = columns[self._mask].reshape(n, -1) if self._mask is not None and self._has_mask(obs) else None
        return self._encoder.rows(columns, n), [columns[i] for i in self._raw], mask, batch is None

    def _has_mask(self, obs: Any) -> bool:
        for key in self._fields.all[self._mask].keys:
            if isinstance(obs, dict) and key not in obs:
                return False
            obs = obs[key]
        return True

    def mask_of(self, given: Any, batch: int | None, size: int) -> np.ndarray:
        """A mask as info["action_mask"] gives it, of one action or with a batch in front. Raises worker.Misfit."""
        mask = worker.InfoMask(self.action, size)
        mask.part = "mask"
        return mask.fit({"action_mask": given}, batch)

    def actions(self, numbers: np.ndarray, single: bool) -> Any:
        """Of numbers [N, dims]: the action of the only row, or those of all, every part with N in front."""
        return self._one(numbers)[0] if single else self._many(numbers)

    def place(self, column: int) -> tuple[str, int]:
        """Where a number of a row stands: the name of the part of the observation, and its index there."""
        for role in ("policy", "critic"):
            for field in self._fields.all:
                seen = field.role == role and self._fields.all.index(field) not in self._raw
                floats = field.floats() if seen else 0
                if column < floats:
                    return field.part, column
                column -= floats
        raise IndexError(column)

    def _is_flat(self, obs: Any) -> bool:
        """An array that can only be rows already: neither an observation nor a batch of them has its shape."""
        if not isinstance(obs, np.ndarray):
            return False
        raw = self.observation.shape
        if raw is not None and (obs.shape == raw or obs.ndim == len(raw) + 1 and obs.shape[1:] == raw):
            return False
        return obs.ndim in (1, 2) and obs.shape[-1] == self.size

    def _batch_of(self, obs: Any) -> int | None:
        """How many observations: by the first part, which says so by one dimension more than its space has."""
        first = next(field for field in self._fields.all if field.role == "policy")
        try:
            for key in first.keys:
                obs = obs[key]
            return len(obs) if np.ndim(obs) == len(first.space_shape) + 1 else None
        except (TypeError, ValueError, LookupError):  # fit says what is wrong
            return None
