"""gipo.evaluate: any policy on any environment."""

import json
import subprocess

import gipo as library
import gymnasium
import numpy as np
import pytest

SMALL = {
    "policy__hidden": [16, 16], "learner__batch_size": 64, "learner__updates": 100, "replay__segment_length": 16,
    "eval__episodes": 2, "progress": False,
}  # fmt: skip


class Steps(gymnasium.Env):
    """The return of an episode is its seed; it lasts three steps, or for ever. An action of 1 halves the reward."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, endless=False):
        self.endless, self.closed = endless, False

    def reset(self, seed=None, options=None):
        self.seed, self.at = seed or 0, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at += 1
        reward = float(self.seed) if self.at == 1 else 0.0
        ended = not self.endless and self.at == 3
        return np.zeros(1, np.float32), reward / (1 + action), ended, False, {}

    def close(self):
        self.closed = True


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    return library.train(env="Pendulum-v1", env__time_limit=50, run__dir=folder, name="small", **SMALL)


def test_returns_and_lengths_of_a_function_on_every_kind_of_environment():
    env = Steps()
    for given in (env, Steps, lambda: Steps(), f"python:{__name__}:Steps"):
        found = library.evaluate(lambda obs: 0, given, 4, seed=10)
        assert found.returns.tolist() == [10, 11, 12, 13] and found.lengths.tolist() == [3] * 4
        assert (found.mean, found.std, found.episodes) == (11.5, np.std([10, 11, 12, 13]), 4)
    assert not env.closed  # the caller's
    assert library.evaluate(lambda obs: 1, env, 2, seed=10).mean == 5.25
    assert repr(found) == "Evaluation(mean=11.5, std=1.11803, episodes=4)"


def test_time_limit_and_options():
    endless = library.evaluate(lambda obs: 0, Steps, 2, endless=True, time_limit=7)
    assert endless.lengths.tolist() == [7, 7]
    assert library.evaluate(lambda obs: 0, Steps(True), 1).lengths.tolist() == [10_000]
    assert library.evaluate(lambda obs: 1, "gymnasium:CartPole-v1", 2, time_limit=5).lengths.max() == 5
    assert library.evaluate(lambda obs: np.zeros(3), "Hopper-v5", 1, time_limit=9, terminate_when_unhealthy=False).lengths == 9


def test_native_task_gives_the_returns_of_gymnasium():
    """Pendulum with the same starts would be equal; with other starts of the same law the means agree."""
    ours = library.evaluate(lambda obs: np.zeros(1), "Pendulum-v1", 60)
    theirs = library.evaluate(lambda obs: np.zeros(1), "gymnasium:Pendulum-v1", 60)
    error = np.hypot(ours.std, theirs.std) / np.sqrt(60)
    assert abs(ours.mean - theirs.mean) < 4 * error and (ours.lengths == 200).all()


def test_run_path_and_policy_are_the_same_and_bring_their_task(run):
    wanted = library.evaluate(run, episodes=3)
    assert wanted.lengths.tolist() == [50] * 3  # the run's time limit
    for policy in (str(run.path), run.path, run.policy(), library.load(run)):
        np.testing.assert_array_equal(library.evaluate(policy, episodes=3).returns, wanted.returns)
    alone = library.evaluate(run.path / "policy.safetensors", episodes=3)  # knows the id alone
    assert alone.lengths.tolist() == [200] * 3
    single = library.evaluate(lambda obs: run.policy().act(obs), "Pendulum-v1", 3, time_limit=50)
    np.testing.assert_array_equal(single.returns, wanted.returns)


def test_sampled_actions_repeat_with_the_seed(run):
    once, again = (library.evaluate(run, episodes=2, deterministic=False, seed=5) for _ in range(2))
    np.testing.assert_array_equal(once.returns, again.returns)
    assert (once.returns != library.evaluate(run, episodes=2, seed=5).returns).all()


def test_agrees_with_the_evaluation_of_the_program(run, binary):
    done = subprocess.run([binary, "eval", run.path, "--episodes", "60", "--json"], capture_output=True, text=True)
    theirs, ours = json.loads(done.stdout), library.evaluate(run, episodes=60)
    theirs = theirs.get("eval_return", theirs)
    assert abs(theirs["mean"] - ours.mean) < 4 * np.hypot(theirs["std"], ours.std) / np.sqrt(60)


class Model:
    """As Stable-Baselines3's models act."""

    def predict(self, obs, state=None, episode_start=None, deterministic=False):
        return (0 if deterministic else 1), state


def test_models_with_predict():
    assert library.evaluate(Model(), Steps, 1, seed=10).mean == 10
    assert library.evaluate(Model(), Steps, 1, seed=10, deterministic=False).mean == 5


class Masked(Steps):
    """Only action 1 is valid, as info says."""

    def reset(self, seed=None, options=None):
        obs, _ = super().reset(seed)
        return obs, {"action_mask": np.array([0, 1], np.uint8)}

    def step(self, action):
        assert action == 1
        *result, _ = super().step(action)
        return *result, {"action_mask": np.array([0, 1], np.uint8)}


def test_masks_in_info_reach_the_policy(tmp_path):
    run = library.train(env=Masked, env__mask="info", run__dir=tmp_path, name="masked", **SMALL)
    assert library.evaluate(run, episodes=2, seed=4).returns.tolist() == [2, 2.5]


class Broken(Steps):
    def step(self, action):
        raise KeyError("the environment's own")


def test_mistakes_are_told(run, tmp_path):
    error = library.ConfigError
    for arguments, exception, said in [
        ((lambda obs: 0,), error, "env is missing"),
        ((lambda obs: 0, "CartPoel-v1"), error, "did you mean CartPole-v1"),
        ((lambda obs: 0, "gymnasium:NoSuch-v0"), error, "NoSuch"),
        ((lambda obs: 0, "envpool:CartPole-v1"), error, "one environment"),
        ((lambda obs: 0, 7), error, "wanted an id"),
        ((lambda obs: 0, lambda: None), error, "this has no reset, step"),
        ((lambda obs: 0, library.make_vec("CartPole-v1", 2)), error, "not several"),
        ((lambda obs: 0, Steps, 0), error, "episodes = 0"),
        ((None, Steps), TypeError, "not NoneType"),
        ((lambda obs: 0, Broken), KeyError, "environment's own"),
        ((tmp_path / "nothing", Steps), error, "nothing"),
        ((run, "CartPole-v1"), error, "shape"),
    ]:
        with pytest.raises(exception, match=said):
            library.evaluate(*arguments)
    with pytest.raises(error, match="made already"):
        library.evaluate(lambda obs: 0, Steps(), endless=True)


