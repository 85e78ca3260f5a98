"""`gipo completion`: the words that a real shell offers, and the groups of `gipo --help`."""

import json
import re
import shutil
import subprocess

import pytest


def offered(binary, folder, line):
    """What bash completes for the line, whose last word is being typed."""
    script = """
eval "$("$1" completion bash)"
[[ "$(complete -p gipo)" == *"-F _gipo"* ]] || exit 3
read -ra COMP_WORDS <<<"$2"
[[ "$2" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; }  # of a completion that readline has begun
_gipo
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(["bash", "--norc", "-c", script, "bash", binary, line], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.split()


@pytest.fixture
def complete(binary, tmp_path):
    (tmp_path / "run.toml").touch()
    (tmp_path / "runs").mkdir()
    return lambda line: offered(binary, tmp_path, line)


def test_commands_and_options(complete, binary):
    shown = subprocess.run([binary, "--help"], capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^  ([a-z]+) ", shown, re.MULTILINE)
    assert "train" in commands and "completion" in commands
    assert sorted(complete("gipo ")) == sorted(commands)
    assert complete("gipo tr") == ["train"]
    assert complete("gipo train --s") == ["--set", "--seed"]
    assert complete("gipo eval runs --epi") == ["--episodes", "--episode"]
    assert complete("gipo study ") == ["gridworld", "multipliers"]
    assert complete("gipo study gridworld --opt") == ["--optimal"]


def test_values(complete, binary):
    listed = json.loads(subprocess.run([binary, "list", "options", "--json"], capture_output=True, check=True).stdout)
    assert complete("gipo train --set ") == [f"{option['key']}=" for option in listed]
    assert complete("gipo train --set surrogate.si") == [
        f"{o['key']}=" for o in listed if o["key"].startswith("surrogate.si")
    ]
    assert complete("gipo aggregate x.json --normalise ") == ["auto", "reference", "min_max", "none"]
    assert complete("gipo list o") == ["options"]
    assert complete("gipo completion ") == ["bash", "zsh", "fish"]
    assert complete("gipo train --seed ") == []
    assert complete("gipo train run") == ["run.toml", "runs"]
    assert complete("gipo eval runs --video ru") == ["run.toml", "runs"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_theirs(binary, shell):
    script = subprocess.run([binary, "completion", shell], capture_output=True, text=True, check=True).stdout
    assert "gridworld" in script and "surrogate.sigma=" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_fish_offers(binary, tmp_path):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    for line, word in [("gipo tr", "train"), ("gipo train --dr", "--dry-run"), ("gipo study g", "gridworld")]:
        script = f"{binary} completion fish | source; complete -C '{line}'"
        done = subprocess.run(["fish", "--no-config", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert word in [shown.split("\t")[0] for shown in done.stdout.splitlines()], done.stdout


def test_unknown_shell(binary):
    done = subprocess.run([binary, "completion", "tcsh"], capture_output=True, text=True)
    assert done.returncode == 2 and "tcsh" in done.stderr


def test_every_command_has_a_group(binary):
    shown = subprocess.run([binary, "--help"], capture_output=True, text=True, check=True).stdout
    assert "Subcommands:" not in shown  # those without one
    assert shown.index("Train a policy:") < shown.index("Look at a run:") < shown.index("This program and machine:")
