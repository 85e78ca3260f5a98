"""`gipo certify`: the paper's bounds from numbers and from run folders."""

import json
import math

import numpy as np
import pytest
from conftest import json_lines
from scipy.special import lambertw


def certify(gipo, *words):
    done = gipo("certify", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_numbers_are_the_papers_formulas(gipo):
    words = "--sigma 0.5 --kl 0.02 --kl-behaviour 0.01 --kl-step 0.003 --advantage-bound 2 --discount 0.9".split()
    r = certify(gipo, *words, "--gain", 100, "--samples", 512, "--alpha", 0.1)
    tau = lambertw(0.5).real
    lemma1 = tau**2 / 0.5 + 2 * math.exp(-tau) + math.sqrt(0.01)
    assert r["tau_star"] == pytest.approx(tau, abs=1e-14)
    assert r["lemma1_bound"] == pytest.approx(lemma1, abs=1e-13)
    assert r["multiplier_bound"] == pytest.approx(math.exp(0.125), abs=1e-14)
    shift = 4 * 0.9 * 2 / 0.01 * (math.sqrt(0.01 * 0.003) + 0.003)
    assert r["lower_bound"] == pytest.approx(100 - shift - 20 * lemma1, abs=1e-11)
    interval = 2 * math.exp(0.125) * math.sqrt(2 * math.log(20) / 512)
    assert r["interval"] == pytest.approx(interval, abs=1e-13)
    assert r["certified"] == pytest.approx(r["lower_bound"] - 10 * interval, abs=1e-11)
    assert set(r["equations"]) >= {"tau_star", "lemma1_bound", "multiplier_bound", "lower_bound", "interval"}


def test_sigmas_that_certify(gipo):
    r = certify(gipo, "--bias", 0.6, "--kl", 0.02, "--interval", 0.5, "--samples", 1000)
    at = certify(gipo, "--sigma", r["least_sigma"], "--kl", 0.02)
    assert at["lemma1_bound"] == pytest.approx(0.6, abs=1e-12)
    at = certify(gipo, "--sigma", r["greatest_sigma"], "--samples", 1000)
    assert at["interval"] == pytest.approx(0.5, abs=1e-12)
    assert certify(gipo, "--bias", 0.05, "--kl", 0.02)["least_sigma"] is None


def test_run_folder_gives_the_numbers(gipo):
    run = gipo.train("one", {"surrogate.sigma_pos": 0.4, "surrogate.sigma_neg": 0.2, "advantage.gamma": 0.95})
    r = certify(gipo, run)
    lines = json_lines(run / "metrics.jsonl")
    window = [line for line in lines if line["env_steps"] >= 0.8 * lines[-1]["env_steps"]]
    assert (r["sigma"], r["sigma_wide"], r["discount"], r["samples"]) == (0.2, 0.4, 0.95, 64)
    assert r["kl"] == pytest.approx(max(0, max(line["kl"] for line in window)))
    assert r["advantage_bound"] == max(line["advantage_abs_max"] for line in window) > 0
    assert all(line["advantage_abs_max"] >= line["advantage_std"] for line in lines)
    assert r["multiplier_bound"] == pytest.approx(math.exp(0.08))
    assert certify(gipo, run, "--sigma", 1)["sigma"] == 1
    text = gipo("certify", run).stdout
    assert "Eq. (17), Lemma 5.1" in text and "mean over samples" in text
    assert np.isfinite(r["lower_bound"])


def test_what_is_no_run_of_gipo_is_refused(gipo):
    def refused(*words):
        done = gipo("certify", *words)
        assert done.returncode == 2 and done.stdout == "", done.stderr
        return done.stderr

    assert "run folder" in refused()
    assert "missing: no such run folder" in refused("missing")
    assert "--sigma" in refused("--sigma", "0") and "--alpha" in refused("--sigma", "1", "--alpha", "2")
    ppo = gipo.train("ppo", {"surrogate.name": "ppo"})
    assert "surrogate.name = ppo" in refused(ppo)
    run = gipo.train("one")
    (run / "metrics.jsonl").write_text('{"upd')
    assert "metrics.jsonl: no measurements" in refused(run)
    (run / "summary.json").write_text('{"schema_version": 99}')
    assert "summary.json: schema_version 1 is wanted" in refused(run)
    (run / "config.toml").unlink()
    (run / "summary.json").unlink()
    assert "config.toml" in refused(run)
