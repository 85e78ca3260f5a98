"""`gipo train` with a vision-language-action model, at toy size: it learns, and resumes to the last byte. Needs a build with
GIPO_TORCH."""

import json
import runpy
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import read_safetensors, settings, summary
from test_resume import contents, kill_and_resume, train, whole
from test_torch import torch_built, with_torch  # noqa: F401

import gipo as library

TOLD = Path(__file__).parent / "bridge" / "instructions.py"
TINY = ("10m, patch=8, width=32, layers=2, heads=2, hidden=64, value_hidden_1=32, value_hidden_2=32, featurizer.width=16, "
        "featurizer.depth=2, featurizer.heads=2, featurizer.hidden=32, featurizer.registers=1, fused_featurizer.width=16, "
        "fused_featurizer.depth=2, fused_featurizer.heads=2, fused_featurizer.hidden=32")  # fmt: skip
BANDIT = {"env.id": f"python:{TOLD}:Told", "env.python": sys.executable, "env.time_limit": 2, "env.workers": 1, "env.count": 16,
          "learner.backend": "torch", "policy.encoder": "openvla_oft", "policy.model": TINY, "staleness.actors": 1,
          "staleness.env_steps_per_update": 64, "replay.capacity": 1024, "replay.segment_length": 1, "staleness.regime": "custom",
          "learner.batch_size": 128, "log.tensorboard": "false", "eval.every_updates": 0, "eval.episodes": 100}  # fmt: skip


def test_learns_what_the_instruction_and_the_picture_say(gipo, with_torch):  # noqa: F811
    run = gipo.train("told", BANDIT | {"learner.updates": 150, "learner.policy_lr": 3e-3, "learner.value_lr": 3e-3,
                                       "surrogate.ratio": "dimension", "run.seed": 3})  # fmt: skip
    assert summary(run)["eval_return"]["success_rate"] > 0.9
    early = [json.loads(line)["success"] for line in (run / "episodes.jsonl").read_text().splitlines()[:200]]
    assert np.mean(early) < 0.5  # 0.25 by chance
    env = runpy.run_path(str(TOLD))["Told"]()
    policy, right = library.Policy(run), []
    for seed in range(20):
        right.append(env.step(policy.act(env.reset(seed=seed)[0]))[1])
    assert np.mean(right) > 0.9


KINDS = {
    "flat": {"surrogate.ratio": "group", "surrogate.ratio_group": 2, "surrogate.centre": "proximal", "advantage.mode": "vtrace"},
    "in place": {"policy.model": TINY + ", micro_batch=40"},
    "adapters": {"policy.model": TINY + ", micro_batch=40, lora=4, act_bits=8", "advantage.mode": "gae"},
}
AVERAGED = KINDS["adapters"] | {"surrogate.centre": "proximal", "learner.proximal_coef": 0.1, "learner.proximal_updates": 10}
# All data is collected before the first update: the state of environments in other processes cannot be saved.
COLLECTED = BANDIT | {"learner.updates": 24, "checkpoint.every_updates": 5, "staleness.env_steps_per_update": 0.001,
                      "staleness.warmup": 512, "eval.every_updates": 9, "eval.episodes": 8}  # fmt: skip


@pytest.mark.parametrize("kind, ranks", [*((kind, ranks) for kind in KINDS for ranks in (1, 2)), ("averaged", 1)])
def test_killed_and_resumed_ends_with_the_same_bytes(gipo, with_torch, tmp_path, kind, ranks):  # noqa: F811
    options = COLLECTED | (AVERAGED if kind == "averaged" else KINDS[kind]) | {"learner.ranks": ranks}
    begin = time.monotonic()
    whole(train(gipo, tmp_path, "alone", **options))
    longest = 0.8 * (time.monotonic() - begin)
    kill_and_resume(gipo, tmp_path, options, kills=2, seed=1, longest=longest)
    assert contents(tmp_path / "alone") == contents(tmp_path / "killed")


def learner_of(run):
    """What the newest checkpoint's learner has learned, as one array."""
    newest = max((run / "checkpoints").glob("[0-9]*[0-9]"), key=lambda folder: int(folder.name))
    tensors = read_safetensors(newest / "learner.safetensors")
    if "own" not in tensors:
        return np.concatenate([v.ravel() for k, v in sorted(tensors.items()) if k.startswith(("policy.", "critic."))])
    # Parameters, the number of steps and both moments, nearly as many of each.
    return tensors["own"][: (tensors["own"].size - 8) // 12 * 4].view("<f4")


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_learn_as_one_with_the_whole_batch(gipo, with_torch, kind):  # noqa: F811
    alone = learner_of(gipo.train("alone", COLLECTED | KINDS[kind] | {"checkpoint.every_updates": 24}))
    for ranks in (2, 3):
        run = gipo.train(f"of-{ranks}", COLLECTED | KINDS[kind] | {"checkpoint.every_updates": 24, "learner.ranks": ranks})
        ours = learner_of(run)
        assert 0 < np.linalg.norm(ours - alone) / np.linalg.norm(alone) < 1e-5
    # And one process goes on with what three have saved.
    config = run / "config.toml"
    text = config.read_text().replace("ranks = 3", "ranks = 1").replace("updates = 24\n", "updates = 26\n", 1)
    config.write_text(text)
    ended = gipo("resume", run)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("more", [{}, {"surrogate.centre": "proximal", "surrogate.pull_back": "both", "surrogate.sigma": 0.25}])
def test_in_place_learns_too(gipo, with_torch, more):  # noqa: F811
    run = gipo.train("place", BANDIT | {"policy.model": TINY + ", micro_batch=64", "learner.updates": 150, "learner.policy_lr": 3e-3,
                                        "learner.value_lr": 3e-3, "surrogate.ratio": "dimension", "run.seed": 3} | more)  # fmt: skip
    assert summary(run)["eval_return"]["success_rate"] > 0.4  # from 0.25; its smaller first weights take longer
    ended = gipo("eval", run)
    assert ended.returncode == 2 and "acts in its own run alone" in ended.stderr


def test_refuses(gipo, with_torch):  # noqa: F811
    for options, words in [
        ({"policy.model": "10m, widht=32"}, "widht is no size of a model (did you mean width?)"),
        ({"policy.model": "10m, patch=8, width=20"}, "wanted a width that is a multiple of 8 times the heads"),
        ({"policy.model": "12m"}, "model 12m is not known"),
        ({"policy.model": "10m, patch=5"}, "image = 16: wanted a multiple of patch = 5"),
        ({"env.id": "CartPole-v1"}, "openvla_oft fits none of the task's fields"),
        ({"policy.memory": "gru"}, "openvla_oft has no memory, and policy.memory is gru"),
        ({"surrogate.ratio": "group", "surrogate.ratio_group": 7}, "which is no multiple of it"),
        ({"policy.model": TINY + ", lora=4"}, "lora, frozen_vision, act_bits and the folder of a checkpoint need micro_batch"),
        ({"policy.model": TINY + ", micro_batch=4, act_bits=4"}, "act_bits = 4: wanted 8 or 16"),
        ({"policy.model": "./nothing, micro_batch=4"}, "policy.model = \"./nothing, micro_batch=4\" is not accepted"),
        ({"policy.model": TINY + ", micro_batch=8", "surrogate.centre": "proximal", "learner.ranks": 2}, "there is no average of the weights"),
        ({"learner.backend": "cpu"}, "openvla_oft needs learner.backend = torch"),
    ]:
        ended = gipo("train", *settings(BANDIT | options))
        assert ended.returncode == 2 and words in ended.stderr, (options, ended.stderr)
    assert gipo.entries() == []
