"""Environments of the caller's own, as a worker process can make them.

What a worker can import is named: `python:MODULE:NAME`. What it cannot (a class of a notebook, a closure, an environment
that exists already) is pickled by value; the run folder keeps the pickle, environment.pkl, so that the run can be resumed.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import re
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gipo import _core, worker

FILE = "environment.pkl"  # in the run folder
PICKLED = f"python:{FILE}:"


@dataclass(frozen=True)
class Task:
    """An environment as a run takes it: its id, further options of the run, and what no worker could import."""

    id: str
    given: Mapping[str, Any] = field(default_factory=dict)
    pickled: bytes | None = None


def task_of(env: Any) -> Task:
    """The environment that was given to `train`: an id, a class or function, an environment, several of these."""
    if isinstance(env, str):
        return Task(env.removeprefix("gipo/"))
    if inspect.isclass(env) or inspect.isroutine(env):
        name = importable_name(env)
        return Task(f"python:{name}") if name else _pickled([env])
    native = _native_task(env)
    if native:
        return native
    if isinstance(env, Sequence) and env:
        return _pickled(env)
    return _pickled(_parts_of(env))


def importable_name(env: Any) -> str | None:
    """MODULE:NAME of a class or function, or FILE.py:NAME where the script being run defines it."""
    module, name = getattr(env, "__module__", None) or "", getattr(env, "__qualname__", "<")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not env:
        return None
    if module == "__main__":
        module = _main_module()
    return f"{module}:{name}" if module else None


def _main_module() -> str | None:
    if "ipykernel" in sys.modules:  # a notebook, whatever file has started its kernel
        return None
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:  # python -m MODULE
        return spec.name
    return str(Path(file).resolve()) if file and Path(file).is_file() else None


def _native_task(env: Any) -> Task | None:
    """Environments of gipo.make_env and gipo.make_vec, and gymnasium.make of their ids, are run as what they are."""
    native, base = sys.modules.get("gipo.native"), getattr(env, "unwrapped", None)
    if native is None or not isinstance(base, (native.NativeEnv, native.NativeVectorEnv)):
        return None
    wrapped = {type.__name__ for type in _wrappers(env)[:-1]}
    if not wrapped <= {"TimeLimit", "OrderEnforcing", "PassiveEnvChecker"}:  # those that gymnasium.make adds
        return None
    options = dict(base.made_of)
    id, limit = options.pop("id"), options.pop("max_episode_steps")
    limit = env.spec.max_episode_steps if wrapped else limit
    given = {f"env.options.{name}": value for name, value in options.items()}
    return Task(id, given | ({"env.time_limit": limit} if limit else {}))


def _parts_of(env: Any) -> Sequence[Any]:
    """What stands for an environment, or for each of a vector of environments."""
    if _is_env(env) and not hasattr(env, "num_envs"):
        return [env]
    for name in ("env_fns", "envs"):  # Gymnasium's SyncVectorEnv and AsyncVectorEnv; Stable-Baselines3's DummyVecEnv
        if isinstance(getattr(env, name, None), Sequence) and not hasattr(env, "venv"):
            return getattr(env, name)
    if callable(env) and not _is_env(env):
        return [env]
    if hasattr(env, "venv"):
        why = (
            "it is a wrapper around vectorised environments: give one environment, or the list of functions that make "
            "them; env__normalise_observations and env__normalise_rewards do what VecNormalize does"
        )
    elif hasattr(env, "num_envs"):
        why = "its environments cannot be taken out of it: give one of them, or the list of functions that make them"
    else:
        why = "wanted an id, an environment, or the class or function that makes one"
    raise _core.ConfigError(f"gipo.train: env = {env!r:.200} is not accepted: {why}")


def _is_env(env: Any) -> bool:
    return all(hasattr(env, name) for name in ("reset", "step", "action_space", "observation_space"))


def _pickled(parts: Sequence[Any]) -> Task:
    import cloudpickle

    for part in parts:
        if not (callable(part) or _is_env(part)):
            raise _core.ConfigError(
                f"gipo.train: env = {part!r:.200} is not accepted: wanted an id, an environment, or the class or function "
                "that makes one"
            )
    try:
        data = cloudpickle.dumps([_portable(part) for part in parts])
    except Exception as error:  # of whatever the environment holds
        raise _core.ConfigError(
            f"gipo.train: env = {parts[0]!r:.200} cannot be copied into worker processes "
            f"({type(error).__name__}: {error}): give the class or function that makes it"
        ) from error
    return Task(f"{PICKLED}{short_name(parts[0])}-{hashlib.sha256(data).hexdigest()[:12]}", {}, data)


def short_name(env: Any) -> str:
    """A word for an environment, in whatever form it was given: part of the name of a file."""
    spec, base = getattr(env, "spec", None), getattr(env, "unwrapped", env)
    name = env.rpartition(":")[2] if isinstance(env, str) else getattr(spec, "id", None) or getattr(
        env, "__qualname__", type(base).__qualname__
    ).rpartition(".")[2]
    return re.sub(r"[^\w.-]", "", name.rpartition("/")[2]) or "environment"


def _portable(part: Any) -> tuple[bool, Any]:
    """Whether it is to be called to get an environment, and the part, or how Gymnasium makes one like it."""
    import cloudpickle

    if not _is_env(part) or inspect.isclass(part):
        return True, part
    try:
        cloudpickle.dumps(part)
        return False, part
    except Exception:
        spec = getattr(part, "spec", None)
        if spec is None or _wrappers(spec.make()) != _wrappers(part):
            raise
        return True, spec.make


def _wrappers(env: Any) -> list[type]:
    found = [type(env)]
    while hasattr(env, "env"):
        env = env.env
        found.append(type(env))
    return found


@contextlib.contextmanager
def workers_find(task: Task | None = None, run: Path | None = None) -> Iterator[Callable[[str], object]]:
    """Lets worker processes that are started inside make what this process can: same interpreter, same path, and the
    pickled environment of the task, or of the run that is resumed. Yields what is to be called with the run folder."""
    trainer = os.environ.get("GIPO_TRAINER")
    if trainer not in (None, str(os.getpid())):
        raise _core.ConfigError(
            "gipo.train: called while a worker process imports the script, which would start workers without end: put "
            'it under `if __name__ == "__main__":`'
        )
    own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths = [os.path.abspath(path) for path in sys.path]
    added = [path for path in paths if os.path.isdir(path) and not path.startswith(tuple(own))]
    variables = {
        "GIPO_TRAINER": str(os.getpid()), "GIPO_PYTHON": os.environ.get("GIPO_PYTHON", sys.executable),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(added)),
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        pickled = task.pickled if task else None
        if pickled is not None:
            file = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gipo-")), FILE)
            file.write_bytes(pickled)
            variables[worker.variable_of(task.id)] = str(file)
        if run is not None:
            variables |= _saved_environment(run)
        stack.enter_context(_environment(variables))
        yield lambda folder: pickled is not None and Path(folder, FILE).write_bytes(pickled)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _saved_environment(run: Path) -> dict[str, str]:
    """The variable that lets workers load the pickle of a run folder, where its environment is one."""
    try:
        id = tomllib.loads((run / "config.toml").read_text())["env"]["id"]
    except (OSError, KeyError, ValueError):  # said by whoever reads the folder
        return {}
    if not id.startswith(PICKLED):
        return {}
    variable = {worker.variable_of(id): str((run / FILE).resolve())}
    try:
        with _environment(variable):
            worker.read_pickle(id)
    except worker.Mistake as mistake:  # before a run that was whole is touched
        raise _core.ConfigError(str(mistake)) from None
    return variable


def made_env(where: str, env: Any, options: Mapping[str, Any], limit: int | None, run: Path | None) -> tuple[Any, bool]:
    """An environment in this process, and whether it was made here: of an id, a class, a function or itself."""
    if not isinstance(env, str) and _is_env(env) and not inspect.isclass(env):
        if hasattr(env, "num_envs"):
            raise _core.ConfigError(f"{where}: env = {env!r:.200} is not accepted: wanted one environment, not several")
        if options:
            raise _core.ConfigError(f"{where}: {', '.join(options)}: options of an environment that is made already")
        return env, False
    try:
        if not isinstance(env, str):
            if not callable(env):
                raise worker.Mistake("wanted an id, an environment, or the class or function that makes one")
            return worker.maker_of(env, getattr(env, "__qualname__", "it"), options)(0), True
        source, _, name = env.partition(":")
        if source == "gymnasium":
            return worker.gymnasium_maker(name, options, limit)(0), True
        if source == "python":
            with _environment(_saved_environment(run) if run else {}):
                return worker.factory_maker(name, options)(0), True
        if source == "envpool":
            raise worker.Mistake("a pool is none that episodes are played on one after the other: wanted one environment")
    except worker.Mistake as mistake:
        raise _core.ConfigError(f"{where}: env = {env!r:.200}: {mistake}") from None
    except worker.UserCode as error:
        raise error.__cause__ from None
    from gipo.native import make_env

    return make_env(env.removeprefix("gipo/"), max_episode_steps=limit, **options), True
