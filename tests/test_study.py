"""`gipo study gridworld`: its three outputs say the same, and mistakes are named."""

import csv
import io
import json
import math

import numpy as np
import pytest

ACTIONS = ["up", "down", "left", "right"]


@pytest.fixture
def study(gipo):
    return json.loads(gipo("study", "gridworld", "--json").stdout)


def figure_of(study, behaviour, surrogate, state="S0", component="right", **parameters):
    (row,) = [
        r for r in study["rows"]
        if (r["behaviour"], r["surrogate"], r["state"], r["component"]) == (behaviour, surrogate, state, component)
        and r["parameters"] == parameters
    ]  # fmt: skip
    return row


def test_ppo_is_exactly_zero_in_a_and_b_and_not_in_c(study):
    for behaviour in "AB":
        row = figure_of(study, behaviour, "ppo", epsilon=0.2)
        assert row["expectation"] == 0 == row["variance"]
        assert figure_of(study, behaviour, "ppo", component="all", epsilon=0.2)["expectation"] == [0] * 4
    assert figure_of(study, "C", "ppo", epsilon=0.2)["expectation"] != 0


def test_every_row_is_whole(study):
    assert len(study["rows"]) == 3 * 9 * 7
    for row in study["rows"]:
        assert row["mse"] == pytest.approx(row["bias"] ** 2 + row["variance"], abs=1e-15)
        if row["component"] == "all":
            difference = np.subtract(row["expectation"], row["truth"])
            assert row["bias"] == pytest.approx(np.linalg.norm(difference), abs=1e-15)
            covariance = np.array(row["covariance"])
            assert np.allclose(covariance, covariance.T) and np.linalg.eigvalsh(covariance).min() > -1e-12
            assert row["variance"] == pytest.approx(np.trace(covariance), abs=1e-15)


def test_enumeration_in_numpy_gives_the_same(gipo):
    """The scalar at S0 written out again: values by iteration, moments by summing over four actions."""
    for discount in (0.9, 0.99):
        study = json.loads(gipo("study", "gridworld", "--json", "--discount", discount).stdout)
        step = [[0, 2, 0, 1], [1, 3, 0, 1], [0, 2, 2, 3]]
        pi = np.exp([0, 1, 0, 1]) / np.exp([0, 1, 0, 1]).sum()
        v = np.zeros(4)
        for _ in range(5000):
            v[:3] = [sum(p * (-1 + discount * v[n]) for p, n in zip(pi, step[s])) for s in range(3)]
        for s in range(3):
            assert study["policy"]["values"][f"S{s}"] == pytest.approx(v[s], abs=1e-12)
        advantage = np.array([-1 + discount * v[n] for n in step[0]]) - v[0]
        score = np.array([0, 0, 0, 1]) - pi[3]
        for behaviour in study["behaviours"]:
            mu = np.array(behaviour["probabilities"])
            rho = pi / mu
            g = rho * np.exp(-(np.log(rho) ** 2) / (2 * 0.3**2)) * advantage * score
            row = figure_of(study, behaviour["name"], "gipo", sigma=0.3)
            assert row["expectation"] == pytest.approx(mu @ g, abs=1e-14)
            assert row["variance"] == pytest.approx(mu @ (g - mu @ g) ** 2, abs=1e-14)
            assert row["truth"] == pytest.approx(pi @ (advantage * score), abs=1e-14)


def test_lists_and_mixtures_from_the_command_line(gipo):
    words = ["study", "gridworld", "--behaviour", "mine=pi:0.5,rand:0.5", "--behaviour", "A", "--ppo", "0.1,0.9"]
    words += ["--sapo", "3:4", "--gipo", "0.7,0.2:0.1"]
    study = json.loads(gipo(*words, "--json").stdout)
    assert {r["behaviour"] for r in study["rows"]} == {"mine", "A"}
    found = {(r["surrogate"], *r["parameters"].values()) for r in study["rows"]}
    assert found == {("no_clip",), ("ppo", 0.1), ("ppo", 0.9), ("sapo", 3, 4), ("gipo", 0.7), ("gipo", 0.2, 0.1)}
    half = [0.5 * 0.25 + 0.5 * math.exp(t) / (2 + 2 * math.e) for t in (0, 1, 0, 1)]
    assert study["behaviours"][0]["probabilities"] == pytest.approx(half, abs=1e-15)


def test_csv_and_table_say_what_json_says(gipo, study):
    rows = list(csv.DictReader(io.StringIO(gipo("study", "gridworld", "--csv").stdout)))
    assert [float(r["mse"]) for r in rows] == [r["mse"] for r in study["rows"]]
    assert rows[7]["surrogate"] == "ppo" and rows[7]["parameters"] == "0.2" and rows[7]["state"] == "S0"
    text = gipo("study", "gridworld").stdout
    (line,) = [line for line in text.partition("\nB = ")[0].splitlines() if line.startswith("gipo 0.3")]
    assert line.split()[2:5] == [f"{figure_of(study, 'A', 'gipo', sigma=0.3)[k]:.6f}" for k in ("bias", "variance", "mse")]


def test_optimal_sigma_is_a_minimum_and_the_comparison_adds_up(gipo, study):
    result = json.loads(gipo("study", "gridworld", "--optimal", "--json").stdout)
    assert len(result["rows"]) == 6
    for row in result["rows"]:
        place = {key: row[key] for key in ("state", "component")}
        sigma = row["gipo"]["parameters"]["sigma"]
        near = [sigma * 0.999, sigma, sigma * 1.001]
        lists = ",".join(map(repr, near))
        around = json.loads(gipo("study", "gridworld", "--json", "--behaviour", row["behaviour"], "--gipo", lists).stdout)
        below, at, above = [figure_of(around, row["behaviour"], "gipo", **place, sigma=s)["mse"] for s in near]
        assert at < below and at < above and at == pytest.approx(row["gipo"]["mse"], rel=1e-12)
        for other in ("ppo", "sapo", "gipo_pair"):
            assert row[other]["gipo_mse_over_it"] == pytest.approx(row["gipo"]["mse"] / row[other]["mse"])
            listed = [r["mse"] for r in study["rows"] if r["behaviour"] == row["behaviour"]
                      and r["surrogate"] == other and all(r[k] == v for k, v in place.items())]  # fmt: skip
            assert all(row[other]["mse"] <= mse + 1e-15 for mse in listed)


def test_figure(gipo):
    for name in ("figure.png", "figure.svg"):
        done = gipo("study", "gridworld", "--figure", name)
        assert done.returncode == 0, done.stderr
        assert (gipo.folder / name).stat().st_size > 10_000
    done = gipo("study", "gridworld", "--figure", "figure.txt")
    assert done.returncode == 2 and "figure.txt" in done.stderr


@pytest.mark.parametrize(
    "words, part",
    [
        (["--discount", "1.5"], "--discount"),
        (["--discount", "nan"], "--discount"),
        (["--behaviour", "rand:0.5"], "sum to 0.5"),
        (["--behaviour", "rnd:1"], "did you mean rand?"),
        (["--behaviour", "D"], "wanted A, B, C"),
        (["--gipo", "0"], "0.001 to 1000"),
        (["--sapo", "1"], "tau_pos:tau_neg"),
        (["--ppo", "x"], "x is no number"),
        (["--json", "--csv"], "excludes"),
    ],
)
def test_mistakes_exit_with_2(gipo, words, part):
    done = gipo("study", "gridworld", *words)
    assert done.returncode == 2 and part in done.stderr and done.stdout == "", done.stderr


def test_multipliers(gipo):
    printed = json.loads(gipo("study", "multipliers", "gipo,sigma=0.5", "ppo,epsilon=0.3", "--range", 2, "--json").stdout)
    log_ratio = np.array(printed["log_ratio"])
    assert log_ratio[0] == -2 == -log_ratio[-1] and len(log_ratio) == 241
    m = {(row["surrogate"], row["advantage"]): np.array(row["multiplier"]) for row in printed["rows"]}
    assert m["gipo,sigma=0.5", "negative"] == pytest.approx(np.exp(log_ratio - 2 * log_ratio**2), abs=1e-14)
    rho = np.exp(log_ratio)
    assert m["ppo,epsilon=0.3", "positive"] == pytest.approx(np.where(rho > 1.3, 0, rho), abs=1e-14)
    rows = list(csv.DictReader(io.StringIO(gipo("study", "multipliers", "gipo,sigma=0.5").stdout)))
    assert len(rows) == 2 * 241 and float(rows[120]["multiplier"]) == 1
    for words, part in ((["gippo"], "gippo"), (["gipo,sigm=1"], "surrogate.sigma"), (["gipo,sigma=0"], "0.001")):
        done = gipo("study", "multipliers", *words)
        assert done.returncode == 2 and part in done.stderr, done.stderr
