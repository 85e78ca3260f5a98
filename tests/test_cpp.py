"""The library as programs in C++ use it: installed, found by CMake, linked, and trained with (docs/cpp.md)."""

import re
import subprocess

import pytest
from conftest import BUILD, HANG, ROOT, summary

PAGE = ROOT / "docs" / "cpp.md"
EXAMPLE = ROOT / "examples" / "cpp" / "train_cartpole.cc"


def run(*words, cwd=None):
    done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def example(prefix, tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    run("cmake", "-S", EXAMPLE.parent, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder)
    return folder / "train_cartpole"


def test_public_headers_are_the_documented_ones(prefix):
    include = prefix / "include"
    headers = {str(path.relative_to(include)) for path in include.rglob("*") if path.is_file()}
    assert headers == set(re.findall(r"^\| `(gipo/\S+\.h)`", PAGE.read_text(), re.MULTILINE))


def test_library_shows_nothing_but_the_public_functions(prefix):
    [library] = prefix.glob("lib*/**/libgipo.so")
    symbols = [line.split(maxsplit=2)[1:] for line in run("nm", "-DC", "--defined-only", library).splitlines()]
    functions = {re.split(r"[(\[]", name)[0].removeprefix("gipo::") for kind, name in symbols if kind == "T"}
    header = (ROOT / "src/gipo/api/gipo.h").read_text()
    assert {"train", "resume", "read_result", "TrainedPolicy::act"} <= functions
    assert [name for name in functions if f"{name.split('::')[-1]}(" not in header] == []


def test_example_trains_and_acts(example, tmp_path):
    config = ROOT / "configs" / "fast" / "cartpole.toml"
    printed = run(example, config, cwd=tmp_path)
    figures = summary(tmp_path / "runs" / "cartpole")
    assert figures["ended"] == "solved" and figures["eval_return"]["mean"] > 400
    assert f"solved: greedy return {figures['eval_return']['mean']:.1f}" in printed
    assert "leans to the right: action 1" in printed

    again = subprocess.run([example, config], cwd=tmp_path, capture_output=True, text=True, timeout=HANG)
    assert again.returncode == 1 and "exists" in again.stderr  # gipo::Error caught by the example


def test_installed_program_runs(prefix, tmp_path):
    assert "gipo 0." in run(prefix / "bin" / "gipo", "--version", cwd=tmp_path)


def test_page_shows_the_example():
    assert f"```cpp\n{EXAMPLE.read_text()}```" in PAGE.read_text()
    assert len(re.findall(r"^[^/\n].*\S", EXAMPLE.read_text(), re.MULTILINE)) <= 22


def test_another_version_is_not_taken(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(p LANGUAGES CXX)\nfind_package(gipo 99.0 REQUIRED)\n"
    )
    done = subprocess.run(
        ["cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}"],
        capture_output=True, text=True, timeout=HANG,
    )  # fmt: skip
    assert done.returncode != 0 and "99.0" in done.stderr
