"""An environment of one's own is named as a worker process can import it, or refused with what to do."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import gipo as library
import pytest
from conftest import ROOT
from gipo.envs import env_id, workers_find


class Mine:
    class Inner:
        pass


def make():
    return Mine()


def replaced():
    pass


first_replaced = replaced


def replaced():  # noqa: F811
    pass


def test_names_that_a_worker_can_import():
    assert env_id("CartPole-v1") == "CartPole-v1"
    assert env_id(Mine) == f"python:{__name__}:Mine"
    assert env_id(Mine.Inner) == f"python:{__name__}:Mine.Inner"
    assert env_id(make) == f"python:{__name__}:make"
    assert env_id(functools.reduce) == "python:_functools:reduce"


def test_what_no_worker_could_make_is_refused():
    class Local:
        pass

    for env, said in [
        (Mine(), "give an id, or the class or function"),
        (Local, "defined inside a function"),
        (lambda: Mine(), "defined inside a function"),
        (functools.partial(make), "env__options__NAME=VALUE"),
        (first_replaced, "is another object by now"),
    ]:
        with pytest.raises(library.ConfigError, match=said):
            library.train(env=env)


SCRIPT = "from gipo.envs import env_id\nclass Mine: pass\nprint(env_id(Mine))\n"


def run(*arguments, folder, text=None):
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, input=text, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
    )  # fmt: skip


def test_class_of_the_script_itself_is_named_by_its_file(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    assert run("script.py", folder=tmp_path).stdout == f"python:{Path(tmp_path).resolve()}/script.py:Mine\n"
    assert run("-m", "script", folder=tmp_path).stdout == "python:script:Mine\n"
    for done in (run("-c", SCRIPT, folder=tmp_path), run("-", folder=tmp_path, text=SCRIPT)):
        assert "%%writefile my_env.py" in done.stderr and "ConfigError" in done.stderr


def test_workers_get_interpreter_and_path(monkeypatch, tmp_path):
    monkeypatch.delenv("GIPO_PYTHON", raising=False)
    monkeypatch.setenv("PYTHONPATH", "before")
    monkeypatch.syspath_prepend(tmp_path)
    with workers_find():
        assert os.environ["GIPO_PYTHON"] == sys.executable
        assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)
        assert not any("site-packages" in path for path in os.environ["PYTHONPATH"].split(os.pathsep))
    assert "GIPO_PYTHON" not in os.environ and os.environ["PYTHONPATH"] == "before"


def test_training_inside_a_worker_is_refused(monkeypatch):
    monkeypatch.setenv("GIPO_TRAINER", "1")
    with pytest.raises(library.ConfigError, match="if __name__ == "):
        library.train(env="CartPole-v1")
