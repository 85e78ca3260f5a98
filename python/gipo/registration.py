"""Makes the tasks of gipo known to Gymnasium: gymnasium.make("gipo/Hopper-v5") after `import gipo`.

Gymnasium is not imported for it: where it is not there yet, its own import brings them.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    import gymnasium
    from gymnasium.envs.registration import EnvSpec


def spec_of(id: str, limit: int, options: Mapping[str, Any] | None = None) -> EnvSpec:
    """What Gymnasium wants to know of a task."""
    from gymnasium.envs.registration import EnvSpec

    return EnvSpec(
        f"gipo/{id}", "gipo.registration:endless_env", max_episode_steps=limit or None, disable_env_checker=True,
        kwargs={"id": id, **(options or {})}, vector_entry_point="gipo.native:NativeVectorEnv",
    )  # fmt: skip


def endless_env(id: str, **options: Any) -> gymnasium.Env:
    """For gymnasium.make, whose wrapper counts the steps of an episode."""
    from gipo.native import NativeEnv

    return NativeEnv(id, max_episode_steps=0, **options)


def register() -> None:
    from gymnasium.envs.registration import registry

    try:
        from gipo import _core
    except ImportError:  # not built: whoever uses it is told
        return
    for id, limit in _core.native_envs().items():
        registry[f"gipo/{id}"] = spec_of(id, limit)


def register_with_gymnasium() -> None:
    """Now where Gymnasium is imported already, else right after its import."""
    if "gymnasium" in sys.modules:
        register()
    elif not any(isinstance(finder, _AfterGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())


class _AfterGymnasium:
    """A finder that has Gymnasium found by the others, once, and adds to what its loader does."""

    def find_spec(self, name: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            register()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
