"""`gipo doctor` says what is whole, what is damaged and what to do; and checkpoints are as docs/checkpoints.md says."""

import json
import shutil
import signal
import struct
import subprocess

import pytest
from conftest import HANG, TINY, read_safetensors, settings, stop_after_first_checkpoint, wait_until

RUN = {"checkpoint.every_updates": 50, "log.every_updates": 5}


def doctor(gipo, run):
    done = gipo("doctor", run, "--json")
    return done.returncode, json.loads(done.stdout)


def texts(report, level):
    return [finding["text"] for finding in report["findings"] if finding["level"] == level]


def contents(run):
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def obey(gipo, report):
    """Runs the command that the report ends with."""
    words = report["next"].split("gipo ", 1)[1].split(",")[0].split()
    done = gipo(*words, "--quiet")
    assert done.returncode == 0, done.stderr


def test_whole_run_is_good_and_nothing_changes(gipo):
    run = gipo.train("one", RUN)
    before = contents(run)
    code, report = doctor(gipo, run)
    assert (code, report["damaged"]) == (0, False)
    assert {finding["level"] for finding in report["findings"]} == {"good"}
    assert contents(run) == before
    words = gipo("doctor", run)
    assert words.returncode == 0 and words.stdout.splitlines()[-1] == f"next: {report['next']}"
    assert report["next"].startswith("nothing")


def test_what_is_no_run_folder_is_refused(gipo):
    for path in (gipo.folder, gipo.folder / "absent"):
        done = gipo("doctor", path)
        assert done.returncode == 2 and done.stdout == "" and str(path) in done.stderr


def test_killed_run_is_to_be_resumed_and_then_good(gipo):
    whole = gipo.train("whole", RUN | {"learner.updates": 4000})
    words = ["train", "--quiet", "--name", "killed", *settings(TINY | RUN | {"learner.updates": 4000})]
    process = subprocess.Popen([gipo.binary, *words], cwd=gipo.folder, stdout=subprocess.DEVNULL)
    run = gipo.folder / "runs" / "killed"
    stop_after_first_checkpoint(process, run)
    code, report = doctor(gipo, run)
    assert code == 0 and report["next"].startswith("nothing, while")
    process.kill()
    process.wait()
    code, report = doctor(gipo, run)
    assert code == 0, report
    assert report["next"] == f"gipo resume {run}"
    obey(gipo, report)
    assert doctor(gipo, run)[1]["next"].startswith("nothing")
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_interrupted_run_is_to_be_resumed(gipo):
    words = ["train", "--quiet", "--name", "one", *settings(TINY | RUN | {"learner.updates": 200000})]
    process = subprocess.Popen([gipo.binary, *words], cwd=gipo.folder, stdout=subprocess.DEVNULL)
    run = gipo.folder / "runs" / "one"
    wait_until(lambda: (run / "checkpoints" / "LATEST").exists(), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG) == 130
    code, report = doctor(gipo, run)
    assert code == 0 and report["next"] == f"gipo resume {run}"
    assert any("interrupted after" in text for text in texts(report, "good"))


def damage_newest_checkpoint(run):
    path = sorted(run.glob("checkpoints/0*"))[-1] / "learner.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    return "not whole: learner.safetensors has"


def remove_policy(run):
    (run / "policy.safetensors").unlink()
    return "policy.safetensors: missing"


def break_summary(run):
    (run / "summary.json").write_text("{")
    return "summary.json: "


@pytest.mark.parametrize("damage", [damage_newest_checkpoint, remove_policy, break_summary])
def test_damage_is_named_and_the_advice_mends_it(gipo, damage):
    run = gipo.train("one", RUN)
    before = contents(run)
    text = damage(run)
    code, report = doctor(gipo, run)
    assert code == 1 and report["damaged"]
    assert any(text in found for found in texts(report, "damaged")), report
    obey(gipo, report)
    code, report = doctor(gipo, run)
    assert code == 0, report
    after = contents(run)
    for name in ("metrics.jsonl", "episodes.jsonl", "evaluations.jsonl", "policy.safetensors"):
        assert after[name] == before[name], name


def test_lost_line_is_mended_from_an_earlier_checkpoint(gipo):
    run = gipo.train("one", RUN)
    whole = (run / "metrics.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join(lines[:-2] + lines[-1:]))
    code, report = doctor(gipo, run)
    assert code == 1
    assert any("lines are missing" in text for text in texts(report, "damaged")), report
    keep = report["next"].split("newer than checkpoints/")[1].split()[0]
    for path in run.glob("checkpoints/0*"):
        if path.name > keep:
            shutil.rmtree(path)
    obey(gipo, report)
    assert (run / "metrics.jsonl").read_bytes() == whole
    assert doctor(gipo, run)[0] == 0


def test_lengthened_run_that_was_killed_says_how_to_go_on(gipo):
    run = gipo.train("one", RUN)
    words = [gipo.binary, "resume", run, "--updates", "200000", "--quiet"]
    process = subprocess.Popen(words, cwd=gipo.folder, stdout=subprocess.DEVNULL)
    wait_until(lambda: (run / "checkpoints" / "LATEST").read_text() > "000200\n", process)
    process.kill()
    process.wait()
    code, report = doctor(gipo, run)
    assert code == 0, report
    assert report["next"] in (f"gipo resume {run}", f"gipo resume {run} --updates 200000")


def test_async_run_is_good_after_it_was_resumed(gipo):
    run = gipo.train("one", RUN | {"run.mode": "async"})
    done = gipo("resume", run, "--updates", 400, "--quiet")
    assert done.returncode == 0, done.stderr
    code, report = doctor(gipo, run)
    assert code == 0, report


class Reader:
    """Little-endian values one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def values(self, kinds):
        kinds = "<" + kinds
        found = struct.unpack_from(kinds, self.data, self.at)
        self.at += struct.calcsize(kinds)
        return found if len(found) > 1 else found[0]

    def row(self, kind, count):
        """Values without a number before them."""
        return [self.values(kind) for _ in range(count)]

    def array(self, kind):
        return [self.values(kind) for _ in range(self.values("Q"))]


def checkpoint_of(gipo, options):
    run = gipo.train("one", RUN | options)
    folder = run / "checkpoints" / (run / "checkpoints" / "LATEST").read_text().strip()
    return folder, json.loads((folder / "state.json").read_text())


def test_learner_file_is_as_documented(gipo):
    options = {"env.id": "Pendulum-v1", "learner.proximal_coef": 0.1, "env.normalise_rewards": "true"}
    folder, state = checkpoint_of(gipo, options)
    tensors = read_safetensors(folder / "learner.safetensors")
    r = Reader(tensors.pop("rest").tobytes())
    assert r.values("qqq") == (state["update"], 0, 0)
    assert r.values("qq") == (state["update"], state["update"])  # AdamW's steps: none was skipped
    assert r.values("f") == 10
    assert r.values("d") > 2 and r.array("d")[0] < 0 < r.array("d")[0]  # Pendulum's returns
    pool = r.array("q")
    assert r.values("Q") < len(pool)
    assert r.at == len(r.data)
    layers = {"0.weight": (16, 3), "0.bias": (16,), "1.weight": (16, 16), "1.bias": (16,), "2.weight": (1, 16), "2.bias": (1,)}
    wanted = {"observation.mean": (3,), "observation.inverse_std": (3,)}
    for net, ends in (("policy", ("", ".first_moment", ".second_moment", ".average")),
                      ("critic", ("", ".first_moment", ".second_moment"))):
        of_net = layers | ({"log_std": (1,)} if net == "policy" else {})
        wanted |= {f"{net}.{name}{end}": shape for name, shape in of_net.items() for end in ends}
    assert {name: tensor.shape for name, tensor in tensors.items()} == wanted
    assert {str(tensor.dtype) for tensor in tensors.values()} == {"float32"}


@pytest.mark.parametrize("regime", ["stale", "on_policy"])
def test_replay_bin_is_as_documented(gipo, regime):
    options = {"staleness.regime": regime}
    if regime == "on_policy":
        options |= {"replay.capacity": 256, "advantage.mode": "stored", "replay.segment_length": 64}
    folder, state = checkpoint_of(gipo, options)
    r = Reader((folder / "replay.bin").read_bytes())
    r.values("QQ")
    inserted_observations = r.values("d")
    assert len(r.array("d")) == len(r.array("d")) == 4
    assert (r.values("d"), r.array("d"), r.array("d")) == (0, [0], [0])  # rewards are not normalised
    inserted, evicted, segments = r.values("QQQ")
    assert inserted == inserted_observations
    held, last = 0, {}
    for _ in range(segments):
        length, first, stride, env, incarnation, sequence, flags = r.values("QddQQQQ")
        assert (incarnation, stride) == (0, state_envs(regime)) and flags in range(4) and first >= 0
        r.row("f", 4 * (length + 1))
        for _ in range(5 if regime == "on_policy" else 3):  # action, log-prob, reward, advantage, target
            r.row("f", length)
        assert all(0 <= version <= state["update"] for version in r.row("q", length))
        last[env] = max(sequence, last.get(env, 0))
        held += length
    marks = r.array("QQQ")
    assert [env for env, _, _ in marks] == list(range(state_envs(regime)))
    assert all(incarnation == 0 and sequence == last.get(env, sequence) for env, incarnation, sequence in marks)
    assert held == inserted - evicted <= state["dial"]["capacity"]
    order = r.array("QQ")
    at, order_inserted = r.values("QQ")
    assert (len(order) == held and at <= held and order_inserted == inserted) if regime == "on_policy" else order == []
    assert r.at == len(r.data)


def state_envs(regime):
    return 4 if regime == "on_policy" else 8


def test_actors_bin_is_as_documented(gipo):
    folder, state = checkpoint_of(gipo, {})
    r = Reader((folder / "actors.bin").read_bytes())
    episodes = 0
    for _ in range(2):  # actors
        assert r.values("Q") == 0  # incarnation
        assert len(r.array("f")) == 4 * 4
        for _ in range(4):  # environments
            steps, running = r.values("qB")
            assert running == 1 and 0 <= steps < 500
            r.values("QQ")
            assert all(abs(x) < 100 for x in r.values("dddd"))  # CartPole's physics
            r.values("QQ")
            _, incarnation, _, length, terminated, truncated, _, _ = r.values("QQQQBBdd")
            assert (incarnation, terminated, truncated) == (0, 0, 0) and length < 16
            r.row("f", 4 * (length + 1))
            for kind in "fffqf":  # action, log-prob, reward, version, discounted return
                r.row(kind, length)
            episode_return, discounted, episode_length, number, sequence, faults = r.values("ddqqQq")
            assert episode_return == episode_length == steps and sequence >= number and (discounted, faults) == (0, 0)
            episodes += number
    assert episodes == state["episodes"]
    assert r.at == len(r.data)
