"""What the seams are for: tasks that need composed actions, a critic that sees more, or masks are learned with them."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

import gipo as library
import pytest
from conftest import summary

TASKS = Path(__file__).parent / "bridge" / "seams.py"
sys.path.insert(0, str(TASKS.parent))
import seams  # noqa: E402
SEEDS = range(1, 6)
RUN = {
    "staleness.regime": "fresh", "staleness.window": 40, "staleness.actors": 1, "staleness.env_steps_per_update": 32,
    "env.count": 8, "advantage.gamma": 0.0, "learner.policy_lr": 2e-3, "learner.value_lr": 3e-3,
    "replay.segment_length": 16, "policy.hidden": "[64, 64]", "learner.batch_size": 256, "log.every_updates": 500,
    "eval.episodes": 100, "checkpoint.every_updates": 0,
}  # fmt: skip


def learn(gipo, task, seed, **options):
    """The evaluation at the end of a run."""
    name = f"{task}-{seed}-{'-'.join(str(v) for v in options.values())}"
    run = gipo.train(name, RUN | {"env.id": f"python:{TASKS}:{task}", "run.seed": seed} | options)
    return summary(run)["eval_return"]


def learn_all(gipo, task, **options):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda seed: learn(gipo, task, seed, **options), SEEDS))


def test_masked_actions_are_never_taken_and_the_rest_is_learned(gipo):
    """The task ends the run at an action that is not valid."""
    assert learn(gipo, "Masked", 1, **{"learner.updates": 1000})["mean"] > 15
    policy = library.load(next(Path(gipo.folder, "runs").iterdir()))
    env, steps = seams.Masked(), 0
    obs, _ = env.reset(seed=3)
    while steps < 100:  # the mask is read from the observation
        obs, _, terminated, truncated, _ = env.step(policy.act(obs, deterministic=steps % 2 == 0))
        steps += 1
        if terminated or truncated:
            obs, _ = env.reset()
    with pytest.raises(library.ConfigError, match=r"wanted mask= of shape \(20,\)"):
        policy.act({"aim": obs["aim"]})


def test_a_state_without_a_valid_action_is_named(gipo):
    done = gipo("train", "--set", f"env.id=python:{TASKS}:Masked", "--set", "env.options.empty_at=5")
    assert done.returncode == 1
    assert f"(python:{TASKS}:Masked): its mask leaves no valid action at step 6 of episode 0" in done.stderr


def test_a_critic_that_sees_more_learns_what_drowns_in_noise(gipo):
    options = {"learner.updates": 1000, "env.reward_scale": 0.01}
    assert learn(gipo, "Noisy", 1, **options, **{"env.critic_fields": "luck"})["success_rate_last"] > 0.95


@pytest.mark.slow
def test_without_the_critics_field_it_is_not_learned(gipo):
    options = {"learner.updates": 1000, "env.reward_scale": 0.01}
    seeing = [e["success_rate_last"] for e in learn_all(gipo, "Noisy", **options, **{"env.critic_fields": "luck"})]
    blind = [e["success_rate_last"] for e in learn_all(gipo, "Noisy", **options, **{"env.options.hidden": "true"})]
    assert min(seeing) > 0.95, seeing
    assert mean(blind) < 0.8, blind


@pytest.mark.slow
def test_composed_actions_are_learned_and_neither_part_alone_is_enough(gipo):
    """A step pays 1 for the right choice, less the squared miss of the numbers: 16 an episode at most."""
    options = {"learner.updates": 3000}
    returns = {parts: [e["mean"] for e in learn_all(gipo, "Hybrid", **options, **{"env.options.parts": parts})]
               for parts in ("both", "choice", "aim")}  # fmt: skip
    assert min(returns["both"]) > 9, returns
    assert max(returns["choice"] + returns["aim"]) < 7, returns
