"""A policy knows the spaces of its task: raw observations in, actions of the space out, and so says its file."""

import json
import sys
from pathlib import Path

import gipo as library
import gymnasium
import numpy as np
import onnxruntime
import pytest
import safetensors
import safetensors.numpy
from conftest import TINY
from gipo import worker
from gipo.spaces import Spaces

HERE = Path(__file__).resolve().parent / "bridge"
sys.path.insert(0, str(HERE))

import sample_envs  # noqa: E402

OPTIONS = TINY | {"policy.hidden": [8], "learner.updates": 4, "staleness.actors": 1, "env.workers": 1, "eval.episodes": 1}
# Every observation space and every action space at least once.
PAIRS = [
    ("row", "row"), ("image", "square of doubles"), ("number", "halves"), ("choice", "choice"), ("choices", "choices"),
    ("bits", "number"), ("square of bits", "bits"), ("dict", "dict"), ("tuple", "tuple"), ("row", "bytes"),
    ("dict", "integers"), ("choice", "any integers"), ("row", "doubles"), ("bytes", "choice"), ("integers", "choice"),
    ("large", "choice"), ("camera", "row"), ("nested", "choice"),
]  # fmt: skip
assert {a for a, _ in PAIRS} == set(sample_envs.OBSERVATIONS) and {b for _, b in PAIRS} == set(sample_envs.ACTIONS)


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def trained(observation, action, **more):
    options = {"observation": observation, "action": action}
    run = library.train(OPTIONS | more, sample_envs.Spaced, env__options=options, progress=False)
    return run.policy(), sample_envs.Spaced(**options)


def same(a, b, rounding=False):
    """Equal in every part; with `rounding` but for it, as a row alone and one of a batch are: integers by one."""
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[key], b[key], rounding) for key in a)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(same(x, y, rounding) for x, y in zip(a, b))
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not rounding:
        return np.array_equal(a, b)
    return np.allclose(a.astype(float), b.astype(float), rtol=1e-3, atol=1 if a.dtype.kind in "iu" else 1e-3)


def assert_onnx_agrees(policy, observations):
    """What the model makes of flattened observations is what `act` does, up to rounding."""
    library.export("runs/" + next(Path("runs").iterdir()).name, "policy.onnx")
    session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
    assert json.loads(session.get_modelmeta().custom_metadata_map["spaces"]) == policy.spaces
    rows = policy.flatten(observations)
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"observation": rows})))
    parameters = policy.parameters(observations)
    for name, expected in parameters.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
    # Where rounding cannot decide between two actions, they are the same.
    exact = policy._core.act(rows, [], True, None, None, None)
    numbers = found["action"].reshape(exact.shape)
    scale = np.maximum(1, np.abs(exact).max())
    if policy.action_kind == "box":
        np.testing.assert_allclose(numbers / scale, exact / scale, rtol=1e-4, atol=1e-5)
        assert same(policy.make_action(exact), policy.act(observations))
    else:
        clear = (numbers == exact).all(axis=1)
        assert clear.mean() > 0.9
        assert same(policy.make_action(numbers if policy.action_kind != "discrete" else numbers[:, 0]),
                    policy.act(observations)) or not clear.all()  # fmt: skip


@pytest.mark.parametrize("observation, action", PAIRS, ids=lambda name: name)
def test_actions_of_raw_observations_are_in_the_space(observation, action):
    policy, env = trained(observation, action)
    env.observation_space.seed(1)
    obs, _ = env.reset(seed=1)
    seen = []
    for i in range(1000):
        act = policy.act(obs, deterministic=i % 2 == 0)
        assert env.action_space.contains(act), act
        assert not isinstance(act, dict) or list(act) == list(env.action_space.spaces)
        seen.append(obs)
        obs, _, done, _, _ = env.step(act)
        if done:
            obs, _ = env.reset()
    # The description is that of the space: it makes the same one again.
    described = {"observation": worker.describe_space(env.observation_space),
                 "action": worker.describe_space(env.action_space)}  # fmt: skip
    assert policy.spaces == json.loads(json.dumps(described))
    # A batch is what a vector environment gives and takes.
    vector = gymnasium.vector.utils
    batch = vector.concatenate(env.observation_space, seen[:64], vector.create_empty_array(env.observation_space, 64))
    actions = policy.act(batch)
    assert vector.batch_space(env.action_space, 64).contains(actions)
    for i, one in enumerate(vector.iterate(vector.batch_space(env.action_space, 64), actions)):
        assert same(one, policy.act(seen[i]), rounding=policy.action_kind == "box"), (one, policy.act(seen[i]))
    flat = np.array([sample_envs.as_row(env.observation_space, obs) for obs in seen[:64]])
    assert np.array_equal(policy.flatten(batch), flat) and same(policy.act(flat), actions)
    assert_onnx_agrees(policy, batch)


def test_bins_end_at_the_bounds():
    """Of doubles, where low + (high - low) is more than high."""
    policy, env = trained("row", "doubles", **{"policy.distribution": "binned", "policy.bins": 2})
    for seed in range(100):
        assert env.action_space.contains(policy.act(env.observation_space.sample(), deterministic=False, seed=seed))


def test_what_is_no_observation_is_refused_by_its_key():
    policy, env = trained("dict", "dict")
    good = env.observation_space.sample()
    inner = {"pair": (np.array([1, 1]), np.array([0, 1]))}

    def refused(obs, *words):
        for call in (policy.act, policy.value, policy.parameters, policy.flatten):
            with pytest.raises(library.ConfigError) as raised:
                call(obs)
            for word in ("python:sample_envs:Spaced: ", *words):
                assert word in str(raised.value)

    refused(good | {"z": np.zeros((2, 3))}, "the observation['z'] is float64 of shape (2, 3)", "wanted uint8 of shape (2, 2)")
    refused(good | {"z": np.zeros((2, 2))}, "the observation['z'] is float64 of shape (2, 2)", "wanted uint8")
    refused(good | {"z": np.full((2, 2), 256)}, "the observation['z'] is int64 from 256 to 256: wanted uint8, 0 to 255")
    refused(good | {"a": 2}, "the observation['a'] is 2: wanted choices from -1 on, 3 of them")
    refused(good | {"inner": {"pair": (inner["pair"][0], [0, 1, 1])}}, "the observation['inner']['pair'][1] is [0, 1, 1]")
    refused({"z": good["z"]}, "wanted a dict with ['z', 'a', 'inner']")
    refused(good | {"inner": 3}, "the observation['inner'] is 3: wanted a dict with ['pair']")
    refused(good | {"a": np.nan}, "the observation['a'] is nan, float64 of shape (): wanted int32")
    refused(good | {"a": "left"}, "the observation['a'] is 'left'")
    batch = {"z": np.zeros((3, 2, 2), int), "a": np.zeros(2, int), "inner": {"pair": (np.ones((3, 2)), np.ones((3, 2)))}}
    refused(batch, "the observation['a'] is int64 of shape (2,)")
    refused(np.zeros(7), "the observation is array(")
    refused(None, "the observation is None")
    policy, env = trained("tuple", "row", **{"run.name": "other"})
    good = env.observation_space.sample()
    refused((good[0], np.full((2, 2), np.nan), good[2]), "the observation[1] holds nan at index 0: wanted finite numbers")
    refused((good[0], np.full((2, 2), 1e300), good[2]), "the observation[1] holds inf at index 0")


def test_composed_actions_are_in_the_space():
    space = gymnasium.spaces.Dict({"gear": gymnasium.spaces.Discrete(5, start=1), "wheels": gymnasium.spaces.Box(-1, 1, (3,))})
    described = {"observation": worker.describe_space(gymnasium.spaces.Box(-1, 1, (2,))),
                 "action": worker.describe_space(space)}  # fmt: skip
    made = Spaces(json.dumps(described), 2, 4)
    numbers = np.array([[4, 0.25, -1, 1], [0, 0.5, 0.1, -0.1]])
    one, both = made.actions(numbers[:1], True), made.actions(numbers, False)
    assert space.contains(one) and one["gear"] == 5 and np.array_equal(one["wheels"], np.float32([0.25, -1, 1]))
    assert gymnasium.vector.utils.batch_space(space, 2).contains(both)
    assert worker.describe_action(space) == {
        "kind": "composed", "choices": [5, 0, 0, 0], "low": [0, -1, -1, -1], "high": [0, 1, 1, 1]}  # fmt: skip


def test_what_the_policy_does_not_see_may_be_missing():
    run = library.train(OPTIONS | {"env.critic_fields": "state"}, sample_envs.WithRoles, progress=False)
    policy = run.policy()
    assert policy.spaces["roles"] == {"action_mask": "mask", "state": "critic"}
    env = sample_envs.WithRoles()
    whole, _ = env.reset(seed=1)
    # The policy's numbers come first, an image from 0 to 1; a mask is among no numbers.
    assert np.array_equal(policy.flatten(whole), np.float32([0.2] * 4 + whole["state"].tolist()))
    seen = {"camera": whole["camera"]}
    assert np.array_equal(policy.flatten(seen), np.float32([0.2] * 4 + [0] * 3))
    assert policy.act(seen, mask=whole["action_mask"]) == policy.act(whole)
    with pytest.raises(library.ConfigError, match="wanted mask= of shape"):
        policy.act(seen)
    assert policy.flatten({"camera": np.stack([whole["camera"]] * 3)}).shape == (3, 7)
    with pytest.raises(library.ConfigError, match="wanted a dict with .*'camera'"):
        policy.act({"state": whole["state"]})
    with pytest.raises(library.ConfigError, match="wanted a dict with"):
        policy.act(seen | {"other": 3})


def test_numbers_that_are_not_finite_are_refused():
    run = library.train(OPTIONS, "CartPole-v1", progress=False)
    policy = run.policy()
    for value in (np.nan, np.inf, -np.inf, 1e300):
        with pytest.raises(library.ConfigError, match="CartPole-v1: the observation holds -?(nan|inf) at index 2: wanted"):
            policy.act([0, 0, value, 0])
    with pytest.raises(library.ConfigError, match="holds nan at index 1 of row 2: wanted finite"):
        policy.act([[0, 0, 0, 0], [0, 0, 0, 0], [0, np.nan, 0, 0]])
    for wrong in ("left", {"a": 1}, [[1, 2], [3]], None):
        with pytest.raises(library.ConfigError, match="CartPole-v1: "):
            policy.act(wrong)


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_native_tasks_describe_themselves(task):
    policy = library.train(OPTIONS, task, progress=False).policy()
    env = gymnasium.make(task)
    described = worker.describe_space(env.action_space)
    assert policy.spaces["action"] == described
    assert policy.spaces["observation"]["shape"] == list(env.observation_space.shape)
    obs, _ = env.reset(seed=1)
    for _ in range(50):
        action = policy.act(obs)
        assert env.action_space.contains(action)
        obs, _, done, _, _ = env.step(action)
        if done:
            obs, _ = env.reset()


def rewritten(policy_file, path, change):
    """The same policy with other metadata."""
    with safetensors.safe_open(policy_file, "numpy") as file:
        metadata = file.metadata()
    change(metadata)
    safetensors.numpy.save_file(safetensors.numpy.load_file(policy_file), path, metadata)
    return path


def test_files_without_spaces_act_as_they_did(tmp_path):
    policy, env = trained("dict", "choice")
    file = next(Path("runs").iterdir()) / "policy.safetensors"
    old = library.load(rewritten(file, tmp_path / "old.safetensors", lambda m: m.pop("spaces")))
    obs = env.observation_space.sample()
    assert old.spaces is None
    action = old.act(policy.flatten(obs))
    assert action.dtype == np.int64 and action + 5 == policy.act(obs)
    with pytest.raises(library.ConfigError):
        old.act(obs)
    library.export(tmp_path / "old.safetensors", tmp_path / "old.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "old.onnx", providers=["CPUExecutionProvider"])
    assert "spaces" not in session.get_modelmeta().custom_metadata_map


def test_a_damaged_description_is_named(tmp_path):
    policy, _ = trained("dict", "dict")
    file = next(Path("runs").iterdir()) / "policy.safetensors"
    whole = json.dumps(policy.spaces)
    deep = '{"kind": "Tuple", "spaces": [' * 5000 + "]}" * 5000
    for text in (
        "", "{}", "3", "null", "[[", whole[:-5], whole.replace('"Dict"', '"Dyct"'), whole.replace("uint8", "object"),
        whole.replace('"shape": [2, 2]', '"shape": [2, 1000000000000]'), whole.replace('"n": 3', '"n": -3'),
        whole.replace('"n": 3', '"n": 4'), f'{{"observation": {deep}, "action": {deep}}}',
    ):  # fmt: skip
        path = rewritten(file, tmp_path / "damaged.safetensors", lambda m, text=text: m.update(spaces=text))
        if text == "":
            assert library.load(path).spaces is None
            continue
        with pytest.raises(library.ConfigError, match="damaged.safetensors: the description of its spaces is"):
            library.load(path)
