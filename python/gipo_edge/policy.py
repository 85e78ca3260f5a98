"""The policy of a learner, computed here: a multi-layer perceptron in numpy."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

NORM_EPSILON = 1e-5
HALF_LOG_2_PI = 0.9189385332046727


class EdgePolicy:
    """Weights of one version. Does not change: a newer one is another object."""

    def __init__(self, description: dict[str, Any], weights: bytes) -> None:
        self._d = description
        self.version, _ = struct.unpack_from("<2q", weights)
        at, arrays = 16, []
        for _ in range(4):  # policy, critic, mean and inverse deviation of observations
            (count,) = struct.unpack_from("<Q", weights, at)
            arrays.append(np.frombuffer(weights, "<f4", count, at + 8))
            at += 8 + 4 * count
        (self._limit,) = struct.unpack_from("<f", weights, at)
        flat, _, self._mean, self._inverse_std = arrays
        self._tensors = {}
        for tensor in description["tensors"]:
            count = int(np.prod(tensor["shape"]))
            self._tensors[tensor["name"].removeprefix("policy.")] = flat[tensor["offset"] : tensor["offset"] + count].reshape(tensor["shape"])
        self._layers = sum(name.endswith(".weight") and ".norm." not in name for name in self._tensors)
        self._choices = description["choices"]

    def _outputs(self, observation: np.ndarray) -> np.ndarray:
        x = np.clip((observation - self._mean) * self._inverse_std, -self._limit, self._limit)
        for i in range(self._layers):
            x = self._tensors[f"{i}.weight"] @ x + self._tensors[f"{i}.bias"]
            if i + 1 == self._layers:
                break
            x = np.tanh(x) if self._d["activation"] == "tanh" else np.maximum(x, 0)
            if self._d["layer_norm"]:
                x = (x - x.mean()) / np.sqrt(x.var() + NORM_EPSILON)
                x = x * self._tensors[f"{i}.norm.weight"] + self._tensors[f"{i}.norm.bias"]
        return x

    def choose(self, observation: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """An action drawn from the policy, in its own units, and the logarithm of its probability per dimension."""
        outputs, at, gaussian = self._outputs(observation), 0, 0
        action, log_prob = np.empty(len(self._choices), np.float32), np.empty(len(self._choices), np.float32)
        log_std = self._tensors.get("log_std", ())
        for d, n in enumerate(self._choices):
            if n == 0:
                z = random.standard_normal()
                action[d] = outputs[at] + z * np.exp(log_std[gaussian])
                log_prob[d] = -0.5 * z * z - log_std[gaussian] - HALF_LOG_2_PI
                gaussian += 1
            else:
                head = outputs[at : at + n].astype(np.float64)
                head -= head.max()
                head -= np.log(np.exp(head).sum())
                action[d] = min(int(np.searchsorted(np.cumsum(np.exp(head)), random.random(), "right")), n - 1)
                log_prob[d] = head[int(action[d])]
            at += max(n, 1)
        return action, log_prob

    def to_task(self, action: np.ndarray) -> Any:
        """As the task takes it: an int, an array of ints, or one of floats in the task's range."""
        kind = self._d["action"]
        if kind == "discrete":
            return int(action[0])
        if kind == "multi_discrete":
            return action.astype(np.int64)
        low, high = (np.array([sign * np.inf if v is None else v for v in self._d[name]])
                     for name, sign in (("low", -1), ("high", 1)))
        out = action.astype(np.float64)
        for d, bins in enumerate(self._choices):
            if bins > 0:
                out[d] = min(low[d] + (high[d] - low[d]) * out[d] / (bins - 1), high[d])
            elif np.isfinite(low[d]) and np.isfinite(high[d]):
                out[d] = np.clip(low[d] + (high[d] - low[d]) * 0.5 * (out[d] + 1), low[d], high[d])
            else:
                out[d] = np.clip(out[d], low[d], high[d])
        return out
