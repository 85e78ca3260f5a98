"""gipo.make_env and gipo.make_vec: Gymnasium's checkers pass, and every task equals Gymnasium's vector environment."""

import copy
import subprocess
import sys
import warnings

import gipo as library
import gymnasium
import mujoco
import numpy as np
import pytest
from conftest import ROOT
from gipo import _core
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

IDS = sorted(_core.native_envs())
THEIRS = [id for id in IDS if id in gymnasium.registry]  # the others are our own
CLASSIC = [id for id in IDS if not id.endswith("-v5")]
HEADER = len(library.make_env("CartPole-v1").save_state()) - 4 * 8  # what precedes the physics in a saved state


@pytest.mark.parametrize("id", IDS)
def test_gymnasiums_checker_passes_and_spaces_are_gymnasiums(id):
    made = gymnasium.make(f"gipo/{id}")
    theirs = gymnasium.make(id) if id in THEIRS else made
    for env in (library.make_env(id), made.unwrapped):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # It says so of Gymnasium's own, whose spaces these are.
            warnings.filterwarnings("ignore", message=".*(infinity|symmetric and normalized)")
            check_env(env)
        assert (env.observation_space, env.action_space) == (theirs.observation_space, theirs.action_space)
    assert library.make_env(id).spec.max_episode_steps == theirs.spec.max_episode_steps == made.spec.max_episode_steps


def copy_start(env, state):
    """Puts Gymnasium's environment where ours has begun an episode."""
    base, physics = env.unwrapped, np.frombuffer(state[HEADER:], np.float64)
    if not hasattr(base, "model"):
        kept = np.float32 if base.spec.id.startswith("MountainCarContinuous") else np.float64
        base.state = physics.astype(kept)
        return
    mujoco.mj_resetData(base.model, base.data)
    nq, nv = base.model.nq, base.model.nv
    base.set_state(physics[1 : 1 + nq], physics[1 + nq : 1 + nq + nv])


def play_beside_gymnasium(id, mode, steps, limit):
    """The same actions in both, each of our starts copied; how many episodes ended."""
    theirs = gymnasium.make_vec(
        id, 3, "sync", vector_kwargs={"autoreset_mode": mode}, max_episode_steps=limit, disable_env_checker=True
    )
    ours = library.make_vec(id, 3, max_episode_steps=limit, autoreset_mode=mode, threads=2)
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"] == mode
    ours.action_space.seed(5)
    ours.reset(seed=11)
    theirs.reset(seed=11)
    begun, ended, ends = np.ones(3, bool), np.zeros(3, bool), 0
    for n in range(steps):
        states = ours.save_state()
        for i in np.flatnonzero(begun):
            copy_start(theirs.envs[i], states[i])
        actions = ours.action_space.sample()
        got, wanted = ours.step(actions), theirs.step(actions)
        before, ended = ended, got[2] | got[3]
        begun = {AutoresetMode.NEXT_STEP: before, AutoresetMode.SAME_STEP: ended}.get(mode, np.zeros(3, bool))
        where = f"{id} step {n}"
        assert got[0].dtype == wanted[0].dtype and got[1].dtype == wanted[1].dtype
        np.testing.assert_array_equal(got[0][~begun], wanted[0][~begun], where)  # theirs begins elsewhere
        np.testing.assert_allclose(got[1], wanted[1], rtol=1e-9, atol=1e-9, err_msg=where)
        np.testing.assert_array_equal(got[2], wanted[2], where)
        np.testing.assert_array_equal(got[3], wanted[3], where)
        finals = got[4].get("_final_obs", np.zeros(3, bool))
        np.testing.assert_array_equal(finals, wanted[4].get("_final_obs", np.zeros(3, bool)), where)
        for i in np.flatnonzero(finals):
            np.testing.assert_array_equal(got[4]["final_obs"][i], wanted[4]["final_obs"][i], where)
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, _ = ours.reset(options={"reset_mask": ended.copy()})
            theirs.reset(options={"reset_mask": ended.copy()})
            np.testing.assert_array_equal(obs[~ended], got[0][~ended])
            begun = ended
        ends += int(ended.sum())
    return ends


@pytest.mark.parametrize("id", THEIRS)
def test_steps_are_those_of_gymnasiums_vector_environment(id):
    """With starts copied and the same actions: observations in every bit, ends, rewards to the last digits."""
    assert play_beside_gymnasium(id, AutoresetMode.NEXT_STEP, 150, 40) >= 9


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
@pytest.mark.parametrize("id", ["CartPole-v1", "Hopper-v5"])
def test_other_modes_of_reset_are_gymnasiums(id, mode):
    assert play_beside_gymnasium(id, mode, 150, 40) >= 9


def episode(env, steps=60):
    """Observations and rewards of fixed actions, from reset on."""
    space = getattr(env, "single_action_space", env.action_space)
    space.seed(1)
    rows = []
    for _ in range(steps):
        action = space.sample()
        many = hasattr(env, "num_envs")
        obs, reward, terminated, truncated, _ = env.step(np.stack([action] * env.num_envs) if many else action)
        rows.append((obs, reward, terminated, truncated))
        if not many and (terminated or truncated):
            rows.append((env.reset()[0], 0.0, False, False))
    return rows


@pytest.mark.parametrize("id", ["CartPole-v1", "Hopper-v5"])
def test_seeds_repeat_and_the_number_of_threads_changes_nothing(id):
    vectors = [library.make_vec(id, 5, threads=threads) for threads in (1, 3)]
    starts = [vector.reset(seed=7)[0] for vector in vectors]
    np.testing.assert_array_equal(*starts)
    for a, b in zip(*map(episode, vectors)):
        for x, y in zip(a, b):
            np.testing.assert_array_equal(x, y)
    again = vectors[0].reset(seed=[7, None, 9, 10, 11])[0]
    np.testing.assert_array_equal(again[[0, 2, 3, 4]], starts[0][[0, 2, 3, 4]])
    assert (again[1] != starts[0][1]).any()  # its stream went on
    single = library.make_env(id)
    np.testing.assert_array_equal(single.reset(seed=9)[0], starts[0][2])  # environment i has seed + i
    assert (single.reset()[0] != starts[0][2]).any()
    assert (library.make_env(id).reset()[0] != library.make_env(id).reset()[0]).any()  # without a seed


@pytest.mark.parametrize("id", ["CartPole-v1", "Hopper-v5"])
def test_saved_states_copies_and_pickles_go_on_alike(id):
    env = library.make_env(id, max_episode_steps=30)
    env.reset(seed=3)
    episode(env, 20)
    state, twin = env.save_state(), copy.deepcopy(env)
    wanted = episode(env)
    env.load_state(state)
    for rows in (episode(env), episode(twin)):
        for a, b in zip(rows, wanted, strict=True):
            np.testing.assert_array_equal(a[0], b[0])
            assert a[1:] == b[1:]
    fresh = library.make_env(id)
    assert (copy.deepcopy(fresh).reset()[0] != copy.deepcopy(fresh).reset()[0]).any()  # no stream was copied
    vector = library.make_vec(id, 2)
    vector.reset(seed=1)
    states = vector.save_state()
    first = vector.step(vector.action_space.sample() * 0)[0]
    vector.load_state(states)
    np.testing.assert_array_equal(vector.step(vector.action_space.sample() * 0)[0], first)
    with pytest.raises(library.ConfigError, match="3 bytes where"):
        env.load_state(b"abc")


def test_options_of_a_task_are_those_of_gymnasium():
    kwargs = {"healthy_z_range": (0.3, np.inf), "exclude_current_positions_from_observation": False, "frame_skip": 2}
    ours, theirs = library.make_env("Hopper-v5", **kwargs), gymnasium.make("Hopper-v5", **kwargs)
    assert ours.observation_space == theirs.observation_space
    assert gymnasium.make("gipo/Hopper-v5", **kwargs).observation_space == theirs.observation_space


@pytest.mark.parametrize("limit", [7, 700])
def test_time_limit_through_gymnasium(limit):
    """Shorter and longer than Pendulum's own of 200."""
    single, many = gymnasium.make("gipo/Pendulum-v1", max_episode_steps=limit), gymnasium.make_vec(
        "gipo/Pendulum-v1", 2, max_episode_steps=limit
    )
    single.reset(seed=1), many.reset(seed=1)
    for n in range(1, limit + 1):
        assert single.step(np.zeros(1))[3] == (n == limit)
        assert (many.step(np.zeros((2, 1)))[3] == (n == limit)).all()


def test_simulation_that_breaks_down_cuts_the_episode_off(tmp_path):
    model = (ROOT / ".venv").resolve()
    xml = next(model.glob("lib/python3*/site-packages/gymnasium/envs/mujoco/assets/inverted_pendulum.xml")).read_text()
    broken = tmp_path / "broken.xml"
    broken.write_text(xml.replace('timestep="0.02"', 'timestep="1e9"'))
    assert "1e9" in broken.read_text()
    env = library.make_vec("InvertedPendulum-v5", 2, xml_file=str(broken))
    obs, _ = env.reset(seed=1)
    after, reward, terminated, truncated, info = env.step(np.ones((2, 1)))
    np.testing.assert_array_equal(after, obs)
    assert (reward == 0).all() and not terminated.any() and truncated.all()
    assert info["_fault"].all() and info["fault"][0].startswith("mujoco_")


def refusals():
    cart, vector = library.make_env("CartPole-v1"), library.make_vec("CartPole-v1", 2)
    disabled = library.make_vec("Pendulum-v1", 2, autoreset_mode="Disabled", max_episode_steps=1)
    reset_needed = gymnasium.error.ResetNeeded
    yield lambda: cart.step(0), reset_needed, "call reset"
    yield lambda: vector.step([0, 0]), reset_needed, "call reset"
    yield lambda: vector.reset(options={"reset_mask": np.array([True, False])}), reset_needed, "first reset"
    cart.reset(seed=0), vector.reset(seed=0), disabled.reset(seed=0)
    disabled.step(np.zeros((2, 1)))
    yield lambda: disabled.step(np.zeros((2, 1))), reset_needed, r"\[0, 1\] have ended"
    error = library.ConfigError
    yield lambda: cart.step(2), error, r"action\[0\] = 2 is not one of the choices 0 to 1"
    yield lambda: cart.step([0]), error, r"shape \(1,\) where \(\)"
    yield lambda: cart.step("left"), error, "wanted one of Discrete"
    yield lambda: vector.step([0, 7]), error, "choices 0 to 1"
    yield lambda: vector.step([0]), error, r"where \(2,\)"
    yield lambda: vector.reset(seed=[1]), error, "seed has 1 values"
    yield lambda: vector.reset(seed=-1), error, "seed = -1"
    yield lambda: vector.reset(options={"reset_mask": [True]}), error, "reset_mask"
    yield lambda: cart.reset(options={"low": 1}), error, "have none"
    yield lambda: library.make_env("CartPoel-v1"), error, "did you mean CartPole-v1"
    yield lambda: library.make_env("gymnasium:Blackjack-v1"), error, "gymnasium.make"
    yield lambda: library.make_env("Hopper-v5", helthy_reward=2), error, "did you mean healthy_reward"
    yield lambda: library.make_env("Hopper-v5", frame_skip=0), error, "frame_skip = 0"
    yield lambda: library.make_env("CartPole-v1", max_episode_steps=-1), error, "time limit of -1"
    yield lambda: library.make_vec("CartPole-v1", 0), error, "num_envs = 0"
    yield lambda: library.make_vec("CartPole-v1", autoreset_mode="off"), error, "'NextStep', 'SameStep'"
    yield lambda: library.make_vec("CartPole-v1", 2, threads=0), error, "threads = 0"


def test_mistakes_are_told():
    for call, exception, text in refusals():
        with pytest.raises(exception, match=text):
            call()


def test_a_refused_action_moves_none_of_the_environments():
    vector = library.make_vec("CartPole-v1", 2)
    vector.reset(seed=1)
    before = vector.save_state()
    with pytest.raises(library.ConfigError):
        vector.step([0, 2])
    assert vector.save_state() == before


@pytest.mark.parametrize("order", ["import gipo, gymnasium", "import gymnasium, gipo"])
def test_ids_are_known_after_import_which_brings_no_gymnasium(order):
    code = f"import sys; import gipo; assert 'numpy' not in sys.modules; {order}; gymnasium.make('gipo/Acrobot-v1')"
    if order.startswith("import gymnasium"):
        code = f"{order}; gymnasium.make_vec('gipo/Acrobot-v1', 2)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
