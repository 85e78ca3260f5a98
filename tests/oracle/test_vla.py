"""The large model against timm's towers and transformers' Llama, small and in fp32: outputs, gradients, checkpoints.

`scripts/setup.sh --large` installs both; needs a build with GIPO_TORCH.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm.models.vision_transformer")
transformers = pytest.importorskip("transformers")
from safetensors.numpy import load_file, save_file  # noqa: E402

BUILD = Path(os.environ.get("GIPO_BUILD_DIR", "build/torch"))
PROBE = BUILD / "tests" / "vla_probe"
pytestmark = pytest.mark.skipif(not PROBE.exists(), reason=f"{PROBE} is not built: a build with -DGIPO_TORCH=ON has it")

SIZES = {
    "image": 28, "patch": 14, "width": 64, "layers": 3, "heads": 4, "hidden": 96, "vocabulary": 384, "first_action": 64,
    "choices": 256, "stop_token": 2, "chunk": 2, "dims": 7, "proprio": 8, "longest_prompt": 32, "value_hidden_1": 32,
    "value_hidden_2": 16, "rms_epsilon": 1e-6, "rope_theta": 10000.0, "featurizer.width": 48, "featurizer.depth": 4,
    "featurizer.heads": 3, "featurizer.hidden": 192, "featurizer.registers": 4, "featurizer.layer_scale": True,
    "fused_featurizer.width": 32, "fused_featurizer.depth": 3, "fused_featurizer.heads": 2, "fused_featurizer.hidden": 64,
    "fused_featurizer.registers": 0, "fused_featurizer.layer_scale": False,
}  # fmt: skip
MEANS = {"featurizer": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]), "fused_featurizer": ([0.5] * 3, [0.5] * 3)}
TOKENS = SIZES["chunk"] * SIZES["dims"]
TEMPERATURE = 1.6


def mlp(*sizes):
    layers = [torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]
    return torch.nn.ModuleDict({f"fc{i + 1}": layer for i, layer in enumerate(layers)})


def through(layers, x):
    for i, layer in enumerate(layers.values()):
        x = layer(torch.nn.functional.gelu(x) if i else x)
    return x


class Reference(torch.nn.Module):
    """What OpenVLA-OFT computes, of timm's and transformers' own modules."""

    def __init__(self):
        super().__init__()
        size = SIZES
        vit = timm.VisionTransformer
        common = {"img_size": size["image"], "patch_size": size["patch"], "num_classes": 0}
        self.featurizer = vit(**common, embed_dim=48, depth=4, num_heads=3, mlp_ratio=4, init_values=0.5, reg_tokens=4, no_embed_class=True)
        self.fused_featurizer = vit(**common, embed_dim=32, depth=3, num_heads=2, mlp_ratio=2, class_token=False, global_pool="map")
        self.projector = mlp(80, 320, 64, 64)
        self.proprio_projector = mlp(8, 64, 64)
        self.value_head = mlp(64, 32, 16, 1)
        config = transformers.LlamaConfig(
            hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, vocab_size=384, rms_norm_eps=1e-6,
            max_position_embeddings=256, attn_implementation="sdpa",
        )  # fmt: skip
        self.language_model = transformers.LlamaForCausalLM(config)

    def names(self):
        """Every parameter under the name that OpenVLA's checkpoints give it."""
        found = {}
        for name, value in self.named_parameters():
            if name.startswith(("featurizer.", "fused_featurizer.")):
                name = "vision_backbone." + name.replace(".gamma", ".scale_factor")
            found[name] = value
        return found

    def forward(self, images, proprio, prompts):
        features = []
        for name, (mean, deviation) in MEANS.items():
            tower = getattr(self, name)
            shape = (1, 1, 1, 1, 3)
            pixels = (images / 255.0 - torch.tensor(mean).view(shape)) / torch.tensor(deviation).view(shape)
            pixels = pixels.flatten(0, 1).permute(0, 3, 1, 2)
            features.append(tower.get_intermediate_layers(pixels, n={len(tower.blocks) - 2})[0])
        patches = through(self.projector, torch.cat(features, -1)).view(images.shape[0], -1, SIZES["width"])
        state = through(self.proprio_projector, proprio)
        logits, values = [], []
        for sample, prompt in enumerate(prompts):
            embedded = self.language_model.model.embed_tokens(torch.tensor([*prompt, SIZES["stop_token"]]))
            zeros = torch.zeros(TOKENS, SIZES["width"])
            rows = torch.cat([embedded[:1], patches[sample], state[sample : sample + 1], embedded[1:-1], zeros, embedded[-1:]])
            everyone = torch.zeros(1, 1, len(rows), len(rows))
            hidden = self.language_model.model(inputs_embeds=rows[None], attention_mask=everyone, use_cache=False).last_hidden_state[0]
            first = len(rows) - 2 - TOKENS  # the prompt's last token
            hidden = hidden[first : first + TOKENS]
            logits.append(self.language_model.lm_head(hidden)[:, SIZES["first_action"] : SIZES["first_action"] + 256])
            values.append(through(self.value_head, hidden[:1])[0, 0])
        return torch.stack(logits), torch.stack(values)


def make_reference(seed=0):
    torch.manual_seed(seed)
    model = Reference()
    with torch.no_grad():
        for value in model.parameters():  # so that nothing is zero or one by chance
            value.add_(torch.randn_like(value) * 0.1)
    return model


def write_checkpoint(model, folder, shards=2, **change):
    folder.mkdir()
    tensors = {name: value.detach().numpy() for name, value in model.names().items()}
    names = sorted(tensors)
    index = {}
    for i in range(shards):
        part = names[i::shards]
        save_file({name: np.ascontiguousarray(tensors[name]) for name in part}, folder / f"model-{i + 1}.safetensors")
        index |= dict.fromkeys(part, f"model-{i + 1}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "config.json").write_text(json.dumps({"gipo_openvla_oft": SIZES | change}))
    return folder


def make_input(seed=0, n=3, cameras=2):
    random = np.random.default_rng(seed)
    prompts = [random.integers(3, 60, size=4 + 2 * i).tolist() for i in range(n)]
    padded = np.full((n, max(map(len, prompts))), -1, np.int64)
    for i, prompt in enumerate(prompts):
        padded[i, : len(prompt)] = prompt
    return prompts, {
        "images": random.integers(0, 256, (n, cameras, SIZES["image"], SIZES["image"], 3), np.uint8),
        "proprio": random.normal(size=(n, 8)).astype(np.float32),
        "prompts": padded,
    }


def with_samples(model, prompts, arrays, spread=0.3):
    """Samples of a policy near this one."""
    random = np.random.default_rng(5)
    n = len(prompts)
    logits, _ = reference_outputs(model, prompts, arrays)
    log_probs = torch.log_softmax(logits / TEMPERATURE, -1).detach().numpy()
    actions = random.integers(0, 256, (n, TOKENS))
    chosen = np.take_along_axis(log_probs, actions[..., None], -1)[..., 0]
    near = lambda: (chosen + spread * random.normal(size=chosen.shape)).astype(np.float32)  # noqa: E731
    return arrays | {
        "actions": actions, "behaviour": near(), "centre": near(), "advantage": random.normal(size=n).astype(np.float32),
        "target": random.normal(size=n).astype(np.float32), "age": random.uniform(0, 300, n).astype(np.float32),
    }  # fmt: skip


def reference_outputs(model, prompts, arrays):
    return model(torch.tensor(arrays["images"]).float(), torch.tensor(arrays["proprio"]), prompts)


def probe(folder, arrays, tmp_path, check=True, **options):
    save_file(arrays, tmp_path / "in.safetensors")
    words = [f"{key}={value}" for key, value in options.items()]
    command = [PROBE, folder, tmp_path / "in.safetensors", tmp_path / "out.safetensors", *words]
    ended = subprocess.run(command, capture_output=True, text=True)
    if not check:
        return ended
    assert ended.returncode == 0, ended.stderr
    return load_file(tmp_path / "out.safetensors")


def difference(ours, theirs):
    """Largest difference, by the largest value of the array."""
    theirs = theirs.detach().numpy() if torch.is_tensor(theirs) else theirs
    return np.abs(ours - theirs).max() / np.abs(theirs).max()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    model = make_reference()
    return model, write_checkpoint(model, tmp_path_factory.mktemp("vla") / "checkpoint")


@pytest.mark.parametrize("cameras", [1, 2])
def test_logits_and_values_are_those_of_timm_and_transformers(made, tmp_path, cameras):
    model, folder = made
    prompts, arrays = make_input(cameras=cameras)
    out = probe(folder, arrays, tmp_path)
    logits, values = reference_outputs(model, prompts, arrays)
    assert difference(out["logits"], logits) < 1e-5
    assert difference(out["values"], values) < 1e-5


def surrogate_loss(arrays, log_probs, name, ratio, centred):
    """Minus the objective, summed over ratios, with the multiplier held; and the multiplier."""
    each = {"token": 1, "action": SIZES["dims"], "chunk": TOKENS}[ratio]
    sums = lambda x: x.reshape(len(x), -1, each).sum(-1)  # noqa: E731
    mu, advantage = torch.tensor(arrays["behaviour"]), torch.tensor(arrays["advantage"])[:, None]
    log_ratio = sums(log_probs - mu)
    about, weight = log_ratio, 1.0
    if centred:
        to_centre = sums(torch.tensor(arrays["centre"]) - mu)
        about, weight = log_ratio - to_centre, torch.exp(to_centre).clamp(max=2.0)
    rho = torch.exp(about)
    if name == "gipo":
        multiplier = rho * torch.exp(-(about**2) / (2 * 0.5**2))
    else:  # ppo
        kept = torch.where(advantage > 0, rho <= 1.2, rho >= 0.8)
        multiplier = rho * kept
    multiplier = (multiplier * weight).detach()
    return -(multiplier * advantage * log_ratio).sum() / len(mu), multiplier, log_ratio


@pytest.mark.parametrize(
    ("name", "ratio", "centred"),
    [("gipo", "token", False), ("gipo", "action", True), ("ppo", "chunk", False), ("ppo", "action", False)],
)
def test_gradients_are_autograds(made, tmp_path, name, ratio, centred):
    model, folder = made
    prompts, arrays = make_input(seed=1)
    arrays = with_samples(model, prompts, arrays, spread=0.02 if ratio == "chunk" else 0.1)
    options = {"surrogate": name, "ratio": ratio} | ({"centred": 1} if centred else {})
    out = probe(folder, arrays, tmp_path, **options)
    model.zero_grad()
    logits, values = reference_outputs(model, prompts, arrays)
    all_log_probs = torch.log_softmax(logits / TEMPERATURE, -1)
    chosen = all_log_probs.gather(-1, torch.tensor(arrays["actions"])[..., None])[..., 0]
    loss, multiplier, log_ratio = surrogate_loss(arrays, chosen, name, ratio, centred)
    entropy = -(all_log_probs.exp() * all_log_probs).sum(-1)
    target = torch.tensor(arrays["target"])
    (loss - 0.01 * entropy.sum() / len(prompts) + 0.5 * ((values - target) ** 2).mean()).backward()
    assert np.abs(out["log_ratio"] - log_ratio.detach().numpy().ravel()).max() < 1e-4
    assert difference(out["multiplier"], multiplier.flatten()) < 1e-4
    compared = 0
    for tensor, value in model.names().items():
        key = f"gradient.{tensor}"
        if value.grad is None or not value.grad.any():
            assert key not in out or not out[key].any(), tensor
            continue
        assert difference(out[key], value.grad) < 1e-4, tensor
        compared += 1
    assert compared == sum(key.startswith("gradient.") for key in out)


def test_recomputation_and_accumulation_change_nothing(made, tmp_path):
    model, folder = made
    prompts, arrays = make_input(seed=2, n=4)
    arrays = with_samples(model, prompts, arrays)
    whole = probe(folder, arrays, tmp_path)
    for options in [{"layers": 0, "blocks": 0}, {"layers": 1, "products": 1, "blocks": 1}, {"layers": 0, "products": -1}]:
        again = probe(folder, arrays, tmp_path, **options)
        assert all(np.array_equal(again[key], whole[key]) for key in whole), options
    parts = probe(folder, arrays, tmp_path, split=1)
    for key in whole:
        if key.startswith("gradient.") and np.abs(whole[key]).max() > 0:
            assert difference(parts[key], whole[key]) < 1e-4, key


def test_adamw_is_torchs(made, tmp_path):
    model, folder = made
    prompts, arrays = make_input(seed=3)
    arrays = with_samples(model, prompts, arrays)
    out = probe(folder, arrays, tmp_path, steps=1)
    copy = make_reference()
    names = copy.names()
    for name, value in names.items():
        value.grad = torch.tensor(out[f"gradient.{name}"]) if f"gradient.{name}" in out else torch.zeros_like(value)
    torch.nn.utils.clip_grad_norm_(names.values(), 1.0)
    rates = {True: 3e-3, False: 1e-3}
    groups = [{"params": [v for k, v in names.items() if k.startswith("value_head") == head], "lr": rate} for head, rate in rates.items()]
    torch.optim.AdamW(groups, weight_decay=0.0).step()
    for name, value in names.items():
        if f"after.{name}" in out:
            assert np.abs(out[f"after.{name}"] - value.detach().numpy()).max() < 1e-5, name


def test_lora_begins_as_the_model_and_merges(made, tmp_path):
    model, folder = made
    prompts, arrays = make_input(seed=4)
    arrays = with_samples(model, prompts, arrays)
    plain = probe(folder, {k: arrays[k] for k in ("images", "proprio", "prompts")}, tmp_path)
    out = probe(folder, arrays, tmp_path, lora=4, steps=3, write=tmp_path / "merged", merged=1)
    assert np.array_equal(out["logits"], plain["logits"])
    adapters = [key for key in out if key.startswith("gradient.base_model")]
    assert len(adapters) == 3 * 7 * 2
    assert not any(key.startswith("gradient.language_model") for key in out)
    inputs = {k: arrays[k] for k in ("images", "proprio", "prompts")}
    merged = probe(tmp_path / "merged", inputs, tmp_path)
    beside = probe(folder, arrays, tmp_path, lora=4, adapters=tmp_path / "merged.adapters")
    assert difference(merged["logits"], plain["logits"]) > 1e-3
    # The value and proprio heads were trained as well: the merged folder has them, the adapters' folder has not.
    weights = {name: merged_weight(folder, tmp_path / "merged.adapters", name) for name in ("layers.1.self_attn.k_proj", "layers.2.mlp.down_proj")}
    stored = stored_tensors(tmp_path / "merged")
    for name, value in weights.items():
        assert difference(stored[f"language_model.model.{name}.weight"], value) < 1e-6
    assert difference(beside["logits"], plain["logits"]) > 1e-3


def stored_tensors(folder):
    return {k: v for file in folder.glob("model-*.safetensors") for k, v in load_file(file).items()}


def merged_weight(folder, adapters, name):
    tensors = load_file(adapters / "adapter_model.safetensors")
    stem = f"base_model.model.language_model.model.{name}"
    config = json.loads((adapters / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / config["r"]
    base = stored_tensors(folder)[f"language_model.model.{name}.weight"]
    return base + scale * tensors[f"{stem}.lora_B.weight"] @ tensors[f"{stem}.lora_A.weight"]


def test_a_checkpoint_is_written_back_as_it_was(made, tmp_path):
    _, folder = made
    _, arrays = make_input()
    probe(folder, arrays, tmp_path, write=tmp_path / "again")
    before, after = stored_tensors(folder), stored_tensors(tmp_path / "again")
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[key], after[key]) for key in before)
    assert len(list((tmp_path / "again").glob("model-*.safetensors"))) > 1
    index = json.loads((tmp_path / "again" / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == after.keys()
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in after.values())
    first, again = probe(folder, arrays, tmp_path), probe(tmp_path / "again", arrays, tmp_path)
    assert np.array_equal(first["logits"], again["logits"])


def test_timms_own_name_of_the_layer_scale_is_read(made, tmp_path):
    model, folder = made
    _, arrays = make_input()
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    save_file({k.replace("scale_factor", "gamma"): v for k, v in stored_tensors(folder).items()}, renamed / "model.safetensors")
    (renamed / "config.json").write_text((folder / "config.json").read_text())
    assert np.array_equal(probe(renamed, arrays, tmp_path)["logits"], probe(folder, arrays, tmp_path)["logits"])


def test_what_is_wrong_with_a_checkpoint_is_named(made, tmp_path):
    model, _ = made
    _, arrays = make_input()

    def complaint(folder):
        ended = probe(folder, arrays, tmp_path, check=False)
        assert ended.returncode == 2
        return ended.stderr

    folder = write_checkpoint(model, tmp_path / "shapes", shards=1)
    tensors = load_file(folder / "model-1.safetensors")
    del tensors["projector.fc2.bias"]
    tensors["projector.fc4.bias"] = np.zeros(3, np.float32)
    tensors["language_model.model.norm.weight"] = np.zeros(65, np.float32)
    save_file(tensors, folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model-1.safetensors").rename(folder / "model.safetensors")
    words = complaint(folder)
    assert "missing: projector.fc2.bias" in words
    assert "not known: projector.fc4.bias" in words
    assert "language_model.model.norm.weight ([65], wanted [64])" in words

    folder = write_checkpoint(model, tmp_path / "cut")
    shard = folder / "model-2.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    assert "model-2.safetensors" in complaint(folder)
    shard.unlink()
    assert "model-2.safetensors: No such file" in complaint(folder)

    folder = write_checkpoint(model, tmp_path / "other")
    (folder / "config.json").write_text('{"model_type": "llava"}')
    assert "model_type = llava" in complaint(folder)
    folder = write_checkpoint(model, tmp_path / "deeper", layers=4)
    assert "missing: language_model.model.layers.3.input_layernorm.weight" in complaint(folder)

    folder = write_checkpoint(model, tmp_path / "long")
    arrays["prompts"] = np.ones((3, 33), np.int64)
    assert "a prompt of 33 tokens: wanted 2 to 32" in complaint(folder)


def test_openvlas_own_config_is_the_7b_model(made, tmp_path):
    """Its config.json says no size of a tower: the tensors that are wanted then are those of the published model."""
    model, _ = made
    folder = write_checkpoint(model, tmp_path / "published")
    config = {
        "model_type": "openvla", "arch_specifier": "no-align+fused-gelu-mlp", "text_config": {"vocab_size": 32064},
        "timm_model_ids": ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    _, arrays = make_input()
    words = probe(folder, arrays, tmp_path, check=False).stderr
    assert "vision_backbone.featurizer.patch_embed.proj.weight ([48, 3, 14, 14], wanted [1024, 3, 14, 14])" in words
