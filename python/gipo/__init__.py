"""Trains reinforcement-learning policies from replay of any age; docs/python.md is the tour.

    run = gipo.train(env="CartPole-v1", learner__updates=2000)
    action = run.policy().act(observation)

Names are imported when they are first used, so that `python -m gipo.report` and the workers of environments start
without the compiled module.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from gipo.registration import register_with_gymnasium

_PUBLIC = {
    "gipo.training": ["train", "resume", "load", "export", "presets", "zoo", "Run", "Figures"],
    "gipo.policy": ["Policy"],
    "gipo.trainer": ["Trainer"],
    "gipo.demonstrations": ["record_demonstrations"],
    "gipo.tokeniser": ["Tokeniser", "openvla_prompt"],
    "gipo.evaluation": ["evaluate", "Evaluation"],
    "gipo.native": ["make_env", "make_vec"],
    "gipo.video": ["Video"],
    "gipo.objective": ["surrogate", "surrogates", "Surrogate", "gae", "vtrace", "normalise", "diagnostics", "certify"],
    "gipo.scores": ["iqm", "aggregate", "Estimate", "performance_profile", "probability_of_improvement"],
    "gipo.grid": ["grid_study", "grid_optimum"],
    "gipo.large_model": ["LargeModel", "unnormalise"],
    "gipo._core": ["ConfigError", "RunError", "version"],
}
_OPTIONAL = ["RemoteActor", "ray"]  # need packages that few have: gRPC, Ray
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(_HOME)

# In a clone the compiled module lies in the build folder, as the program does (runs.find_binary).
_built = Path(__file__).resolve().parents[2] / os.environ.get("GIPO_BUILD_DIR", "build/release") / "python" / "gipo"
if _built.is_dir():
    __path__.append(str(_built))

register_with_gymnasium()


def __getattr__(name: str) -> object:
    if name == "ray":  # a module of its own
        return importlib.import_module("gipo.ray")
    if name == "RemoteActor":  # needs no engine
        return importlib.import_module("gipo_edge").RemoteActor
    if name not in _HOME:
        raise AttributeError(f"module 'gipo' has no attribute {name!r}")
    try:
        core = importlib.import_module("gipo._core")
    except ImportError as error:
        raise ImportError(
            f"gipo.{name} needs the compiled module, which this Python does not find ({error}): `pip install .` "
            "installs it; in a clone `make build` builds it, and GIPO_BUILD_DIR names the build folder"
        ) from error
    core.ConfigError.__module__ = core.RunError.__module__ = "gipo"  # as users know them
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_OPTIONAL})
