"""gipo clone: demonstrations recorded, refused where they are bad, imitated, and a run that goes on after it was killed."""

import json
import shutil
import signal
import subprocess
import time

import gymnasium
import h5py
import numpy as np
import pytest
from conftest import json_lines, read_safetensors, settings, summary

from gipo import demonstrations
from gipo.robot_tasks import Bins
from gipo.runs import UserMistake

CLONE = {"env.id": "CartPole-v1", "policy.hidden": "[32]", "learner.updates": 400, "learner.policy_lr": 0.003, "learner.batch_size": 128,
         "eval.episodes": 10, "log.tensorboard": "false", "clone.every_updates": 100}  # fmt: skip


def balance(observation):
    """Holds the pole up for all 500 steps."""
    x, v, angle, turn = observation
    return int(angle + 0.5 * turn + 0.03 * x + 0.06 * v > 0)


def swing(observation):
    cosine, sine, speed = observation
    energy = 0.5 * speed**2 + 5 * (cosine - 1)
    push = -10 * sine - 2 * speed if cosine > 0.9 else np.sign(speed or 1) * (-energy)
    return np.clip(np.array([push], np.float32), -2, 2)


def record(path, env, policy, episodes, **options):
    made = gymnasium.make(env)
    done = demonstrations.record_demonstrations(path, made, policy, episodes=episodes, **options)
    made.close()
    return done


@pytest.fixture(scope="session")
def cart_pole(tmp_path_factory):
    path = tmp_path_factory.mktemp("demos") / "cart_pole.hdf5"
    done = record(path, "CartPole-v1", balance, 6)
    assert done["steps"] == 3000 and done["episodes"] == 6
    return path


def clone(gipo, data, name="clone", options=None, *more):
    return gipo("clone", data, "--quiet", "--name", name, *settings(CLONE | (options or {})), *more)


def test_a_script_is_imitated(gipo, cart_pole, tmp_path):
    done = clone(gipo, cart_pole)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "clone"
    assert summary(run)["eval_return"]["mean"] >= 475
    assert summary(run)["clone"] == str(cart_pole)
    lines = json_lines(run / "metrics.jsonl")
    assert [line["update"] for line in lines] == [100, 200, 300, 400]
    assert lines[-1]["heldout_accuracy"] > 0.9 and lines[-1]["learned_accuracy"] > 0.9
    assert lines[-1]["heldout_log_likelihood"] > lines[0]["heldout_log_likelihood"] > np.log(0.5)
    # Everything that takes a run takes this one.
    assert json.loads(gipo("eval", run, "--episodes", 5, "--json").stdout)["eval_return"]["mean"] >= 475
    better = gipo("train", "--quiet", *settings({"env.id": "CartPole-v1", "policy.hidden": "[32]", "run.init_from": run, "learner.updates": 20,
                                                 "eval.episodes": 5, "learner.policy_lr": 0, "replay.segment_length": 16, "run.name": "on"}))  # fmt: skip
    assert better.returncode == 0, better.stderr
    assert summary(tmp_path / "runs" / "on")["eval_return"]["mean"] >= 475
    assert gipo("doctor", run).returncode == 0


def test_numbers_are_imitated_in_the_units_of_the_task(gipo, tmp_path):
    """Also in bins; both know what the script does, whose actions go from -2 to 2."""
    data = tmp_path / "pendulum.hdf5"
    record(data, "Pendulum-v1", swing, 12)
    options = {"env.id": "Pendulum-v1", "learner.updates": 800, "policy.hidden": "[64, 64]", "clone.every_updates": 800}
    for name, more, figure, least in [
        ("gaussian", {"policy.init_log_std": -1}, "heldout_action_error", None),
        ("binned", {"policy.distribution": "binned", "policy.bins": 21}, "heldout_accuracy", 0.5),
    ]:
        done = clone(gipo, data, name, options | more)
        assert done.returncode == 0, done.stderr
        line = json_lines(tmp_path / "runs" / name / "metrics.jsonl")[-1]
        assert line[figure] > least if least else line[figure] < 0.2, line
    for backend in ("cpu64", "check"):
        done = clone(gipo, data, backend, options | {"learner.backend": backend, "learner.updates": 20})
        assert done.returncode == 0, done.stderr


def compared(run):
    found = {name: (run / name).read_bytes() for name in ("metrics.jsonl", "policy.safetensors", "evaluations.jsonl")}
    return found | {"fingerprint": summary(run)["fingerprint"]}


def test_killed_and_resumed_ends_with_the_same_bytes(gipo, cart_pole, tmp_path):
    options = {"learner.updates": 3000, "checkpoint.every_updates": 50, "env.normalise_observations": "true"}
    begin = time.monotonic()
    assert clone(gipo, cart_pole, "alone", options).returncode == 0
    longest = time.monotonic() - begin
    words = [gipo.binary, "clone", cart_pole, "--quiet", "--name", "killed", *settings(CLONE | options)]
    run, killed = tmp_path / "runs" / "killed", 0
    for share in (0.5, 0.3, 0.2):
        process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(share * longest)
        killed += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        if any(run.glob("checkpoints/[0-9]*[0-9]/manifest.json")):
            words = [gipo.binary, "resume", run, "--quiet"]
        else:
            shutil.rmtree(run, ignore_errors=True)
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert killed > 0 and compared(run) == compared(tmp_path / "runs" / "alone")


def test_resuming_needs_the_same_demonstrations(gipo, cart_pole, tmp_path):
    assert clone(gipo, cart_pole, "clone", {"learner.updates": 100}).returncode == 0
    data = tmp_path / "runs" / "clone" / "demonstrations.safetensors"
    content = bytearray(data.read_bytes())
    content[-1] ^= 1  # of an observation
    data.write_bytes(content)
    ended = gipo("resume", tmp_path / "runs" / "clone", "--updates", 200)
    assert ended.returncode == 2 and "other demonstrations" in ended.stderr
    data.unlink()
    ended = gipo("resume", tmp_path / "runs" / "clone", "--updates", 200)
    assert ended.returncode == 2 and "demonstrations.safetensors" in ended.stderr


def spoilt(source, target, spoil):
    shutil.copy(source, target)
    with h5py.File(target, "a") as file:
        spoil(file["data"])
    return target


def replace(group, name, values):
    del group[name]
    group[name] = values


def test_bad_demonstrations_are_named_and_nothing_is_written(gipo, cart_pole, tmp_path):
    bad, long = tmp_path / "bad.hdf5", 500
    for spoil, words in [
        (lambda data: data["demo_1"].pop("obs/observation"), "/data/demo_1/obs has no observation, which CartPole-v1 gives; it has nothing"),
        (lambda data: data["demo_2"].pop("actions"), "/data/demo_2 has no actions; it has dones, obs, rewards"),
        (lambda data: replace(data["demo_0/obs"], "observation", np.zeros((long, 3), np.float32)),
         f"/data/demo_0/obs/observation has the shape ({long}, 3): wanted ({long}, 4)"),
        (lambda data: replace(data["demo_0/obs"], "observation", np.zeros((7, 4), np.float32)),
         f"/data/demo_0/obs/observation has the shape (7, 4): wanted {long} rows, as actions has"),
        (lambda data: data["demo_3/actions"].write_direct(np.full((long, 1), 2)),
         "episode 3, step 0 has 2 at place 0, which is no action of the task: wanted a choice from 0 to 1"),
        (lambda data: data["demo_3/obs/observation"].write_direct(np.full((long, 4), np.nan, np.float32)), "not finite"),
        (lambda data: replace(data["demo_0"], "actions", np.zeros((long, 3), np.int64)), "has 3 numbers a step: wanted 1"),
        (lambda data: [data.pop(name) for name in list(data)], "data holds no demo_0"),
        (lambda data: data.parent.pop("data"), "it has no group data"),
    ]:  # fmt: skip
        ended = clone(gipo, spoilt(cart_pole, bad, spoil))
        assert ended.returncode == 2, (words, ended.stderr)
        assert words in ended.stderr and ended.stderr.startswith("gipo: ") and ended.stderr.count("\n") == 1
    bad.write_bytes(cart_pole.read_bytes()[:-1000])
    ended = clone(gipo, bad)
    assert ended.returncode == 2 and str(bad) in ended.stderr and "truncated" in ended.stderr
    ended = clone(gipo, tmp_path / "none.hdf5")
    assert ended.returncode == 2 and "none.hdf5: no such file" in ended.stderr
    ended = clone(gipo, cart_pole, "clone", {"clone.holdout": 0.9})
    assert ended.returncode == 0  # five of six
    one = tmp_path / "one.hdf5"
    spoilt(cart_pole, one, lambda data: [data.pop(f"demo_{k}") for k in range(1, 6)])
    ended = clone(gipo, one, "one")
    assert ended.returncode == 2 and "clone.holdout = 0.1 is not accepted: of 1 episodes none" in ended.stderr
    assert gipo.entries() == sorted(entry for entry in gipo.entries() if not entry.startswith(("runs/one", "runs/clone.")))


def test_train_does_not_take_demonstrations(gipo, cart_pole):
    ended = gipo("train", *settings({"clone.data": cart_pole}))
    assert ended.returncode == 2 and "use gipo clone" in ended.stderr and gipo.entries() == []


def test_memory_is_refused(gipo, cart_pole):
    ended = clone(gipo, cart_pole, "clone", {"policy.memory": "gru", "learner.backend": "torch"})
    assert ended.returncode == 2 and gipo.entries() == []


def task(fields, dims=7, choices=(), env="libero:libero_goal/0", **options):
    options = {name: json.dumps(value) for name, value in options.items()}
    return {"env": env, "dims": dims, "choices": list(choices), "options": options, "fields": [
        {"name": name, "dtype": dtype, "shape": shape, "optional": False} for name, (dtype, shape) in fields.items()]}  # fmt: skip


def libero_like(path):
    """The layout of LIBERO's own files."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["problem_info"] = json.dumps({"language_instruction": "put the bowl on the plate"})
        for k, length in enumerate((3, 2)):
            demo = data.create_group(f"demo_{k}")
            demo["actions"] = np.linspace(-1, 1, length * 7).reshape(length, 7)
            demo["rewards"] = np.arange(length) == length - 1
            demo["obs/agentview_rgb"] = np.arange(length * 8 * 8 * 3).reshape(length, 8, 8, 3).astype(np.uint8)
            demo["obs/ee_states"] = np.full((length, 6), 2.0)
            demo["obs/gripper_states"] = np.full((length, 2), 3.0)


def test_files_of_libero_are_read_as_they_are(tmp_path):
    libero_like(tmp_path / "libero.hdf5")
    fields = {"image": ("uint8", [8, 8, 3]), "state": ("float32", [8]), "instruction": ("uint8", [30])}
    demonstrations.convert(str(tmp_path / "libero.hdf5"), str(tmp_path / "out"), task(fields))
    read = read_safetensors(tmp_path / "out")
    assert read["episode_ends"].tolist() == [3, 5]
    with h5py.File(tmp_path / "libero.hdf5") as file:
        assert (read["obs/image"][:3] == file["data/demo_0/obs/agentview_rgb"][()][:, ::-1, ::-1]).all()
    assert (read["obs/state"] == [2] * 6 + [3] * 2).all()
    assert bytes(read["obs/instruction"][4]).rstrip(b"\0") == b"put the bowl on the plate"
    assert read["action"].shape == (5, 7) and read["reward"].tolist() == [0, 0, 1, 0, 1]
    smaller = {"image": ("uint8", [4, 4, 3])}
    demonstrations.convert(str(tmp_path / "libero.hdf5"), str(tmp_path / "out"), task(smaller))
    assert read_safetensors(tmp_path / "out")["obs/image"].shape == (5, 4, 4, 3)


def test_numbers_become_tokens_where_the_task_takes_these(tmp_path):
    libero_like(tmp_path / "libero.hdf5")
    fields = {"instruction": ("int32", [30])}
    wanted = task(fields, 14, [256] * 14, chunk=2, action_bins=256, instruction_tokens=30)
    demonstrations.convert(str(tmp_path / "libero.hdf5"), str(tmp_path / "out"), wanted)
    read = read_safetensors(tmp_path / "out")
    with h5py.File(tmp_path / "libero.hdf5") as file:
        actions = file["data/demo_0/actions"][()]
    assert np.abs(Bins(256, None, 7).actions(read["action"][:3].astype(int)) - actions).max() < 1 / 255
    text = b"put the bowl on the plate"
    assert read["obs/instruction"][0].tolist() == [1, *(3 + byte for byte in text), *[-1] * (29 - len(text))]
    with pytest.raises(UserMistake, match=r"has 26 tokens: wanted at most 25 \(env.options.instruction_tokens\)"):
        short = task({"instruction": ("int32", [25])}, 14, [256] * 14, action_bins=256, instruction_tokens=25)
        demonstrations.convert(str(tmp_path / "libero.hdf5"), str(tmp_path / "out"), short)
    with h5py.File(tmp_path / "libero.hdf5", "a") as file:
        file["data/demo_1/actions"][0, 0] = 1.5
    with pytest.raises(UserMistake, match="demo_1/actions holds 1.5: wanted numbers from -1 to 1"):
        demonstrations.convert(str(tmp_path / "libero.hdf5"), str(tmp_path / "out"), wanted)


def test_files_of_robomimic_are_read_as_they_are(tmp_path):
    with h5py.File(tmp_path / "lift.hdf5", "w") as file:
        demo = file.create_group("data/demo_0")
        demo["actions"] = np.zeros((4, 7))
        demo["obs/agentview_image"] = np.random.default_rng(1).integers(0, 256, (4, 8, 8, 3), np.uint8)
        demo["obs/robot0_eef_pos"] = np.tile([1.0, 2, 3], (4, 1))
        demo["obs/robot0_eef_quat"] = np.tile([0, 0, np.sin(0.25), np.cos(0.25)], (4, 1))  # half a radian about z
        demo["obs/robot0_gripper_qpos"] = np.tile([0.1, -0.1], (4, 1))
        image = demo["obs/agentview_image"][()]
    fields = {"image": ("uint8", [8, 8, 3]), "state": ("float32", [8])}
    demonstrations.convert(str(tmp_path / "lift.hdf5"), str(tmp_path / "out"), task(fields, env="robosuite:Lift"))
    read = read_safetensors(tmp_path / "out")
    assert (read["obs/image"] == image).all() and "reward" not in read
    assert read["obs/state"][3] == pytest.approx([1, 2, 3, 0, 0, 0.5, 0.1, -0.1])
