"""The folders of src/gipo depend on each other in one direction only, as ARCHITECTURE.md lists them."""

import json
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "gipo"
BUILD = ROOT / os.environ.get("GIPO_BUILD_DIR", "build/release")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def documented_folders():
    """The names that begin the lines of the first fenced block holding `src/gipo/`."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for block in re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if "src/gipo/" in block:
            return re.findall(r"^  (\w+)/", block, re.MULTILINE)
    return []


def source_files(*folders):
    return sorted(
        path for folder in folders for path in folder.rglob("*") if path.suffix in {".h", ".cc", ".def"}
    )


def test_every_folder_is_documented():
    folders = documented_folders()
    assert folders, "ARCHITECTURE.md lists no folders"
    assert len(set(folders)) == len(folders)
    # Git knows no empty folders, so one without files is not there yet.
    present = {path.relative_to(SOURCE).parts[0] for path in source_files(SOURCE)}
    assert present <= set(folders), "folders missing from ARCHITECTURE.md"


def test_no_source_lies_outside_a_folder():
    assert [path.name for path in SOURCE.iterdir() if path.is_file()] == []


def test_folders_include_only_what_stands_above_them():
    rank = {folder: i for i, folder in enumerate(documented_folders())}
    wrong = []
    for path in source_files(SOURCE):
        if path.name.endswith("_test.cc"):
            continue  # nothing depends on a test, and it may need what stands below: saved bytes, files
        own = path.relative_to(SOURCE).parts[0]
        for include in INCLUDE.findall(path.read_text()):
            parts = include.split("/")
            if parts[0] == "gipo" and rank.get(parts[1], len(rank)) > rank[own]:
                wrong.append(f"{path.relative_to(ROOT)} includes {include}")
    assert wrong == []


def test_includes_are_rooted_and_exist():
    wrong = []
    for path in source_files(SOURCE, ROOT / "tests", ROOT / "bench"):
        for include in INCLUDE.findall(path.read_text()):
            if not include.startswith("gipo/") or not (ROOT / "src" / include).is_file():
                wrong.append(f"{path.relative_to(ROOT)} includes {include}")
    assert wrong == []


def test_headers_are_guarded():
    headers = [path for path in source_files(SOURCE) if path.suffix == ".h"]
    assert [str(path) for path in headers if "#pragma once" not in path.read_text()] == []


def test_every_source_and_unit_test_is_compiled():
    commands = BUILD / "compile_commands.json"
    if not commands.exists():
        pytest.skip(f"no build in {BUILD}")
    compiled = {Path(entry["directory"], entry["file"]).resolve() for entry in json.loads(commands.read_text())}
    for path in [path for path in compiled if path.parent.name == "Unity"]:  # sources of a folder compiled as one
        compiled |= {Path(include) for include in INCLUDE.findall(path.read_text())}
    sources = [path for path in source_files(SOURCE) if path.suffix == ".cc"]
    left_out = []  # of each pair one: with the library, or without
    for name in ("policy/torch", "learner/torch", "learner/torch/rank_devices", "vla/torch", "vla/torch/torch_graph",
                 "remote/grpc", "learner/cuda", "population/cuda"):  # fmt: skip
        folder, absent = SOURCE / name, SOURCE / f"{name}_absent.cc"
        has_it = absent.resolve() not in compiled
        left_out += [path for path in sources
                     if (path == absent if has_it else folder in (path.parent, path.with_suffix("")))]  # fmt: skip
    assert [str(path.relative_to(ROOT)) for path in sources if path not in compiled and path not in left_out] == []


def test_unit_tests_stand_beside_what_they_test():
    strays = [path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*_test.cc")]
    assert strays == []
