"""Environments of the caller's own, by the name under which a worker process imports them.

Workers are processes of their own and nothing is pickled: what trains must be importable, as `python:MODULE:NAME`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gipo import _core


def env_id(env: str | type | Callable[..., Any]) -> str:
    """The env.id of an environment: text as it is, a class or function as python:MODULE:NAME.

    One that is defined in the script being run is named by the script's path. What no worker could import is refused.
    """
    if isinstance(env, str):
        return env
    if isinstance(env, partial):
        raise _refusal(env, "keyword arguments of an environment are options: env__options__NAME=VALUE")
    if not (inspect.isclass(env) or inspect.isroutine(env)):
        raise _refusal(env, "give an id, or the class or function that makes the environment, not an instance of it")
    module, name = env.__module__, env.__qualname__
    if "<" in name:
        raise _refusal(env, "it is defined inside a function: define it at the top level of a module")
    if module == "__main__":
        return f"python:{_main_module(env)}:{name}"
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not env:
        raise _refusal(env, f"{module}.{name} is another object by now: give that one")
    return f"python:{module}:{name}"


def _main_module(env: object) -> str:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m MODULE
        return spec.name
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).is_file() or "ipykernel" in sys.modules:
        raise _refusal(
            env, "it is defined in a notebook or an interactive session: save it in a file, for example with "
            "%%writefile my_env.py, and import it from there"
        )
    return str(Path(file).resolve())


def _refusal(env: object, why: str) -> Exception:
    return _core.ConfigError(f"gipo.train: env = {env!r} cannot be made by a worker process: {why}")


@contextlib.contextmanager
def workers_find() -> Iterator[None]:
    """Lets worker processes that are started inside import what this process can: same interpreter, same path."""
    trainer = os.environ.get("GIPO_TRAINER")
    if trainer not in (None, str(os.getpid())):
        raise _core.ConfigError(
            "gipo.train: called while a worker process imports the script, which would start workers without end: put "
            'it under `if __name__ == "__main__":`'
        )
    before = {name: os.environ.get(name) for name in ("GIPO_TRAINER", "GIPO_PYTHON", "PYTHONPATH")}
    own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths = [os.path.abspath(path) for path in sys.path]
    added = [path for path in paths if os.path.isdir(path) and not path.startswith(tuple(own))]
    os.environ["GIPO_TRAINER"] = str(os.getpid())
    os.environ.setdefault("GIPO_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(added))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
