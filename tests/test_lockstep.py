"""Lockstep runs give the same bytes every time; both modes give the staleness that the dial says."""

import os
import shutil
import subprocess

import pytest
from conftest import ROOT, Gipo, summary

FILES = ("metrics.jsonl", "episodes.jsonl", "evaluations.jsonl", "policy.safetensors")
STALE = {"staleness.regime": "stale", "learner.proximal_coef": 0.3}
FRESH = {"staleness.regime": "fresh", "env.id": "Pendulum-v1", "staleness.actors": 4, "advantage.mode": "gae"}
ON_POLICY = {
    "staleness.regime": "on_policy",
    "surrogate.name": "ppo",
    "advantage.mode": "stored",
    "env.count": 8,
    "replay.capacity": 512,
    "replay.segment_length": 64,
    "learner.epochs": 4,
}
# The parts of configs/metaworld/authors.toml, in small; the policy learns between two logged updates, too.
SHARED = {
    "env.id": "Pendulum-v1",
    "policy.shared": 1,
    "policy.critic_hidden": "[8]",
    "policy.layer_norm": "true",
    "policy.activation": "relu",
    "policy.init": "uniform",
    "policy.distribution": "binned",
    "advantage.mode": "stored",
    "replay.sampling": "transitions",
    "surrogate.ratio": "dimension",
    "learner.policy_every": 3,
    "learner.kl_coef": 0.1,
    "learner.schedule": "cosine",
    "learner.warmup_updates": 20,
}
REGIMES = {"stale": STALE, "fresh": FRESH, "on_policy": ON_POLICY, "shared": SHARED}
LONGER = {"learner.updates": 300, "eval.every_updates": 100}


def result(run):
    """All that must be equal: the files' bytes, and the checksums of the whole learner and the whole replay."""
    return {name: (run / name).read_bytes() for name in FILES} | summary(run)["fingerprint"]


@pytest.mark.parametrize("regime", REGIMES)
def test_same_bytes_whenever_and_with_any_number_of_threads(gipo, regime):
    options = LONGER | REGIMES[regime]
    first = result(gipo.train("first", options))
    assert first["metrics.jsonl"].count(b"\n") == 30
    assert first["episodes.jsonl"].count(b"\n") > 0
    for name, threads in {"again": 1, "two": 2, "three": 3}.items():
        other = result(gipo.train(name, options | {"run.threads": threads}))
        assert [key for key in first if first[key] != other[key]] == [], name


@pytest.mark.parametrize("regime", REGIMES)
def test_another_seed_gives_another_run(gipo, regime):
    options = LONGER | REGIMES[regime]
    first, other = (result(gipo.train(f"s{seed}", options | {"run.seed": seed})) for seed in (1, 2))
    assert [key for key in first if first[key] == other[key]] == []


def staleness(gipo, mode, seed):
    """OldFrac, and OldGapP95 over the number of updates, both over the last fifth of a stale run."""
    options = {
        "run.mode": mode,
        "run.seed": seed,
        "learner.updates": 6000,
        "log.every_updates": 1,
        "log.tensorboard": "false",
    }
    run = summary(gipo.train(f"{mode}{seed}", options))
    assert run["staleness"]["regime"] == "stale"
    return run["window"]["old_frac"], run["window"]["old_gap_p95"] / run["updates"]


@pytest.mark.parametrize(("mode", "tolerance"), [("lockstep", 0.02), ("async", 0.04)])
def test_stale_regime_measures_as_stale_as_the_paper(gipo, mode, tolerance):
    for seed in (1, 2):
        old_frac, old_gap = staleness(gipo, mode, seed)
        print(f"{mode} seed {seed}: old_frac {old_frac:.4f}, old_gap_p95 / updates {old_gap:.4f}")
        assert old_frac == pytest.approx(0.884, abs=tolerance)
        assert old_gap == pytest.approx(0.83, abs=tolerance)


@pytest.mark.slow
def test_release_build_of_another_checkout_gives_the_same_bytes(gipo, tmp_path_factory):
    source = tmp_path_factory.mktemp("another") / "deeper" / "checkout of gipo"
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "runs", "demo", "results", "__pycache__")
    )
    (source / ".venv").symlink_to(ROOT / ".venv")  # MuJoCo's headers and models
    environment = os.environ | {"CCACHE_DISABLE": "1"}
    configure = ["cmake", "-S", source, "-B", source / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                 "-DGIPO_TESTS=OFF", "-DGIPO_PYTHON=OFF"]  # fmt: skip
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL, env=environment)
    subprocess.run(["cmake", "--build", source / "build", "--target", "gipo"], check=True, stdout=subprocess.DEVNULL,
                   env=environment)  # fmt: skip
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    other = Gipo(source / "build" / "gipo", elsewhere)
    for regime, options in REGIMES.items():
        ours, theirs = (result(program.train(regime, LONGER | options)) for program in (gipo, other))
        assert [key for key in ours if ours[key] != theirs[key]] == [], regime
    # Begun by one build and lengthened by the other, in another folder.
    run = gipo.train("both", LONGER)
    shutil.copytree(run, elsewhere / "both")
    for program, folder in ((gipo, run), (other, elsewhere / "both")):
        done = program("resume", folder, "--quiet", "--updates", LONGER["learner.updates"] + 100)
        assert done.returncode == 0, done.stderr
    ours, theirs = result(run), result(elsewhere / "both")
    assert [key for key in ours if ours[key] != theirs[key]] == []
