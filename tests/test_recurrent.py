"""Policies with memory: training, resuming, acting and exporting. Needs a build with GIPO_TORCH."""

import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from conftest import settings, summary
from test_resume import contents, kill_and_resume, train, whole
from test_torch import torch_built, with_torch  # noqa: F401  (fixtures)

import gipo as library

CONFIGS = Path(__file__).parent.parent / "configs" / "memory"
SMALL = {"env.id": "Recall-v0", "learner.backend": "torch", "policy.memory": "gru", "policy.memory_size": 8,
         "policy.hidden": "[8]", "learner.updates": 20, "learner.batch_size": 32, "replay.segment_length": 5,
         "eval.episodes": 4, "log.tensorboard": "false"}  # fmt: skip


def test_memory_needs_the_backend_and_sequences(gipo, with_torch):
    for options, words in [
        ({"learner.backend": "cpu"}, 'policy.memory = "gru" needs learner.backend = "torch", and it is "cpu"'),
        ({"replay.sampling": "transitions", "advantage.mode": "stored"}, "not accepted with single steps"),
        ({"policy.memory": "none", "policy.burn_in": 4}, 'policy.burn_in = 4 is not accepted with policy.memory = "none"'),
        ({"policy.memory": "lstm"}, "policy.memory"),
        ({"policy.memory": "transformer", "policy.memory_size": 6},
         'policy.memory_size = 6 is not accepted with policy.memory = "transformer": wanted a multiple of 4'),
    ]:
        ended = gipo("train", *settings(SMALL | options))
        assert ended.returncode == 2, options
        assert words in ended.stderr
    assert gipo.entries() == []


WINDOW = {"policy.memory": "transformer", "policy.memory_window": 4}


@pytest.mark.parametrize(
    "more", [{}, {"policy.burn_in": 3, "advantage.mode": "stored"}, {"policy.shared": 1}, WINDOW | {"policy.burn_in": 2}]
)
def test_killed_with_memory_ends_with_the_same_bytes(gipo, with_torch, tmp_path, more):
    options = {"learner.backend": "torch", "policy.memory": "gru", "policy.memory_size": 8, **more}
    begin = time.monotonic()
    whole(train(gipo, tmp_path, "alone", **options))
    kill_and_resume(gipo, tmp_path, options, kills=8, seed="memory", longest=0.6 * (time.monotonic() - begin))
    assert contents(tmp_path / "alone") == contents(tmp_path / "killed")


# Of a window of 4 steps, two blocks hold the 3 before the present one, and there is the number of these.
@pytest.mark.parametrize("memory, size", [({}, 8), (WINDOW, 2 * 3 * 8 + 1)])
@pytest.mark.parametrize("shared", [0, 1])
def test_python_and_onnxruntime_remember_the_same(gipo, with_torch, tmp_path, shared, memory, size):
    run = gipo.train("run", SMALL | memory | {"policy.shared": shared, "learner.policy_lr": 0.01})
    policy = library.load(run)
    assert policy.state_size == size * (2 - shared)
    random = np.random.default_rng(2)
    session = onnxruntime.InferenceSession(library.export(run, tmp_path / "policy.onnx"))
    state, exported = policy.first_state(3), np.zeros((3, size), np.float32)
    logits = []
    for _ in range(6):
        seen = random.normal(size=(3, 2)).astype(np.float32)
        wanted = policy.parameters(seen, state)["logits"]
        got = session.run(["logits", "action", "next_state"], {"observation": seen, "state": exported})
        np.testing.assert_allclose(got[0], wanted, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(got[1], policy.act(seen, state=state))
        exported = got[2]
        np.testing.assert_allclose(state[:, :size], exported, rtol=0, atol=1e-5)
        logits.append(wanted)
    again = policy.parameters(seen, policy.first_state(3))["logits"]
    assert np.abs(again - logits[-1]).max() > 1e-4, "what it remembers must matter"


def test_a_state_is_asked_for_by_name(gipo, with_torch):
    policy = library.load(gipo.train("run", SMALL))
    for given in [None, np.zeros(3, np.float32), np.zeros(16), np.zeros(16, np.float32)[::-1][:16]]:
        with pytest.raises(library.ConfigError, match="state"):
            policy.act(np.zeros(2, np.float32), state=given)


def learned(gipo, config, timeout, *more):
    ended = gipo("train", CONFIGS / config, "--quiet", "--name", "run", *more, timeout=timeout)
    assert ended.returncode == 0, ended.stderr
    return Path(gipo.folder, "runs", "run")


def test_the_corridor_is_learned_and_played_the_same_everywhere(gipo, with_torch):
    run = learned(gipo, "recall.toml", 600)
    assert summary(run)["eval_return"]["mean"] >= 0.95
    assert library.evaluate(run, episodes=50).mean >= 0.95
    trainer = library.Trainer.load(run)
    assert trainer.evaluate(20).mean >= 0.95
    assert library.evaluate(trainer, "Recall-v0", 20).mean >= 0.95  # by predict, which returns the state


def test_the_corridor_is_learned_with_a_window(gipo, with_torch):
    run = learned(gipo, "recall.toml", 600, "--set", "policy.memory=transformer")
    assert summary(run)["eval_return"]["mean"] >= 0.95


@pytest.mark.slow
def test_cartpole_without_velocities_is_learned(gipo, with_torch):
    run = learned(gipo, "cartpole.toml", 1800)
    assert summary(run)["eval_return"]["mean"] >= 475
