"""The backend torch: encoders of images and choices, from training to other programs. Needs a build with GIPO_TORCH."""

import json
import runpy
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from conftest import settings, summary
from test_resume import contents, kill_and_resume, train, whole

import gipo as library

PICTURES = Path(__file__).parent / "bridge" / "pictures.py"
CATCH = {"env.id": f"python:{PICTURES}:Catch", "env.python": sys.executable, "env.time_limit": 50, "learner.backend": "torch",
         "policy.hidden": "[32]", "policy.activation": "relu", "env.workers": 1, "log.tensorboard": "false"}  # fmt: skip


@pytest.fixture(scope="session")
def torch_built(binary):
    dry = subprocess.run([binary, "train", "--set", "learner.backend=torch", "--dry-run"], capture_output=True)
    return dry.returncode == 0


@pytest.fixture
def with_torch(torch_built):
    if not torch_built:
        pytest.skip("this program was built without libtorch: make test-torch")


def test_without_libtorch_the_backend_says_how_to_have_it(gipo, torch_built):
    if torch_built:
        pytest.skip("this program was built with libtorch")
    ended = gipo("train", "--set", "learner.backend=torch")
    assert ended.returncode == 2
    assert 'learner.backend = "torch"' in ended.stderr
    assert "scripts/setup.sh --torch" in ended.stderr
    assert gipo.entries() == []


def test_an_encoder_needs_the_backend_and_a_field_that_it_fits(gipo, with_torch):
    for options, words in [
        ({"policy.encoder": "small", "learner.backend": "cpu"}, "small needs learner.backend = torch"),
        ({"policy.encoder": "nature"}, "nature does not fit the field observation of shape (10, 10, 1): a layer of 4 x 4 has no room"),
        ({"policy.encoder": "embedding"}, "embedding fits none of the task's fields"),
        ({"policy.encoder": "image=small"}, "image=small: wanted FIELD=WORD with a field of observation"),
    ]:
        ended = gipo("train", *settings(CATCH | options))
        assert ended.returncode == 2, options
        assert words in ended.stderr
    assert gipo.entries() == []


@pytest.mark.parametrize("normalised", ["none", "env.normalise_observations", "env.normalise_rewards", "advantage.normalise"])
def test_vectors_learn_as_with_the_mlp(gipo, with_torch, tmp_path, normalised):
    """The two backends on the same batches."""
    options = {"env.id": "Pendulum-v1", "learner.updates": 100, "log.tensorboard": "false", "eval.episodes": 1}
    for each in ("env.normalise_observations", "env.normalise_rewards", "advantage.normalise"):
        options[each] = "true" if each == normalised else "false"
    run = gipo.train("both", options | {"learner.backend": "check", "learner.check": "torch, cpu"})
    figures = {name: v[-1] for name, v in library.Run(run).metrics().items() if name.startswith("difference.")}
    assert figures and max(figures.values()) < 1e-3, figures


def test_killed_at_twenty_moments_ends_with_the_same_bytes(gipo, with_torch, tmp_path):
    backend = {"learner.backend": "torch"}
    begin = time.monotonic()
    whole(train(gipo, tmp_path, "alone", **backend))
    kill_and_resume(gipo, tmp_path, backend, kills=20, seed="torch", longest=0.6 * (time.monotonic() - begin))
    assert contents(tmp_path / "alone") == contents(tmp_path / "killed")


@pytest.mark.parametrize(
    ("encoder", "scale"), [("small", 1), ("nature", 4), ("impala", 1), ("vit", 2), ("floats", 1)]
)
def test_python_and_onnxruntime_compute_the_same(gipo, with_torch, tmp_path, encoder, scale):
    options = CATCH | {"env.options.scale": scale, "env.options.as_dict": "true", "policy.encoder": f"image={encoder}",
                       "learner.updates": 3, "learner.batch_size": 32, "eval.episodes": 1}  # fmt: skip
    run = gipo.train("run", options)
    policy = library.load(run)
    random = np.random.default_rng(2)
    seen = {"image": random.integers(256, size=(7, 10 * scale, 10 * scale, 1), dtype=np.uint8),
            "height": random.uniform(size=(7, 1)).astype(np.float32), "ball": random.integers(100, size=7)}  # fmt: skip
    wanted = policy.parameters(seen)["logits"]
    assert np.ptp(wanted, axis=0).min() > 0
    session = onnxruntime.InferenceSession(library.export(run, tmp_path / "policy.onnx"))
    inputs = {"observation": policy.flatten(seen)} | seen
    got = session.run(["logits", "action"], {i.name: inputs[i.name] for i in session.get_inputs()})
    np.testing.assert_allclose(got[0], wanted, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(got[1], policy.act(seen))
    one = {name: value[3] for name, value in seen.items()}
    np.testing.assert_allclose(policy.parameters(one)["logits"], wanted[3], rtol=0, atol=1e-5)


def test_frames_reach_the_policy_and_other_programs(gipo, with_torch, tmp_path):
    options = CATCH | {"env.frame_stack": 3, "learner.updates": 20, "learner.batch_size": 32, "eval.episodes": 2,
                       "replay.segment_length": 4}  # fmt: skip
    for name, more in {"image": {}, "dict": {"env.options.as_dict": "true"}, "remembering": {"policy.memory": "gru", "policy.burn_in": 2},
                       "stored": {"advantage.mode": "stored", "replay.sampling": "transitions"}}.items():  # fmt: skip
        run = gipo.train(name, options | more)
        assert library.evaluate(run, episodes=3).lengths.tolist() == [9, 9, 9]
    policy = library.load(Path(gipo.folder, "runs", "image"))
    seen = np.random.default_rng(2).integers(256, size=(7, 3, 10, 10, 1), dtype=np.uint8)
    session = onnxruntime.InferenceSession(library.export(policy.path, tmp_path / "policy.onnx"))
    got = session.run(["logits"], {"observation": seen})[0]
    np.testing.assert_allclose(got, policy.parameters(seen)["logits"], rtol=0, atol=1e-5)


def test_frames_need_images_and_an_encoder(gipo, with_torch):
    for options, words in [
        ({"env.frame_stack": 2, "policy.encoder": "floats"}, "no encoder reads the field observation"),
        ({"env.frame_stack": 2, "env.id": "CartPole-v1"}, "env.frame_stack = 2 is not accepted: no field of CartPole-v1 is an image"),
        ({"env.frame_stack": 2, "env.id": "gymnasium:CartPole-v1"}, "has no image"),
        ({"env.frame_stack": 0}, "env.frame_stack"),
        ({"learner.device": "cuda:9"}, 'learner.device = "cuda:9" is not there'),
        ({"learner.device": "cuda", "learner.backend": "cpu"}, 'learner.device = "cuda" needs learner.backend = "torch"'),
        ({"learner.precision": "bf16"}, 'learner.precision = "bf16" needs a CUDA device'),
    ]:
        ended = gipo("train", *settings(CATCH | options))
        assert ended.returncode == 2, (options, ended.stderr)
        assert words in ended.stderr, ended.stderr
    assert gipo.entries() == []


def test_the_machine_is_described(gipo, with_torch):
    said = json.loads(gipo("doctor", "--machine", "--json").stdout)
    assert "torch" in said["backends"] and said["libtorch"].startswith("2.") and isinstance(said["cuda_devices"], list)
    ended = gipo("doctor")
    assert ended.returncode == 2 and "--machine" in ended.stderr


def test_catch_is_learned_from_pixels(gipo, with_torch, tmp_path):
    options = {"learner.updates": 2000, "learner.batch_size": 256, "policy.hidden": "[64]", "replay.segment_length": 64,
               "eval.episodes": 20}  # fmt: skip
    run = gipo.train("catch", CATCH | options, timeout=600)
    assert summary(run)["eval_return"]["mean"] >= 0.9


def test_pictures_are_cloned(gipo, with_torch, tmp_path):
    """A script that catches every ball, imitated from images; with two frames the batches have those of the episode."""
    sys.path.insert(0, str(PICTURES.parent))
    from pictures import Catch

    env = Catch()
    library.record_demonstrations(tmp_path / "catch.hdf5", env, lambda _: int(np.sign(env.x - env.paddle)) + 1, episodes=150)
    for name, frames in (("one", 1), ("two", 2)):
        options = {"env.frame_stack": frames, "policy.encoder": "small", "learner.updates": 500, "learner.policy_lr": 0.003, "eval.episodes": 20,
                   "learner.batch_size": 64, "clone.every_updates": 500}  # fmt: skip
        done = gipo("clone", tmp_path / "catch.hdf5", "--quiet", "--name", name, *settings(CATCH | options))
        assert done.returncode == 0, done.stderr
        assert summary(tmp_path / "runs" / name)["eval_return"]["mean"] > 0.7


def test_a_large_model_is_cloned_and_goes_on_with_the_same_bytes(gipo, with_torch, tmp_path):
    from test_vla_train import BANDIT, TOLD

    env = runpy.run_path(str(TOLD))["Told"]()
    data = tmp_path / "told.hdf5"
    library.record_demonstrations(data, env, lambda _: np.array([60 + 140 * (env.word == 0), 60 + 140 * (env.side == 0)]), episodes=200)

    def clone(name, updates):
        options = {"learner.policy_lr": 3e-3, "learner.batch_size": 64, "clone.every_updates": 30, "clone.measured_steps": 64}
        done = gipo("clone", data, "--quiet", "--name", name, "--updates", updates, *settings(BANDIT | options))
        assert done.returncode == 0, done.stderr
        return tmp_path / "runs" / name

    whole_run, in_two = clone("whole", 120), clone("two", 60)
    resumed = gipo("resume", in_two, "--updates", 120, "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    assert summary(whole_run)["eval_return"]["success_rate"] > 0.9
    for name in ("metrics.jsonl", "policy.safetensors"):
        assert (whole_run / name).read_bytes() == (in_two / name).read_bytes()
