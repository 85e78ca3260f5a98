"""The large model: a policy of OpenVLA-OFT's architecture that acts and is trained from arrays; docs/large-model.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike, fspath

import numpy as np
from numpy.typing import ArrayLike

from gipo import _core
from gipo.options import Value, plain

CHOICES = 256
_LAST_CENTRE = CHOICES - 2  # of 255 centres between 256 edges


def unnormalise(choices: ArrayLike, q01: ArrayLike, q99: ArrayLike, mask: ArrayLike | None = None) -> np.ndarray:
    """Actions in the units of a dataset, of choices [..., dims] in 0 to 255.

    q01, q99: its quantiles, as norm_stats in OpenVLA's config.json has them. mask: which dimensions they apply to; the
    others stay between -1 and 1.
    """
    choices, q01, q99 = np.asarray(choices), np.asarray(q01, np.float64), np.asarray(q99, np.float64)
    if choices.size and not (choices.min() >= 0 and choices.max() < CHOICES):
        raise _core.ConfigError(f"unnormalise: choices from {choices.min()} to {choices.max()}: wanted 0 to 255")
    edges = np.linspace(-1, 1, CHOICES)
    centres = (edges[:-1] + edges[1:]) / 2
    # A choice is the token 31744 + choice, and the token 32000 - b stands for bin b, counted from 1.
    between = centres[np.clip(CHOICES - 1 - choices, 0, _LAST_CENTRE)]
    scaled = 0.5 * (between + 1) * (q99 - q01 + 1e-8) + q01
    return scaled if mask is None else np.where(np.asarray(mask, bool), scaled, between)


class LargeModel:
    """A policy of OpenVLA-OFT's architecture.

    model: the folder of a checkpoint, or "7b", "1b", "10m" for random weights from `seed`. device: "cpu" (all in float32),
    "cuda", "cuda:1" (bf16). train: with room for gradients and AdamW. lora: the rank; 0 trains everything, less the towers
    with frozen_vision. act_bits: 8 lets `act` take the products of the language model in 8-bit floats; `infer` stays as it
    is. recompute: how many language layers are run again for the gradient, how many of the others from
    their gate and up products on, how many blocks of each tower; -1 is all. deterministic: on a card, the same bytes each
    time.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        device: str = "cpu",
        train: bool = False,
        frozen_vision: bool = False,
        lora: int = 0,
        lora_alpha: float = 0.0,
        recompute: tuple[int, int, int] = (-1, 0, -1),
        deterministic: bool = False,
        act_bits: int = 16,
        seed: int = 0,
    ) -> None:
        self._core = _core.LargeModel(
            fspath(model), device, train, frozen_vision, lora, lora_alpha, recompute, deterministic, act_bits, seed
        )
        self.config: dict[str, float] = json.loads(self._core.config)["gipo_openvla_oft"]

    def infer(self, images: ArrayLike, prompts: Sequence[Sequence[int]], proprio: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Logits [n, tokens of a chunk, 256] before the temperature, and values [n].

        images: bytes [n, cameras, image, image, 3]. prompts: the tokens of each sample. proprio: [n, 8].
        """
        return self._core.infer(_bytes(images), _tokens(prompts), _floats(proprio))

    def act(
        self,
        images: ArrayLike,
        prompts: Sequence[Sequence[int]],
        proprio: ArrayLike,
        *,
        temperature: float = 1.6,
        seed: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """A choice for each token [n, chunk, dims] and its log-prob. seed: samples; without one the likeliest is taken."""
        return self._core.act(_bytes(images), _tokens(prompts), _floats(proprio), temperature, seed)

    def accumulate(
        self,
        images: ArrayLike,
        prompts: Sequence[Sequence[int]],
        proprio: ArrayLike,
        actions: ArrayLike,
        behaviour: ArrayLike,
        advantage: ArrayLike,
        target: ArrayLike,
        *,
        centre: ArrayLike | None = None,
        age: ArrayLike | None = None,
        total: int | None = None,
        ratio: str = "token",
        temperature: float = 1.6,
        entropy_coef: float = 0.0,
        value_coef: float = 0.5,
        value_reaches_trunk: bool = False,
        **surrogate: Value,
    ) -> dict[str, float | np.ndarray]:
        """Adds the gradient of the loss of these samples, of an update's `total` (all of them here unless given).

        actions, behaviour, centre: choices and log-probs [n, tokens]. advantage, target, age: [n]. ratio: of each "token",
        each "action" or the whole "chunk". surrogate: the options of the group of this name, name="ppo", epsilon=0.2.
        """
        actions = np.ascontiguousarray(actions, np.int32)
        options = {key: plain(key, value, "gipo.LargeModel") for key, value in surrogate.items()}
        return self._core.accumulate(
            _bytes(images), _tokens(prompts), _floats(proprio), actions.reshape(-1), _flat(behaviour), _flat(advantage),
            _flat(target), None if centre is None else _flat(centre), None if age is None else _flat(age),
            len(actions) if total is None else total, ratio, temperature, entropy_coef, value_coef, value_reaches_trunk, options,
        )  # fmt: skip

    def imitate(
        self,
        images: ArrayLike,
        prompts: Sequence[Sequence[int]],
        proprio: ArrayLike,
        actions: ArrayLike,
        *,
        total: int | None = None,
    ) -> float:
        """Adds the gradient of minus the log-likelihood of these choices: cloning of who made them. Their mean log-prob.

        As `accumulate`, at temperature 1; the value head learns nothing.
        """
        actions = np.ascontiguousarray(actions, np.int32).reshape(len(np.asarray(actions)), -1)
        n = len(actions)
        nothing = np.zeros(n, np.float32)
        # With topr every sample of positive advantage has the weight 1, however old it is.
        figures = self.accumulate(
            images, prompts, proprio, actions, np.zeros(actions.shape, np.float32), np.ones(n, np.float32), nothing,
            total=total, temperature=1.0, value_coef=0.0, name="topr",
        )  # fmt: skip
        return float(np.mean(figures["log_prob"]))

    def step(
        self,
        rate: float = 1e-5,
        *,
        value_rate: float = 3e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        max_norm: float = 1.0,
    ) -> float:
        """AdamW with the gradient so far. Its norm; where that is not finite nothing is changed."""
        return self._core.step(rate, value_rate, *betas, epsilon, weight_decay, max_norm)

    def save(self, folder: str | PathLike[str], *, merged: bool = False) -> None:
        """A checkpoint in a new folder. merged: with the adapters added to the weights."""
        self._core.save(fspath(folder), merged)

    def save_adapters(self, folder: str | PathLike[str]) -> None:
        """LoRA alone, in PEFT's files, in a new folder."""
        self._core.save_adapters(fspath(folder))

    def load_adapters(self, folder: str | PathLike[str]) -> None:
        """What `save_adapters` wrote, or PEFT."""
        self._core.load_adapters(fspath(folder))

    def save_state(self, path: str | PathLike[str]) -> None:
        """What AdamW keeps and the low halves of bf16 weights: with the checkpoint, all that training goes on from."""
        self._core.save_state(fspath(path))

    def load_state(self, path: str | PathLike[str]) -> None:
        """What `save_state` wrote, for a model with the same sizes and options."""
        self._core.load_state(fspath(path))


def _bytes(images: ArrayLike) -> np.ndarray:
    images = np.asarray(images)
    if images.dtype != np.uint8:
        raise _core.ConfigError(f"images of {images.dtype}: wanted uint8")
    return np.ascontiguousarray(images)


def _tokens(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[int(token) for token in prompt] for prompt in prompts]


def _floats(values: ArrayLike) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32)


def _flat(values: ArrayLike) -> np.ndarray:
    return _floats(values).reshape(-1)
