"""Options as Python writes them: the keys of a config file, nested, with dots, or as keywords with two underscores."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Any

import numpy as np

from gipo import _core

# How messages of the library call what is an argument here.
FLAGS = {
    "--name or --set run.dir=...": "name or run__dir", "with --overwrite": "with overwrite=True",
    "--overwrite: ": "overwrite=True: ", "--updates: ": "gipo.resume: ", "--env-steps: ": "gipo.resume: ",
    "by --updates": "by gipo.resume", "--behaviour ": "behaviour ",
}

LENGTHS = frozenset({"learner.updates", "learner.env_steps"})  # two ways to say how long a run is

# What other libraries call an argument that has another name here.
ELSEWHERE = dict.fromkeys(
    (
        "total_timesteps", "timesteps", "num_timesteps", "max_timesteps", "n_timesteps", "total_steps", "steps",
        "num_steps", "n_steps", "max_steps", "total_env_steps", "num_env_steps", "max_env_steps",
    ),
    "env_steps",
)

Value = bool | int | float | str | list[Any] | dict[str, Any] | None

TASK = "env.options"  # whose values are the task's: of any shape, None among them
MOST_DEPTH = 32  # levels of lists and dictionaries, as in core/option_value.h


def flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """By full name: {"surrogate": {"sigma": 0.5}} and {"surrogate__sigma": 0.5} become {"surrogate.sigma": 0.5}.

    None leaves an option as it is. Options of a task (env.options) are kept whole, None and dictionaries among them.
    """
    flat: dict[str, Value] = {}
    for key, value in options.items():
        if not isinstance(key, str):
            raise _core.ConfigError(f"gipo.train: an option is named by text, not by {key!r}")
        full = prefix + (key if prefix == TASK + "." else key.replace("__", "."))
        if full.startswith(TASK + "."):
            flat[full] = nested(full, value)
        elif isinstance(value, Mapping):
            flat |= flatten(value, full + ".")
        elif value is not None:
            flat[full] = plain(full, value)
    return flat


def plain(key: str, value: Any, where: str = "gipo.train") -> Value:
    """The value as the compiled module takes it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PathLike):
        value = fspath(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        value = [item.item() if isinstance(item, np.generic) else item for item in value]
        if all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in value):
            return value
    elif isinstance(value, (bool, int, float, str)):
        return value
    raise _core.ConfigError(
        f"{where}: {key} = {value!r} is not accepted: wanted True or False, a number, text or a list of numbers"
    )


def nested(key: str, value: Any, level: int = 0) -> Value:
    """An option of a task as the compiled module takes it: of lists, dictionaries and None, too."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, PathLike):
        value = fspath(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if not isinstance(value, (list, tuple, Mapping)):
        raise _core.ConfigError(
            f"gipo.train: {key} = {value!r} is not accepted: wanted None, True or False, a number, text, or lists and "
            "dictionaries of these"
        )
    if level == MOST_DEPTH:
        raise _core.ConfigError(
            f"gipo.train: {key} is not accepted: it has more than {MOST_DEPTH} levels of lists and dictionaries"
        )
    if not isinstance(value, Mapping):
        return [nested(key, item, level + 1) for item in value]
    for name in value:
        if not isinstance(name, str):
            raise _core.ConfigError(f"gipo.train: {key} is not accepted: its key {name!r} is no text")
    return {name: nested(key, item, level + 1) for name, item in value.items()}


def from_toml(value: Any) -> Any:
    """An option of a task as it was given: a saved config spells None as the text "@none" (docs/bridge.md)."""
    if isinstance(value, str):
        return None if value == "@none" else value[1:] if re.fullmatch("@+@none", value) else value
    if isinstance(value, Mapping):
        return {key: from_toml(item) for key, item in value.items()}
    return [from_toml(item) for item in value] if isinstance(value, list) else value


@contextlib.contextmanager
def in_pythons_words(where: str, spelled: Mapping[str, str], given: Mapping[str, Value]) -> Iterator[None]:
    """Lets what the library refuses name the caller's arguments: `spelled` has them by the full name of the option.

    Options that came from a file or a dictionary keep the name that they have there.
    """
    try:
        yield
    except _core.ConfigError as error:
        raise _core.ConfigError(_translated(str(error), where, spelled, given)) from None


def _translated(text: str, where: str, spelled: Mapping[str, str], given: Mapping[str, Value]) -> str:
    unknown = re.match(r"[^:]*: unknown option (\S+?)(?: \(did you mean (\S+?)\?\))?; ", text)
    if unknown and unknown[1] in spelled:
        word = spelled[unknown[1]]
        near = ELSEWHERE.get(word, unknown[2]) if where == "gipo.train" else unknown[2]
        if near and where == "gipo.surrogate":  # the group goes without saying
            near = near.removeprefix("surrogate.")
        hint = f"; did you mean {near.replace('.', '__')!r}?" if near else ""
        return f"{where}() got an unexpected keyword argument {word!r}{hint}; docs/options.md has all options"
    for key, word in spelled.items():
        named = re.escape(key)
        if key in given:  # the value as Python writes it
            text = re.sub(rf"(?<![\w.]){named} = .*?(?= is not )", lambda _: f"{word} = {given[key]!r}", text)
        text = re.sub(rf"(?<![\w.]){named}(?![\w.])", word, text)
    for flag, argument in FLAGS.items():
        text = text.replace(flag, argument)
    return text


def check_range(name: str, value: Any, low: float, high: float) -> None:
    """Refuses what is no number from low to high."""
    if not (isinstance(value, (int, float, np.number)) and low <= value <= high):
        raise _core.ConfigError(f"{name} = {value!r} is not accepted: wanted a number from {low:g} to {high:g}")
