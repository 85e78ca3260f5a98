"""The large model from Python: acting, training, checkpoints, and going on after a stop. Needs a build with GIPO_TORCH."""

import numpy as np
import pytest

import gipo

N = 2


@pytest.fixture(scope="module")
def with_torch():
    try:
        gipo.LargeModel("10m")
    except gipo.ConfigError as error:
        if "built without libtorch" in str(error):
            pytest.skip("this program was built without libtorch: make test-torch")
        raise


def inputs(model, seed=0, cameras=1):
    random = np.random.default_rng(seed)
    image = int(model.config["image"])
    images = random.integers(0, 256, (N, cameras, image, image, 3), np.uint8)
    return images, [[1, 5, 9, 30], [1, 7, 8]], random.normal(size=(N, 8)).astype(np.float32)


def update(model, seed=0, **options):
    images, prompts, proprio = inputs(model, seed)
    actions, log_probs = model.act(images, prompts, proprio, seed=3)
    samples = images, prompts, proprio, actions.reshape(N, -1), log_probs.reshape(N, -1)
    figures = model.accumulate(*samples, advantage=[1.0, -0.5], target=[1.0, 0.0], **options)
    return figures, model.step(1e-3)


def test_chunks_are_drawn_by_the_seed_and_greedy_without_one(with_torch):
    model = gipo.LargeModel("10m", seed=1)
    given = inputs(model, cameras=2)
    logits, values = model.infer(*given)
    assert logits.shape == (N, 56, 256) and values.shape == (N,)
    actions, log_probs = model.act(*given, temperature=1.6, seed=7)
    assert actions.shape == log_probs.shape == (N, 8, 7)
    again, _ = model.act(*given, temperature=1.6, seed=7)
    other, _ = model.act(*given, temperature=1.6, seed=8)
    assert np.array_equal(actions, again) and not np.array_equal(actions, other)
    scaled = logits.reshape(N, 8, 7, 256).astype(np.float64) / 1.6
    expected = scaled - np.log(np.exp(scaled).sum(-1, keepdims=True))
    assert np.abs(np.take_along_axis(expected, actions[..., None], -1)[..., 0] - log_probs).max() < 1e-5
    greedy, _ = model.act(*given)
    assert np.array_equal(greedy.reshape(N, -1), logits.argmax(-1))


def test_what_was_rewarded_becomes_likelier(with_torch):
    model = gipo.LargeModel("10m", train=True, recompute=(0, 0, 0), seed=1)
    images, prompts, proprio = inputs(model)
    actions, before = model.act(images, prompts, proprio, seed=3)
    samples = images, prompts, proprio, actions.reshape(N, -1), before.reshape(N, -1)
    for _ in range(3):
        figures = model.accumulate(*samples, advantage=[1.0, -1.0], target=[1.0, 0.0], name="gipo", sigma=0.5, ratio="token")
        assert model.step(1e-4) > 0
    assert np.isfinite(figures["policy_loss"])
    moved = model.accumulate(*samples, advantage=[1.0, -1.0], target=[1.0, 0.0])["log_ratio"].reshape(N, -1).sum(1)
    assert moved[0] > 0.01 > -0.01 > moved[1]


def test_cloning_learns_what_it_is_shown(with_torch):
    model = gipo.LargeModel("10m", train=True, recompute=(0, 0, 0), seed=1)
    given = inputs(model)
    shown = np.random.default_rng(1).integers(0, 256, (N, 8, 7))
    first = model.imitate(*given, shown)
    assert -7 < first < -5  # log 256 is 5.5
    for _ in range(25):
        model.step(1e-3)
        last = model.imitate(*given, shown)
    assert last > first + 1


def test_training_goes_on_with_the_same_bytes(with_torch, tmp_path):
    model = gipo.LargeModel("10m", train=True, seed=1)
    update(model)
    model.save(tmp_path / "checkpoint")
    model.save_state(tmp_path / "state")
    for seed in (1, 2):
        update(model, seed)
    resumed = gipo.LargeModel(tmp_path / "checkpoint", train=True, seed=9)
    resumed.load_state(tmp_path / "state")
    for seed in (1, 2):
        update(resumed, seed)
    for name in ("a", "b"):
        (model if name == "a" else resumed).save(tmp_path / name)
        (model if name == "a" else resumed).save_state(tmp_path / f"{name}.state")
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "b").iterdir())
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files)
    assert (tmp_path / "a.state").read_bytes() == (tmp_path / "b.state").read_bytes()
    damaged = bytearray((tmp_path / "state").read_bytes())
    damaged[100] ^= 1
    (tmp_path / "state").write_bytes(damaged)
    with pytest.raises(gipo.ConfigError, match="checksum"):
        resumed.load_state(tmp_path / "state")


def test_mistakes_are_named(with_torch, tmp_path):
    model = gipo.LargeModel("10m")
    images, prompts, proprio = inputs(model)
    with pytest.raises(gipo.ConfigError, match=r"model 7n is not known \(did you mean 7b\?\)"):
        gipo.LargeModel("7n")
    with pytest.raises(gipo.ConfigError, match="device cuda:7 is not there"):
        gipo.LargeModel("10m", device="cuda:7")
    with pytest.raises(gipo.ConfigError, match="images of float64: wanted uint8"):
        model.infer(images / 255, prompts, proprio)
    with pytest.raises(gipo.ConfigError, match="cameras, 112, 112, 3"):
        model.infer(images[:, :, :50], prompts, proprio)
    with pytest.raises(gipo.ConfigError, match="a prompt of 513 tokens: wanted 2 to 512"):
        model.infer(images, [[1] * 513, [1, 2]], proprio)
    with pytest.raises(gipo.ConfigError, match="token 2304: wanted 0 to 2303"):
        model.infer(images, [[1, 2304], [1, 2]], proprio)
    with pytest.raises(gipo.ConfigError, match="made without training"):
        update(model)
    (tmp_path / "there").mkdir()
    with pytest.raises(gipo.ConfigError, match="is there already"):
        model.save(tmp_path / "there")


def test_actions_in_the_units_of_a_dataset():
    choices = np.array([0, 1, 128, 255])
    low, high = np.full(4, -2.0), np.full(4, 4.0)
    # The token 31744 + choice stands for bin 256 - choice of 256, counted from 1; there are 255 centres.
    centres = (np.linspace(-1, 1, 256)[:-1] + np.linspace(-1, 1, 256)[1:]) / 2
    expected = centres[[254, 254, 127, 0]]
    assert np.allclose(gipo.unnormalise(choices, low, high), low + (expected + 1) / 2 * 6)
    masked = gipo.unnormalise(choices, low, high, [True, False, True, False])
    assert np.allclose(masked[[1, 3]], expected[[1, 3]])
    with pytest.raises(gipo.ConfigError, match="wanted 0 to 255"):
        gipo.unnormalise([256], [0], [1])
    assert gipo.openvla_prompt("Open the Door") == "In: What action should the robot take to open the door?\nOut:"
