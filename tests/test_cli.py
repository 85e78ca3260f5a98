"""The command line: what it accepts, what it refuses and how, and what a run leaves behind."""

import json
import re
import shlex
import shutil
import signal
import struct
import subprocess

import gipo as library
import numpy as np
import pytest
from conftest import HANG, ROOT, TINY, json_lines, read_safetensors, settings, summary, wait_until

BAD_FILES = {
    # name: (text of run.toml, place, what the message must say)
    "unknown key": ("[surrogate]\nsigm = 1\n", "run.toml:2:", ["surrogate.sigm", "did you mean surrogate.sigma?"]),
    "unknown group": ("\n[surogate]\nsigma = 1\n", "run.toml:2:", ["surogate", "did you mean surrogate?", "learner"]),
    "key outside its group": ("sigma = 1\n", "run.toml:1:", ["did you mean surrogate.sigma?"]),
    "unknown surrogate": ('[surrogate]\nname = "gippo"\n', "run.toml:2:", ["gippo", "did you mean gipo?", "sapo"]),
    "unknown env": ('[env]\nid = "CartPole-v2"\n', "run.toml:2:", ["CartPole-v2", "did you mean CartPole-v1?", "Pendulum-v1"]),
    "unknown word": ('[run]\nmode = "lockstp"\n', "run.toml:2:", ["lockstep or async", "did you mean lockstep?"]),
    "wrong type": ('[learner]\n\nupdates = "many"\n', "run.toml:3:", ["learner.updates", '"many"', "integer", "1 to 1000000000000"]),
    "wrong kind of list": ('[policy]\nhidden = [1.5]\n', "run.toml:2:", ["policy.hidden", "[1.5]", "list of integers"]),
    "out of range": ("[advantage]\ngamma = 1.5\n", "run.toml:2:", ["advantage.gamma = 1.5", "0 to 1"]),
    "not finite": ("[learner]\npolicy_lr = nan\n", "run.toml:2:", ["learner.policy_lr", "finite"]),
    "syntax error": ("[run]\nseed = 1\nname = \"open\n", "run.toml:3:", ["not valid TOML"]),
    "dial set three times": (
        "[staleness]\nregime = \"custom\"\nwindow = 10\nenv_steps_per_update = 10\n[replay]\ncapacity = 5000\n",
        "run.toml:6:",
        ["replay.capacity = 5000", "staleness.window = 10", "leave one out"],
    ),
    "length given twice": (
        "[learner]\nupdates = 10\nenv_steps = 5000\n",
        "run.toml:2:",
        ["learner.env_steps = 5000", "learner.updates = 10", "leave one out (learner.env_steps is set by run.toml:3)"],
    ),
    "regime contradicted": ("[staleness]\nwindow = 10\n", "run.toml:2:", ['"stale"', "0.87", "custom"]),
    "distribution does not fit": ('[policy]\ndistribution = "gaussian"\n', "run.toml:2:", ["gaussian", "CartPole-v1"]),
    "name with a slash": ('[run]\nname = "a/b"\n', "run.toml:2:", ["a/b", "without a slash"]),
}

BAD_SETTINGS = {
    "surrogate.sigm=1": ["surrogate.sigm", "did you mean surrogate.sigma?"],
    "surrogate.name=gippo": ["gippo", "did you mean gipo?"],
    "env.id=CartPole-v2": ["CartPole-v2", "did you mean CartPole-v1?"],
    "learner.updates=many": ["learner.updates", '"many"', "integer"],
    "learner.updates=": ["learner.updates", '""', "integer"],
    "advantage.gamma=1.5": ["advantage.gamma = 1.5", "0 to 1"],
    "surrogate.kernel=gausian": ["gaussian, laplacian or cauchy", "did you mean gaussian?"],
    "learner.updates": ["group.name=value"],
}


@pytest.mark.parametrize("mode", [[], ["--dry-run"], ["--overwrite"]], ids=["train", "dry run", "overwrite"])
@pytest.mark.parametrize("case", BAD_FILES, ids=lambda case: case.replace(" ", "_"))
def test_bad_file_is_refused_before_anything_is_created(gipo, case, mode):
    text, place, parts = BAD_FILES[case]
    (gipo.folder / "run.toml").write_text(text)
    done = gipo("train", "run.toml", *mode)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"gipo: {place} "), done.stderr
    assert [part for part in parts if part not in done.stderr] == [], done.stderr
    assert done.stdout == ""
    assert gipo.entries() == ["run.toml"]


@pytest.mark.parametrize("setting", BAD_SETTINGS)
def test_bad_setting_is_refused_before_anything_is_created(gipo, setting):
    done = gipo("train", "--set", setting)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("gipo: --set"), done.stderr
    assert [part for part in BAD_SETTINGS[setting] if part not in done.stderr] == [], done.stderr
    assert gipo.entries() == []


def wrong_values(option):
    """Values of a wrong type, and where the option has a range or a list of words, values outside it."""
    kind, accepted = option["type"], option["accepted"]
    wrong = {"text": ["1", "[1]"], "true or false": ['"yes"', "1"], "list of integers": ["1.5", "[1.5]"]}
    values = list(wrong.get(kind, ['"many"', "true", "[1]"])) + ["1979-05-27"]
    if kind == "integer":
        values.append("0.5")
    numbers = [float(word) for word in re.findall(r"-?\d[\d.e+-]*", accepted)]
    if kind != "text" and numbers:  # "0 to 1", "above 0"
        beyond = [min(numbers) - 1, max(numbers) * 2 + 1] if " to " in accepted else [numbers[0] - 1]
        values += [f"[{int(v)}]" if kind == "list of integers" else str(int(v)) if kind == "integer" else repr(v)
                   for v in beyond]
    if kind == "number":
        values += ["nan", "inf"]
    if kind == "text" and accepted:
        values.append('"no such word"')
    return values


def test_every_option_with_a_wrong_value_is_refused_with_file_and_line(gipo):
    """Generated from the option table: wrong type and out of range, each with key, value and what is accepted."""
    options = json.loads(gipo("list", "options", "--json").stdout)
    assert {option["type"] for option in options} == {
        "text", "true or false", "integer", "number", "list of integers"}  # fmt: skip
    tried = 0
    for option in options:
        group, _, name = option["key"].partition(".")
        for value in wrong_values(option):
            (gipo.folder / "run.toml").write_text(f"# a run\n[{group}]\n{name} = {value}\n")
            done = gipo("train", "run.toml")
            assert done.returncode == 2, (option, value)
            assert done.stderr.startswith("gipo: run.toml:3: ") and done.stderr.count("\n") == 1, done.stderr
            assert option["key"] in done.stderr, done.stderr
            assert re.search("wanted|is not known", done.stderr), done.stderr
            if value[0] in '"0123456789[-' and "." not in value and "-05-" not in value:
                assert value.strip('[]"') in done.stderr, (value, done.stderr)
            tried += 1
            assert gipo.entries() == ["run.toml"]
    assert tried > 4 * len(options)


def test_what_no_machine_can_hold_is_refused_first(gipo):
    for setting, key in (
        ("policy.hidden=[65536,65536,65536]", "policy.hidden = [65536, 65536, 65536]"),
        ("staleness.env_steps_per_update=9", "replay.capacity = 9000000000"),
        ("replay.capacity=10000000000", "replay.capacity = 10000000000"),
    ):
        done = gipo("train", "--set", setting, "--set", "staleness.regime=custom", "--set", "staleness.window=1000000000")
        assert done.returncode == 2, done.stderr
        assert key in done.stderr and "GB" in done.stderr, done.stderr
        assert gipo.entries() == []


def test_file_that_cannot_be_read_is_refused(gipo):
    done = gipo("train", "/dev/zero")
    assert done.returncode == 2 and "/dev/zero: it holds more than 16777216 bytes" in done.stderr
    done = gipo("train", "--name", b"\xff\xfe".decode(errors="surrogateescape"))
    assert done.returncode == 2 and "--name" in done.stderr and "UTF-8" in done.stderr
    done = gipo("train", "missing.toml")
    assert done.returncode == 2
    assert "missing.toml: there is no such file, and no preset of that name" in done.stderr
    done = gipo("train", gipo.folder)  # not an empty config
    assert done.returncode == 2
    assert str(gipo.folder) in done.stderr
    assert gipo.entries() == []


@pytest.mark.parametrize(
    "arguments",
    [[], ["trian"], ["train", "--sed", "1"], ["train", "--seed", "x"], ["train", "--seed", "-1"], ["list"],
     ["list", "pets"], ["list", "surrogates", "--markdown"], ["eval"], ["eval", "x", "--episodes", "0"]],
    ids=" ".join,
)  # fmt: skip
def test_bad_arguments_are_refused(gipo, arguments):
    done = gipo(*arguments)
    assert done.returncode == 2
    assert done.stderr != ""
    assert gipo.entries() == []


def test_bench_says_what_it_does_not_know_and_goes_on(gipo):
    done = gipo("bench", "lerner", "inference", "--json")
    assert done.returncode == 2
    assert "bench lerner is not known (did you mean learner?)" in done.stderr
    rows = json.loads(done.stdout)
    names = [f"inference {width}x{width} rows {count}" for width in (64, 256) for count in (1, 16)]
    assert [row["name"] for row in rows] == names
    assert all(row["value"] > 0 and row["ratio"] > 0 for row in rows)
    assert "bench 1 of 4: inference 64x64 rows 1  ETA -\n" in done.stderr


LONG = "a" * 300


@pytest.mark.parametrize("arguments, parts", [
    (["--name", LONG], ["--name: run.name = ", "(300 bytes)", "at most 200 bytes"]),
    (["--set", f"run.name={LONG}"], ["--set: run.name = ", "at most 200 bytes"]),
    (["--set", "run.dir=" + "deep/" * 1000], ["--set: run.dir = ", "(5000 bytes)", "at most 3800 bytes"]),
    (["--set", f"run.dir=runs/{LONG}"], ["--set: run.dir = ", "at most 255 bytes"]),
    (["--set", r'run.name="a\u0000b"'], ["--set: run.name = ", r"a\u0000b", "zero byte"]),
    (["--set", r'run.dir="a\u0000b"'], ["--set: run.dir = ", "zero byte"]),
])  # fmt: skip
@pytest.mark.parametrize("mode", [[], ["--dry-run"]], ids=["train", "dry run"])
def test_names_that_no_folder_can_have_are_refused_before_anything_is_created(gipo, arguments, parts, mode):
    done = gipo("train", *arguments, *mode)
    assert done.returncode == 2, done.stderr
    assert [part for part in parts if part not in done.stderr] == [] and len(done.stderr) < 300, done.stderr
    assert gipo.entries() == []


@pytest.mark.parametrize("command", [["train"], ["clone"], ["resume"], ["eval"], ["doctor"], ["aggregate"], ["suite"], ["tune"], ["report"],
                                     ["certify"], ["export", "run"]], ids=" ".join)  # fmt: skip
@pytest.mark.parametrize("path", ["deep/" * 1000, LONG], ids=["path", "name"])
def test_paths_that_cannot_be_are_refused(gipo, command, path):
    done = gipo(*command, path)
    assert done.returncode == 2 and "is not accepted: " in done.stderr and "bytes" in done.stderr, done.stderr
    assert gipo.entries() == []


@pytest.mark.parametrize("arguments", [
    ["certify", "--sigma", "0x1"], ["certify", "--sigma", "1", "--samples", "0x10"], ["train", "--seed", "0x10"],
    ["train", "--seed", "010"], ["aggregate", "x.json", "--repetitions", "0x10"], ["aggregate", "x.json", "--taus", "0,0x1"],
    ["eval", "x", "--episodes", "0b1"], ["study", "gridworld", "--gipo", "0x1"],
], ids=" ".join)  # fmt: skip
def test_numbers_are_decimal(gipo, arguments):
    done = gipo(*arguments)
    assert done.returncode == 2 and arguments[-1].split(",")[-1] in done.stderr, done.stderr
    assert gipo.entries() == []


def test_config_of_a_megabyte_is_read(gipo):
    filler = "".join(f"# {i}: [a.b.c] = {{ 'it''s'\n" for i in range(40000))
    (gipo.folder / "run.toml").write_text(f"{filler}[learner]\nupdates = 17\n")
    done = gipo("train", "run.toml", "--dry-run", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["updates"] == 17, done.stderr


@pytest.mark.parametrize("text", ["a" + ".a" * 1000000 + " = 1", "a = " + "[" * 1000000, "a = " + "{a=" * 1000000],
                         ids=["dots", "lists", "tables"])  # fmt: skip
def test_deep_config_is_refused(gipo, text):
    (gipo.folder / "run.toml").write_text("\n" + text)
    done = gipo("train", "run.toml")
    assert done.returncode == 2 and "run.toml:2: " in done.stderr and "more than 32" in done.stderr, done.stderr


@pytest.mark.parametrize("text, part", [
    ('{"scores": {"a": {"t": [1, 1e999]}}}', "s.json: scores: a: t: 1e999 is not accepted"),
    ('{"scores": {"a": {"t": [1]}, "a": {"t": [2]}}}', "s.json: scores: the key a stands there twice"),
    ("[" * 60_000_000, "s.json: lists and objects more than 8 deep"),
    (" " * 70_000_000, "s.json: it holds more than 67108864 bytes"),
], ids=["beyond a number", "twice", "deep", "large"])  # fmt: skip
def test_scores_that_cannot_be_are_refused(gipo, text, part):
    (gipo.folder / "s.json").write_text(text)
    done = gipo("aggregate", "s.json")
    assert done.returncode == 2 and part in done.stderr, done.stderr


def test_version_and_help(gipo):
    for arguments, part in ((["--version"], "gipo 0."), (["--help"], "train"), (["train", "--help"], "--dry-run")):
        done = gipo(*arguments)
        assert done.returncode == 0
        assert part in done.stdout


def test_existing_run_folder_is_refused_and_overwritten_only_when_asked(gipo):
    run = gipo.train("one", {"run.seed": 1})
    files = lambda: {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    before = files()
    again = ["train", "--quiet", "--name", "one", *settings(TINY | {"run.seed": 2})]
    done = gipo(*again)
    assert done.returncode == 2
    assert "runs/one" in done.stderr and "--overwrite" in done.stderr
    assert files() == before
    done = gipo(*again, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert summary(run)["seed"] == 2


def test_overwrite_removes_only_runs(gipo):
    precious = gipo.folder / "runs" / "one" / "thesis.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("years of work")
    done = gipo("train", "--name", "one", "--overwrite", *settings(TINY))
    assert done.returncode == 2
    assert "does not look like a run folder" in done.stderr
    assert precious.read_text() == "years of work"


def test_dry_run_prints_config_dial_memory_and_time_and_creates_nothing(gipo):
    done = gipo("train", "--dry-run", *settings(TINY | {"learner.updates": 1000}))
    assert done.returncode == 0, done.stderr
    assert "window 870 updates (0.87 of all) = capacity 6960 transitions / 8 env steps per update" in done.stdout
    assert re.search(r"^# memory: about [\d.]+ MB \(program [\d.]+, .*\); .* has [\d.]+ [MG]B$", done.stdout, re.MULTILINE)
    assert re.search(r"^# time: about (\d+s|\d+m\d+s|\d+h\d+m) on this machine$", done.stdout, re.MULTILINE)
    assert gipo.entries() == []
    # What it prints is a config that gives the same again.
    (gipo.folder / "printed.toml").write_text(done.stdout)
    again = gipo("train", "printed.toml", "--dry-run")
    assert again.returncode == 0, again.stderr
    assert again.stdout.partition("# time")[0] == done.stdout.partition("# time")[0]


def test_dry_run_as_json(gipo):
    done = gipo("train", "--dry-run", "--json", *settings(TINY | {"learner.updates": 1000}))
    printed = json.loads(done.stdout)
    assert printed["staleness"] == {"capacity": 6960, "env_steps_per_update": 8.0, "window": 870.0, "t_old": 100,
                                    "actors": 2}
    assert printed["replay_megabytes"] > 0 and printed["estimated_seconds"] > 0
    assert printed["memory"]["fits"] and printed["memory"]["megabytes"] < printed["memory"]["limit"]["megabytes"]
    assert printed["updates"] == 1000 and printed["env_steps"] >= 8000
    assert gipo.entries() == []


PRESETS = sorted(str(path.relative_to(ROOT / "configs").with_suffix("")) for path in (ROOT / "configs").rglob("*.toml"))


def test_presets_are_found_by_name_in_any_folder(gipo):
    by_name = gipo("train", "classic/stale", "--dry-run", "--json", "--seed", "7")
    by_path = gipo("train", ROOT / "configs" / "classic" / "stale.toml", "--dry-run", "--json", "--seed", "7")
    assert by_name.returncode == 0, by_name.stderr
    assert json.loads(by_name.stdout)["config"] == json.loads(by_path.stdout)["config"]
    # A file of that name comes first.
    (gipo.folder / "classic").mkdir()
    (gipo.folder / "classic" / "stale").write_text("[learner]\nupdates = 17\n")
    assert json.loads(gipo("train", "classic/stale", "--dry-run", "--json").stdout)["updates"] == 17


def test_a_program_outside_its_clone_has_the_presets(gipo, tmp_path):
    away = shutil.copy(gipo.binary, tmp_path / "gipo")
    printed = [
        subprocess.run([binary, "list", "presets", "--json"], capture_output=True, text=True, timeout=HANG).stdout
        for binary in (away, gipo.binary)
    ]
    assert printed[0] == printed[1]
    assert [row["name"] for row in json.loads(printed[0])] == PRESETS


def test_presets_are_listed(gipo):
    printed = gipo("list", "presets").stdout
    assert [line.split()[0] for line in printed.splitlines()] == PRESETS
    assert "GIPO from a replay that keeps data for 0.87 of all updates: one setting for CartPole-v1" in printed
    unknown = gipo("train", "classic/stael")
    assert unknown.returncode == 2 and "did you mean classic/stale?" in unknown.stderr
    assert all(name in unknown.stderr for name in PRESETS)


def test_train_without_a_config_says_what_can_be_given(gipo):
    for words in ([], ["--seed", "1"]):
        done = gipo("train", *words)
        assert done.returncode == 2 and done.stdout == "" and gipo.entries() == []
        assert done.stderr.startswith("gipo: train: which config?") and "gipo train classic/stale\n" in done.stderr
        general = [name for name in PRESETS if not name.startswith("zoo/")]
        assert all(f"\n  {name} " in done.stderr for name in general), done.stderr
        assert "gipo train --zoo " in done.stderr and "zoo/" not in done.stderr


def test_length_in_env_steps_wins_over_the_updates_of_a_file(gipo):
    (gipo.folder / "run.toml").write_text("[learner]\nupdates = 7\n")
    for words in (["--env-steps", "100000"], ["--set", "learner.env_steps=100000"]):
        printed = json.loads(gipo("train", "run.toml", "--dry-run", "--json", *words).stdout)
        assert printed["env_steps"] == 100_000 and printed["updates"] == 1 + (100_000 - 1024) // 8
        assert f"updates = {printed['updates']}  #" in printed["config"] and "env_steps = 0  #" in printed["config"]
    both = gipo("train", "run.toml", "--env-steps", "9000", "--set", "learner.updates=9")
    assert both.returncode == 2
    assert both.stderr == (
        "gipo: --env-steps: learner.env_steps = 9000 is not accepted beside learner.updates = 9: each says how long "
        "the run is; leave one out (learner.updates is set by --set)\n"
    )
    assert gipo.entries() == ["run.toml"]


def test_policies_of_a_run_have_names(gipo):
    run = gipo.train("one", {"eval.every_updates": 60, "checkpoint.every_updates": 50})
    best = summary(run)["best"]["update"]
    kept = sorted(int(path.name) for path in (run / "checkpoints").glob("[0-9]*"))
    expected = {"last": 200, "best": best} | {str(number): number for number in kept}
    for name, update in expected.items():
        done = gipo("eval", run, "--policy", name, "--episodes", "2", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["update"] == update and json.loads(done.stdout)["policy"] == name
        assert gipo("export", run, f"{name}.safetensors", "--policy", name).returncode == 0
        policy = library.Run(run).policy(update=update) if name.isdigit() else library.Run(run).policy(name)
        assert policy.version == update == library.load(gipo.folder / f"{name}.safetensors").version
    assert read_safetensors(gipo.folder / "best.safetensors").keys() == read_safetensors(run / "policy.safetensors").keys()
    for name in ("7", "worst", "", "-1", "9" * 30):
        done = gipo("eval", run, "--policy", name)
        assert done.returncode == 2
        numbers = ", ".join(map(str, kept))
        assert f"wanted last, best, or the number of a checkpoint, of which there are {numbers}\n" in done.stderr
    alone = gipo("export", run / "policy.safetensors", "x.onnx", "--policy", "best")
    assert alone.returncode == 2 and "this is one policy; a run folder has several" in alone.stderr
    without = gipo("eval", gipo.train("two"), "--policy", "best")
    assert without.returncode == 2 and "best.safetensors: not there" in without.stderr
    assert "eval.every_updates" in without.stderr


def test_a_run_begins_with_the_weights_of_another(gipo):
    first = gipo.train("first", {"eval.every_updates": 100})
    still = {"learner.policy_lr": 0, "learner.value_lr": 0, "learner.updates": 20}
    for source in (first, first / "policy.safetensors"):
        second = gipo.train("second", still | {"run.init_from": source, "run.seed": 5}, "--overwrite")
        before, after = (read_safetensors(run / "policy.safetensors") for run in (first, second))
        for name in before:
            if name.startswith("observation."):
                np.testing.assert_allclose(after[name], before[name], rtol=0.1, atol=0.02)
            else:
                np.testing.assert_array_equal(after[name], before[name])
        assert summary(second)["init_from"] == str(source)
        assert f'init_from = "{source}"' in (second / "config.toml").read_text()
    # What it began with is of no matter to a run that goes on.
    moved = gipo.folder / "moved"
    first.rename(moved)
    assert gipo("resume", second, "--updates", "30").returncode == 0


@pytest.mark.parametrize("options, said", [
    ({"env.id": "Pendulum-v1"}, ["critic.0.weight", "[16, 4]", "[16, 3]"]),
    ({"policy.hidden": "[16, 8]"}, ["critic.1.bias is [16], here it is [8]"]),
    ({"policy.hidden": "[16, 16, 16]"}, ["critic.2.bias is [1], here it is [16]"]),
    ({"policy.layer_norm": "true"}, ["it has no tensor critic.0.norm.bias, which is [16] here"]),
    ({"policy.activation": "relu"}, ["its policy.activation is tanh, here it is relu"]),
    ({"run.init_from": "nowhere"}, ["nowhere: no such run folder or policy file"]),
    ({"run.init_from": "run.toml"}, ["run.toml: "]),
], ids=str)  # fmt: skip
def test_weights_that_do_not_fit_are_refused_by_name(gipo, options, said):
    first = gipo.train("first", {"learner.updates": 20})
    (gipo.folder / "run.toml").write_text("[learner]\n")
    for mode in ([], ["--dry-run"]):
        done = gipo("train", *settings(TINY | {"run.init_from": first} | options), "--name", "second", *mode)
        assert done.returncode == 2 and done.stderr.startswith('gipo: --set: run.init_from = "'), done.stderr
        assert [part for part in said if part not in done.stderr] == [], done.stderr
    assert not (gipo.folder / "runs" / "second").exists()


def test_json_is_one_object_on_stdout_equal_to_the_summary(gipo):
    done = gipo("train", "--json", "--name", "one", *settings(TINY))
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)  # fails where anything stands before or after it
    assert printed.pop("run_dir") == "runs/one"
    assert printed == summary(gipo.folder / "runs" / "one")
    assert printed["ended"] == "finished" and printed["updates"] == 200


def test_quiet_run_says_nothing_on_stderr(gipo):
    assert gipo("train", "--quiet", "--name", "quiet", *settings(TINY)).stderr == ""
    assert "100%" in gipo("train", "--name", "loud", *settings(TINY)).stderr


def test_run_folder_holds_what_it_should(gipo):
    run = gipo.train("one", {"eval.every_updates": 100})
    names = sorted(re.sub(r"\.\d{10}\.", ".N.", path.name) for path in run.iterdir())
    assert names == ["best.safetensors", "checkpoints", "config.toml", "episodes.jsonl", "evaluations.jsonl", "events.out.tfevents.N.gipo", "lock", "log.txt",
                     "metrics.jsonl", "policy.safetensors", "summary.json"]  # fmt: skip
    assert [line["update"] for line in json_lines(run / "metrics.jsonl")] == list(range(10, 201, 10))
    assert [line["update"] for line in json_lines(run / "evaluations.jsonl")] == [100, 200]
    result = summary(run)
    episodes = json_lines(run / "episodes.jsonl")
    assert len(episodes) == result["episodes"] > 0
    last = [line["return"] for line in episodes[-100:]]
    assert result["final_return"]["mean"] == pytest.approx(np.mean(last), rel=1e-12)
    assert result["eval_return"]["mean"] == json_lines(run / "evaluations.jsonl")[-1]["mean"]
    # The window: lines in the last fifth of the env steps.
    lines = json_lines(run / "metrics.jsonl")
    window = [line["entropy"] for line in lines if line["env_steps"] >= 0.8 * lines[-1]["env_steps"]]
    assert result["window"]["entropy"] == pytest.approx(np.mean(window), rel=1e-9)


def test_saved_config_runs_again_to_the_same_bytes(gipo):
    first = gipo.train("first", {"env.id": "Pendulum-v1", "surrogate.name": "sapo", "run.seed": 5})
    done = gipo("train", first / "config.toml", "--quiet", "--name", "second")
    assert done.returncode == 0, done.stderr
    second = gipo.folder / "runs" / "second"
    for name in ("metrics.jsonl", "episodes.jsonl", "evaluations.jsonl", "policy.safetensors"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_saved_command_can_be_pasted(gipo):
    arguments = ["train", "--quiet", "--name", "it's mine; \"$HOME\"", *settings(TINY)]
    assert gipo(*arguments).returncode == 0
    (run,) = (gipo.folder / "runs").iterdir()
    assert shlex.split(summary(run)["command"]) == ["gipo", *arguments]


def test_eval_depends_on_the_seed_alone(gipo):
    run = gipo.train("one")

    def mean(*arguments):
        done = gipo("eval", run, "--json", "--episodes", "5", *arguments)
        assert done.returncode == 0, done.stderr
        printed = json.loads(done.stdout)
        assert printed["env"] == "CartPole-v1" and printed["update"] == 200
        assert printed["eval_return"]["episodes"] == 5
        return printed["eval_return"]["mean"]

    assert mean("--seed", "1") == mean("--seed", "1")
    assert mean("--seed", "1", "--sampled") == mean("--seed", "1", "--sampled")
    assert len({mean("--seed", str(seed)) for seed in range(6)}) > 1
    assert len({mean("--seed", str(seed), "--sampled") for seed in range(6)}) > 1
    text = gipo("eval", run, "--episodes", "5", "--seed", "1").stdout
    assert f"greedy policy: {mean('--seed', '1'):.2f} +- " in text


def test_eval_refuses_what_is_no_run(gipo):
    assert gipo("eval", "missing").returncode == 2
    assert "missing: no such run folder" in gipo("eval", "missing").stderr
    run = gipo.train("one")
    policy = (run / "policy.safetensors").read_bytes()
    for damaged in (policy[: len(policy) // 2], policy[:4], b"", b"\xff" * 100):
        (run / "policy.safetensors").write_bytes(damaged)
        done = gipo("eval", run)
        assert done.returncode == 2 and "policy.safetensors" in done.stderr, done.stderr
    (run / "policy.safetensors").unlink()
    assert "no policy there yet" in gipo("eval", run).stderr
    (run / "config.toml").unlink()
    done = gipo("eval", run)
    assert done.returncode == 2 and "config.toml" in done.stderr


def test_eval_refuses_a_policy_of_another_shape(gipo):
    run = gipo.train("one")
    config = run / "config.toml"
    config.write_text(config.read_text().replace("hidden = [16, 16]", "hidden = [16, 17]"))
    done = gipo("eval", run)
    assert done.returncode == 2
    assert "policy.safetensors" in done.stderr and "belongs" in done.stderr


def test_lists(gipo):
    envs = json.loads(gipo("list", "envs", "--json").stdout)
    assert {"CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0"} <= {row["id"] for row in envs}
    surrogates = json.loads(gipo("list", "surrogates", "--json").stdout)
    assert {"gipo", "ppo", "sapo"} <= {row["name"] for row in surrogates}
    options = json.loads(gipo("list", "options", "--json").stdout)
    keys = [row["key"] for row in options]
    assert len(set(keys)) == len(keys) > 60
    assert set().union(*(row["options"] for row in surrogates)) <= {key.removeprefix("surrogate.") for key in keys}
    for what, rows, name in (("envs", envs, "id"), ("surrogates", surrogates, "name"), ("options", options, "key")):
        text = gipo("list", what).stdout
        assert [row[name] for row in rows if row[name] not in text] == []


@pytest.mark.parametrize("mode", ["lockstep", "async"])
def test_interrupt_ends_the_run_with_130_and_leaves_a_policy(gipo, mode):
    endless = {"run.mode": mode, "learner.updates": 10**9, "staleness.regime": "custom", "staleness.window": 1000}
    process = subprocess.Popen(
        [gipo.binary, "train", "--json", "--name", "one", *settings(TINY | endless)],
        cwd=gipo.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        run = gipo.folder / "runs" / "one"
        # Signals are taken once the run has begun; the metrics file shows that updates are under way.
        wait_until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0, process)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    result = summary(run)
    assert result["ended"] == "interrupted" == json.loads(stdout)["ended"]
    assert 0 < result["updates"] < 10**9
    assert json_lines(run / "metrics.jsonl")[-1]["update"] <= result["updates"]
    assert all(np.isfinite(tensor).all() for tensor in read_safetensors(run / "policy.safetensors").values())
    evaluated = gipo("eval", run, "--episodes", 2, "--json")
    assert json.loads(evaluated.stdout)["update"] == result["updates"]


@pytest.mark.parametrize("mode", ["lockstep", "async"])
def test_diverging_run_ends_by_name_and_keeps_finite_weights(gipo, mode):
    # The gradient of the value loss is beyond the largest float, so that no update is finite.
    wild = {"run.mode": mode, "env.reward_scale": 1e36, "learner.value_coef": 1e6, "learner.max_bad_updates": 7}
    done = gipo("train", "--quiet", "--json", "--name", "one", *settings(TINY | wild))
    assert done.returncode == 1
    assert "7 updates in a row were not finite (learner.max_bad_updates = 7)" in done.stderr
    assert done.stdout == ""
    run = gipo.folder / "runs" / "one"
    result = summary(run)
    assert result["ended"].startswith("failed: ") and "learner.max_bad_updates" in result["ended"]
    assert result["counts"]["skipped_updates"] == 7
    tensors = read_safetensors(run / "policy.safetensors")
    assert any(name.startswith("policy.") for name in tensors)
    assert [name for name, tensor in tensors.items() if not np.isfinite(tensor).all()] == []
    assert gipo("eval", run, "--episodes", 2).returncode == 0


def test_run_without_a_usable_segment_ends_by_name(gipo):
    # At collection already: every segment holds an infinite reward and is turned away.
    done = gipo("train", "--quiet", "--name", "one", *settings(TINY | {"env.reward_scale": 1e39}))
    assert done.returncode == 1
    assert "environment 0 (CartPole-v1) gave a reward that is not finite" in done.stderr
    result = summary(gipo.folder / "runs" / "one")
    assert result["counts"]["rejected_segments"] > 0
