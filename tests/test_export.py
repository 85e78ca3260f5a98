"""`gipo export`: other programs compute what `act` does, and read the weights."""

import json
import re

import gipo as library
import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors
import safetensors.numpy

SIZE, HIDDEN = 5, (16, 12)
DISCRETE = {"kind": "discrete", "choices": [6], "low": [], "high": []}
MULTI = {"kind": "multi_discrete", "choices": [3, 2, 7], "low": [], "high": []}
ONE = {"kind": "box", "choices": [], "low": [-2.0], "high": [2.0]}
BOX = {"kind": "box", "choices": [], "low": [-2.0, -0.4, 1.0], "high": [2.0, 0.4, 9.0]}
COMPOSED = {"kind": "composed", "choices": [4, 0, 3, 0], "low": [0, -2.0, 0, None], "high": [0, 1.0, 0, None]}
ONE_CHOICE = {"kind": "composed", "choices": [0, 5], "low": [-2.0, 0], "high": [1.0, 0]}
OPEN = {"kind": "box", "choices": [], "low": [None, -1.0, None], "high": [None, 1.0, 3.0]}

# Actions, options, and the choices of each dimension; 0: a gaussian.
POLICIES = {
    "categorical": (DISCRETE, "", [6]),
    "multi-categorical": (MULTI, "", [3, 2, 7]),
    "gaussian": (BOX, "", [0] * 3),
    "gaussian without some bounds": (OPEN, "", [0] * 3),
    "bins": (BOX, 'policy.distribution = "binned"\npolicy.bins = 33\n', [33] * 3),
    "bins of one dimension": (ONE, 'policy.distribution = "binned"\n', [11]),
    "relu and LayerNorm": (BOX, 'policy.activation = "relu"\npolicy.layer_norm = true\n', [0] * 3),
    "composed": (COMPOSED, "", [4, 0, 3, 0]),
    "composed of one choice and one number": (ONE_CHOICE, "", [0, 5]),
    "composed with bins": (ONE_CHOICE, 'policy.distribution = "binned"\npolicy.bins = 9\n', [9, 5]),
}


def write_policy(path, action, options, heads, limit=np.inf, masked=False):
    """A policy of random weights, by the safetensors package; tensors and metadata as docs/run-folder.md says."""
    random = np.random.default_rng(1)
    tensors = {
        "observation.mean": random.normal(size=SIZE),
        "observation.inverse_std": random.uniform(0.5, 2, size=SIZE),
        "observation.limit": np.array([limit]),
    }
    for network, last in (("policy", sum(n or 1 for n in heads)), ("critic", 1)):
        widths = (SIZE, *HIDDEN, last)
        for i, (before, after) in enumerate(zip(widths, widths[1:])):
            tensors[f"{network}.{i}.weight"] = 2 * random.normal(size=(after, before)) / np.sqrt(before)
            tensors[f"{network}.{i}.bias"] = 0.2 * random.normal(size=after)
            if "layer_norm" in options and i < len(HIDDEN):
                tensors[f"{network}.{i}.norm.weight"] = random.normal(size=after)
                tensors[f"{network}.{i}.norm.bias"] = 0.2 * random.normal(size=after)
    if 0 in heads:
        tensors["policy.log_std"] = random.normal(size=heads.count(0))
    metadata = {"format": "gipo-policy-1", "env": "made-up", "version": "7", "action": json.dumps(action),
                "options": f"policy.hidden = {list(HIDDEN)}\n" + options}  # fmt: skip
    if masked:
        metadata["masked"] = "true"
    safetensors.numpy.save_file({name: t.astype(np.float32) for name, t in tensors.items()}, path, metadata)
    return path


def split_heads(parameters, heads):
    ends = np.cumsum([n for n in heads if n])
    return np.split(parameters["logits"], ends[:-1], axis=1) if len(ends) else []


def assert_same(policy, model, observations, heads):
    """Every output of the model against the library's own, on all observations."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"observation": observations})))
    parameters = policy.parameters(observations)
    assert set(found) == {"action", *parameters}
    for name, expected in parameters.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5, err_msg=name)
    actions = policy.act(observations)
    assert found["action"].dtype == actions.dtype and found["action"].shape == actions.shape
    clear = np.ones(len(observations), dtype=bool)
    for logits in split_heads(parameters, heads):
        best = np.sort(logits, axis=1)  # two that are equal but for rounding may be told apart either way
        clear &= best[:, -1] - best[:, -2] > 1e-4
    assert clear.mean() > 0.95
    np.testing.assert_allclose(found["action"][clear], actions[clear], rtol=1e-5, atol=1e-5)
    assert len(np.unique(actions, axis=0)) > 1  # else anything would do
    return session.get_modelmeta().custom_metadata_map


@pytest.mark.parametrize("limit", [np.inf, 1.5])
@pytest.mark.parametrize("name", POLICIES)
def test_onnxruntime_computes_what_act_does(tmp_path, name, limit):
    path = write_policy(tmp_path / "policy.safetensors", *POLICIES[name], limit)
    model = library.export(path, tmp_path / "policy.onnx")
    onnx.checker.check_model(str(model), full_check=True)
    observations = np.random.default_rng(2).normal(scale=2, size=(1000, SIZE)).astype(np.float32)
    metadata = assert_same(library.load(path), model, observations, POLICIES[name][2])
    assert metadata == {"env": "made-up", "version": "7"}


@pytest.mark.parametrize("name", ["categorical", "multi-categorical", "composed"])
def test_a_masked_policy_takes_no_choice_that_is_not_valid(tmp_path, name):
    action, options, heads = POLICIES[name]
    path = write_policy(tmp_path / "policy.safetensors", action, options, heads, masked=True)
    model = library.export(path, tmp_path / "policy.onnx")
    onnx.checker.check_model(str(model), full_check=True)
    random = np.random.default_rng(4)
    observations = random.normal(scale=2, size=(1000, SIZE)).astype(np.float32)
    mask = random.uniform(size=(1000, sum(heads))) < 0.3
    ends = np.cumsum([n for n in heads if n])
    for end in ends:
        mask[:, end - 1] |= random.uniform(size=1000) < 2  # each head has a valid choice
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert [(i.name, i.type) for i in session.get_inputs()][1:] == [("action_mask", "tensor(bool)")]
    found, logits = session.run(["action", "logits"], {"observation": observations, "action_mask": mask})
    found = found.reshape(1000, -1)[:, [d for d, n in enumerate(heads) if n]]
    parameters = library.load(path).parameters(observations)
    np.testing.assert_allclose(logits, parameters["logits"], rtol=1e-5, atol=1e-5)
    masked = np.split(np.where(mask, logits, -np.inf), ends[:-1], axis=1)
    for head, part in enumerate(masked):
        assert (found[:, head] == part.argmax(axis=1)).all()
    policy, choices = library.load(path), [d for d, n in enumerate(heads) if n]
    acted = policy.act(observations, mask=mask).reshape(1000, -1)[:, choices]
    assert (acted == found).all()
    assert (policy.act(observations[3], mask=mask[3]).reshape(-1)[choices] == found[3]).all()
    sampled = policy.act(observations, deterministic=False, seed=1, mask=mask).reshape(1000, -1)[:, choices]
    for head, part in enumerate(np.split(mask, ends[:-1], axis=1)):
        assert part[np.arange(1000), sampled[:, head].astype(int)].all()
    assert (sampled != acted).any()


def test_a_mask_that_does_not_fit_is_refused(tmp_path):
    action, options, heads = POLICIES["categorical"]
    path = write_policy(tmp_path / "policy.safetensors", action, options, heads, masked=True)
    masked, one, ones = library.load(path), np.zeros(SIZE, np.float32), np.ones(sum(heads), bool)
    masked.act(one, mask=ones)
    for mask, said in [(None, f"trained with a mask of valid actions: wanted mask= of shape ({sum(heads)},)"),
                       (ones[1:], f"mask is bool of shape ({sum(heads) - 1},): wanted bool of shape ({sum(heads)},)"),
                       (0.5 * ones, "mask is float64"), (~ones, "the mask leaves no valid action in row 0")]:  # fmt: skip
        with pytest.raises(library.ConfigError, match=re.escape(said)):
            masked.act(one, mask=mask)
    plain = library.load(write_policy(tmp_path / "plain.safetensors", action, options, heads))
    with pytest.raises(library.ConfigError, match="trained without one"):
        plain.act(one, mask=ones)


@pytest.mark.parametrize("env, heads", [("CartPole-v1", [2]), ("Pendulum-v1", [0])])
def test_policy_of_a_run_is_exported_with_its_scale(gipo, env, heads):
    run = gipo.train("run", {"env.id": env, "env.normalise_observations": "true"})
    done = gipo("export", run, "out.onnx")
    assert (done.returncode, done.stdout) == (0, "out.onnx\n"), done.stderr
    policy = library.load(run)
    observations = np.random.default_rng(3).normal(size=(1000, policy.observation_size)).astype(np.float32)
    metadata = assert_same(policy, gipo.folder / "out.onnx", observations, heads)
    assert json.loads(metadata.pop("spaces")) == policy.spaces
    assert metadata == {"env": env, "version": "200"}


def test_weights_are_read_by_the_safetensors_package(gipo):
    run = gipo.train("run", {"env.id": "Pendulum-v1", "policy.layer_norm": "true"})
    assert gipo("export", run, "weights.safetensors").returncode == 0
    tensors = safetensors.numpy.load_file(gipo.folder / "weights.safetensors")
    assert {name: t.shape for name, t in tensors.items() if name.startswith(("policy", "observation"))} == {
        "policy.0.weight": (16, 3), "policy.0.bias": (16,), "policy.0.norm.weight": (16,), "policy.0.norm.bias": (16,),
        "policy.1.weight": (16, 16), "policy.1.bias": (16,), "policy.1.norm.weight": (16,), "policy.1.norm.bias": (16,),
        "policy.2.weight": (1, 16), "policy.2.bias": (1,), "policy.log_std": (1,),
        "observation.mean": (3,), "observation.inverse_std": (3,), "observation.limit": (1,),
    }  # fmt: skip
    # The network by hand: the tensors mean what their names say.
    obs = np.array([0.3, -0.9, 1.5], dtype=np.float32)
    limit = tensors["observation.limit"]
    x = np.clip((obs - tensors["observation.mean"]) * tensors["observation.inverse_std"], -limit, limit)
    for i in range(2):
        x = np.tanh(tensors[f"policy.{i}.weight"] @ x + tensors[f"policy.{i}.bias"])
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        x = x * tensors[f"policy.{i}.norm.weight"] + tensors[f"policy.{i}.norm.bias"]
    mean = tensors["policy.2.weight"] @ x + tensors["policy.2.bias"]
    policy = library.load(gipo.folder / "weights.safetensors")
    np.testing.assert_allclose(policy.parameters(obs)["mean"], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(policy.act(obs), np.clip(2 * mean, -2, 2), rtol=1e-5, atol=1e-5)


def test_mistakes_are_named(gipo):
    run = gipo.train("run")
    (gipo.folder / "empty").mkdir()
    for arguments, said in [
        (("nowhere", "a.onnx"), "nowhere: no such run folder or policy file"),
        (("empty", "a.onnx"), "empty: no run folder"),
        ((run, "a.pt"), "a.pt: wanted a name that ends in .onnx or .safetensors"),
        ((run, "no/a.onnx"), "no/a.onnx: there is no folder no"),
    ]:
        done = gipo("export", *arguments)
        assert (done.returncode, done.stdout) == (2, "") and said in done.stderr
    (run / "policy.safetensors").unlink()
    done = gipo("export", run, "a.onnx")
    assert done.returncode == 2 and "no policy there yet; a run saves it when it ends" in done.stderr
    assert not (gipo.folder / "a.onnx").exists()
