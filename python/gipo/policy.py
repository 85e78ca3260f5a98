"""Policies that act: raw observations of a task in, its actions out."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

import numpy as np

from gipo import _core, worker
from gipo.spaces import Spaces


class Policy:
    """A trained policy, from a run folder or a policy.safetensors: observations in, actions out.

    An observation is what the environment returns; a batch has N in front of every part of it, as Gymnasium's vector
    environments return it. Observations that are flattened already are taken as an array [size] or [N, size], where
    that cannot be a raw one or a batch of these. A number that is not finite, and another shape, raise ConfigError.

    One object serves one thread at a time.
    """

    def __init__(self, run: str | PathLike[str], which: str = "last") -> None:
        self._open(_core.Policy(fspath(run), which), fspath(run))

    @classmethod
    def _of(cls, core: _core.Policy) -> Policy:
        policy = cls.__new__(cls)
        policy._open(core, "the policy of the run")
        return policy

    def _open(self, core: _core.Policy, name: str) -> None:
        self.path = name  # where it was loaded from
        self._core = core
        try:
            described = self._core.spaces
            size, dims, raw = self.observation_size, self._core.action_dims, self._core.raw_fields
            self._spaces = Spaces(described, size, dims, raw) if described else None
        except ValueError as error:
            raise _core.ConfigError(f"{name}: {error}") from None
        self._is_row = self._spaces is None or self._spaces.takes_rows

    @property
    def env(self) -> str:
        """Id of the task it was trained on."""
        return self._core.env

    @property
    def version(self) -> int:
        """Optimizer updates behind it."""
        return self._core.version

    @property
    def observation_size(self) -> int:
        """Values of an observation, flattened."""
        return self._core.observation_size

    @property
    def action_kind(self) -> str:
        """The task's actions: "discrete", "multi_discrete", "box" or "composed"."""
        return self._core.action_kind

    @property
    def spaces(self) -> dict[str, Any] | None:
        """The task's spaces, "observation" and "action", as docs/run-folder.md describes them.

        None of a file that an earlier version saved: observations are then given flattened, choices count from 0.
        """
        return self._spaces.described if self._spaces else None

    @property
    def state_size(self) -> int:
        """Numbers that a policy with memory carries from step to step; 0 of one without."""
        return self._core.state_size

    def first_state(self, batch: int | None = None) -> np.ndarray:
        """The state of a policy with memory before an episode: float32 [state_size], or [batch, state_size]."""
        return np.zeros((self.state_size,) if batch is None else (batch, self.state_size), np.float32)

    def act(
        self, obs: Any, deterministic: bool = True, seed: int | None = None, mask: Any = None, state: np.ndarray | None = None
    ) -> Any:
        """The action for an observation, or the actions for a batch, as the task takes them: in its action space.

        Of a batch every part of the actions has N in front, as Gymnasium's vector environments take them.
        float32 observations that are contiguous are read where they lie; others are converted first.
        deterministic=False samples: from the policy's own random stream, which `seed` starts anew.
        A policy that was trained with a mask of valid actions takes no other: it reads the mask where the observation has
        it (env.mask), and else wants it as `mask`, as info["action_mask"] has it.
        A policy with memory wants its `state`: that of `first_state` where an episode begins. The call changes it in place
        to the state of the next step.
        """
        rows, raw, seen, single = self._masked_rows(obs)
        valid = self._valid(mask, seen, None if single else len(rows))
        before = self._state(state, None if single else len(rows))
        return self._actions(self._core.act(rows, raw, deterministic, seed, valid, before), single)

    def parameters(self, obs: Any, state: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """What the action's distribution is made of: "logits", or "mean" and "log_std"; all of composed actions.

        Those of a gaussian are in units where a bounded action range is -1 to 1. The state of a policy with memory stays as
        it is.
        """
        rows, raw, _, single = self._masked_rows(obs)
        out = self._core.parameters(rows, raw, self._state(state, None if single else len(rows)))
        return {name: v[0] if single and name != "log_std" else v for name, v in out.items()}

    def value(self, obs: Any, state: np.ndarray | None = None) -> np.ndarray | np.floating:
        """What the critic expects from here on, in units of the scaled reward: a scalar or [N]."""
        rows, raw, _, single = self._masked_rows(obs)
        values = self._core.value(rows, raw, self._state(state, None if single else len(rows)))
        return values[0] if single else values

    def flatten(self, obs: Any) -> np.ndarray:
        """The observation as the networks and an exported model take it: float32 [size], or [N, size] of a batch.

        Without the fields that encoders read: these are inputs of their own, by their names and as they are.
        """
        rows, _, _, single = self._masked_rows(obs)
        return rows[0] if single else rows

    def make_action(self, numbers: Any) -> Any:
        """The action of the numbers that an exported model gives, [dims], or those of [N, dims].

        Where action_kind is "discrete" these are a number, or [N].
        """
        array = np.asarray(numbers, dtype=np.float64)
        dims, row = self._core.action_dims, 0 if self.action_kind == "discrete" else 1
        if array.ndim not in (row, row + 1) or (row == 1 and array.shape[-1] != dims):
            raise _core.ConfigError(
                f"{self.env}: numbers of shape {array.shape} where those of actions belong: "
                f"{'() or (N,)' if row == 0 else f'({dims},) or (N, {dims})'}"
            )
        return self._actions(array.reshape(-1, dims), array.ndim == row)

    def _actions(self, numbers: np.ndarray, single: bool) -> Any:
        if self._spaces:
            return self._spaces.actions(numbers, single)
        if self.action_kind in ("box", "composed"):
            actions = numbers.astype(np.float32)
        else:
            actions = numbers.astype(np.int64)
            actions = actions[:, 0] if self.action_kind == "discrete" else actions
        return actions[0] if single else actions

    def _batch_of(self, obs: Any) -> int | None:
        rows, _, _, single = self._masked_rows(obs)
        return None if single else len(rows)

    def _state(self, given: np.ndarray | None, batch: int | None) -> np.ndarray | None:
        size = self.state_size
        if size == 0:
            if given is not None:
                raise _core.ConfigError(f"{self.env}: a state for a policy without memory")
            return None
        wanted = (size,) if batch is None else (batch, size)
        if not isinstance(given, np.ndarray) or given.shape != wanted or given.dtype != np.float32:
            seen = "none" if given is None else f"{getattr(given, 'dtype', type(given).__name__)} of shape {np.shape(given)}"
            raise _core.ConfigError(
                f"{self.env}: the policy has memory: wanted state= of float32 with shape {wanted}, as first_state() gives "
                f"it, and got {seen}"
            )
        if not (given.flags.c_contiguous and given.flags.writeable and np.isfinite(given).all()):
            raise _core.ConfigError(f"{self.env}: state is read-only, not contiguous or not finite: wanted an array to write to")
        return given.reshape(-1, size)

    def _valid(self, given: Any, seen: np.ndarray | None, batch: int | None) -> np.ndarray | None:
        size = self._core.mask_size
        if size == 0:
            if given is not None:
                raise _core.ConfigError(f"{self.env}: a mask for a policy that was trained without one")
            return None
        wanted = (size,) if batch is None else (batch, size)
        if given is None and seen is None:
            raise _core.ConfigError(
                f"{self.env}: the policy was trained with a mask of valid actions: wanted mask= of shape {wanted}"
            )
        try:
            if given is not None and self._spaces:
                seen = self._spaces.mask_of(given, batch, size)
        except worker.Misfit as misfit:
            raise _core.ConfigError(f"{self.env}: {misfit.part} {misfit.text}") from None
        if given is not None and not self._spaces:
            seen = np.asarray(given)
            if seen.shape != wanted or seen.dtype.kind not in "biu":
                raise _core.ConfigError(f"{self.env}: mask is {seen.dtype} of shape {seen.shape}: wanted bool of shape {wanted}")
        return np.ascontiguousarray(np.reshape(seen, (-1, size)) != 0).view(np.uint8)

    def _masked_rows(self, obs: Any) -> tuple[np.ndarray, list[np.ndarray], np.ndarray | None, bool]:
        raw, mask = [], None
        if self._is_row:
            rows, single = self._plain_rows(obs)
        else:
            try:
                rows, raw, mask, single = self._spaces.rows(obs)
            except worker.Misfit as misfit:
                raise _core.ConfigError(f"{self.env}: {misfit.part} {misfit.text}") from None
            with np.errstate(over="ignore"):
                rows = np.ascontiguousarray(rows, dtype=np.float32)
        if not np.isfinite(rows).all():
            row, column = np.argwhere(~np.isfinite(rows))[0]
            part, index = self._spaces.place(int(column)) if self._spaces else ("the observation", column)
            raise _core.ConfigError(
                f"{self.env}: {part} holds {rows[row, column]} at index {index}"
                f"{'' if single else f' of row {row}'}: wanted finite numbers"
            )
        return rows, raw, mask, single

    def _plain_rows(self, obs: Any) -> tuple[np.ndarray, bool]:
        try:
            with np.errstate(over="ignore"):
                array = np.ascontiguousarray(obs, dtype=np.float32)
        except (TypeError, ValueError):
            raise _core.ConfigError(f"{self.env}: the observation is {obs!r:.200}: wanted an array of numbers") from None
        size = self.observation_size
        if array.ndim not in (1, 2) or array.shape[-1] != size:
            raise _core.ConfigError(
                f"{self.env}: observations of shape {np.shape(obs)} where ({size},) or (N, {size}) belong"
            )
        return array.reshape(-1, size), array.ndim == 1

    def __repr__(self) -> str:
        return f"Policy({self.env!r}, {self.version} updates)"
