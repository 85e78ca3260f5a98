"""`gipo aggregate` against rliable, on random tables of scores."""

import json
import warnings

import numpy as np
import pytest

warnings.filterwarnings("ignore", category=DeprecationWarning)
from rliable import library, metrics  # noqa: E402

FIGURES = {
    "iqm": metrics.aggregate_iqm,
    "median": metrics.aggregate_median,
    "mean": metrics.aggregate_mean,
    "optimality_gap": metrics.aggregate_optimality_gap,
}
TAUS = [-0.5, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5]


def random_scores(seed, methods=3, runs=10, tasks=5):
    """Scores [runs, tasks] by method: heavy tails, ties, and methods that differ."""
    random = np.random.default_rng(seed)
    scores = {}
    for index in range(methods):
        table = random.normal(0.4 + 0.1 * index, 0.3, (runs, tasks)) + random.standard_t(2, (runs, tasks)) * 0.1
        scores[f"method {index}"] = np.round(table, 1) if seed % 2 else table
    return scores


def aggregate(gipo, scores, *arguments, scales=None):
    table = {
        method: {f"task {t}": list(map(float, column)) for t, column in enumerate(values.T)}
        for method, values in scores.items()
    }
    path = gipo.folder / "scores.json"
    path.write_text(json.dumps({"scores": table} | ({"scales": scales} if scales else {})))
    done = gipo("aggregate", path, "--json", "--taus", ",".join(map(str, TAUS)), *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", range(10))
def test_point_values_are_rliables(gipo, seed):
    scores = random_scores(seed, runs=3 + seed, tasks=2 + seed % 4)
    result = aggregate(gipo, scores, "--repetitions", 10)
    for row in result["ranks"]:
        for name, oracle in FIGURES.items():
            assert row[name]["value"] == pytest.approx(oracle(scores[row["method"]]), abs=1e-12), name
    for row in result["improvement"]:
        oracle = metrics.probability_of_improvement(scores[row["x"]], scores[row["y"]])
        assert row["value"] == pytest.approx(oracle, abs=1e-12)
    for row in result["profile"]["rows"]:
        oracle = library.score_distributions(scores[row["method"]], TAUS)
        assert row["value"] == pytest.approx(oracle, abs=1e-12)
    for row in result["per_task"]:
        values = scores[row["method"]][:, int(row["task"].split()[1])]
        assert row["mean"] == pytest.approx(values.mean(), abs=1e-12)
        assert row["std"] == pytest.approx(values.std(ddof=1), abs=1e-12)


def assert_same_interval(ours, sample, name):
    """The ends are within four standard errors of the difference of two bootstraps of this many repetitions."""
    for q, end in ((0.025, ours["low"]), (0.975, ours["high"])):
        # The error of a quantile is sqrt(q (1 - q) / B) / density; the density from the quantiles around it.
        low, at, high = np.quantile(sample, [q - 0.01, q, q + 0.01])
        error = np.sqrt(2 * q * (1 - q) / len(sample)) * (high - low) / 0.02
        steps = np.diff(np.unique(sample))  # a figure of few values moves by whole steps
        assert abs(end - at) <= 4 * error + (steps.max() if len(steps) and len(steps) < 500 else 0), (name, end, at)


def compare_intervals(gipo, repetitions, improvement_repetitions):
    scores = random_scores(4, methods=2)
    result = aggregate(gipo, scores, "--repetitions", repetitions, "--profile-repetitions", repetitions)
    np.random.seed(7)
    values = scores["method 1"]
    bootstrap = library.StratifiedBootstrap(values)
    samples = bootstrap.apply(lambda x: np.array([oracle(x) for oracle in FIGURES.values()]), reps=repetitions)
    row = next(row for row in result["ranks"] if row["method"] == "method 1")
    for index, name in enumerate(FIGURES):
        assert_same_interval(row[name], samples[:, index], name)

    profile = library.StratifiedBootstrap(values).apply(
        lambda x: library.score_distributions(x, np.array(TAUS)), reps=improvement_repetitions
    )
    row = next(row for row in result["profile"]["rows"] if row["method"] == "method 1")
    for index, tau in enumerate(TAUS):
        ours = {"low": row["low"][index], "high": row["high"][index]}
        assert_same_interval(ours, profile[:, index], f"profile at {tau}")

    pair = library.StratifiedIndependentBootstrap(scores["method 0"], values)
    sample = pair.apply(lambda x, y: np.array([metrics.probability_of_improvement(x, y)]), reps=improvement_repetitions)
    assert_same_interval(result["improvement"][0], sample[:, 0], "improvement")


def test_intervals_are_rliables(gipo):
    compare_intervals(gipo, repetitions=4000, improvement_repetitions=1000)


@pytest.mark.slow
def test_intervals_are_rliables_at_fifty_thousand_repetitions(gipo):
    compare_intervals(gipo, repetitions=50_000, improvement_repetitions=50_000)


def test_scores_are_normalised_by_the_stated_scores_or_by_min_and_max(gipo):
    scores = random_scores(2, methods=2, tasks=2)
    scales = {"task 0": {"random": -1, "reference": 4}, "task 1": {"random": 2, "reference": 1}}
    result = aggregate(gipo, scores, "--repetitions", 10, scales=scales)
    assert result["normalise"] == "reference"
    for row in result["ranks"]:
        scaled = (scores[row["method"]] - [-1, 2]) / [5, -1]
        assert row["iqm"]["value"] == pytest.approx(metrics.aggregate_iqm(scaled), abs=1e-12)
    everything = np.concatenate(list(scores.values()))
    low, high = everything.min(axis=0), everything.max(axis=0)
    for row in aggregate(gipo, scores, "--repetitions", 10, "--normalise", "min_max")["ranks"]:
        scaled = (scores[row["method"]] - low) / (high - low)
        assert row["iqm"]["value"] == pytest.approx(metrics.aggregate_iqm(scaled), abs=1e-12)


def test_ranks_go_from_the_best_iqm_down_and_text_says_the_same(gipo):
    scores = random_scores(3, methods=5)
    ranks = aggregate(gipo, scores, "--repetitions", 100)["ranks"]
    values = [row["iqm"]["value"] for row in ranks]
    assert [row["rank"] for row in ranks] == [1, 2, 3, 4, 5] and values == sorted(values, reverse=True)
    text = gipo("aggregate", "scores.json", "--repetitions", 100).stdout
    lines = [line for line in text.splitlines() if line.strip().startswith(tuple("12345"))]
    assert [line.split()[:3] for line in lines] == [[str(r["rank"]), *r["method"].split()] for r in ranks]
    assert f"{values[0]:.4f} [" in lines[0]


def test_csv_gives_what_json_gives(gipo):
    scores = random_scores(5, methods=2, tasks=2)
    expected = aggregate(gipo, scores, "--repetitions", 50)
    lines = ["method,task,seed,score"]
    for method, values in scores.items():
        lines += [f"{method},task {t},{s},{float(v)!r}" for t, col in enumerate(values.T) for s, v in enumerate(col)]
    (gipo.folder / "scores.csv").write_text("\n".join(lines) + "\n")
    done = gipo("aggregate", "scores.csv", "--json", "--repetitions", 50, "--taus", ",".join(map(str, TAUS)))
    assert json.loads(done.stdout) == expected


def test_mistakes_exit_with_2(gipo):
    (gipo.folder / "bad.json").write_text('{\n"scores": [}')
    (gipo.folder / "plain.json").write_text('{"scores": {"a": {"t": [1, 1]}}}')
    for words, part in (
        (["missing.json"], "missing.json"),
        (["bad.json"], "bad.json:2: not valid JSON"),
        (["plain.json", "--normalise", "reference"], "no random and reference scores"),
        (["plain.json", "--normalise", "min_max"], "task t"),
        (["plain.json", "--repetitions", "0"], "--repetitions"),
        (["plain.json", "--taus", "nan"], "--taus"),
    ):
        done = gipo("aggregate", *words)
        assert done.returncode == 2 and part in done.stderr, done.stderr


def test_fifty_thousand_repetitions_of_ten_by_five_by_eight(gipo):
    """The default. How long it takes is the benchmark's business: bench/bootstrap_bench.cc."""
    scores = random_scores(6, methods=8)
    many, few = aggregate(gipo, scores), aggregate(gipo, scores, "--repetitions", 2000)
    assert many["repetitions"] == 50_000 and len(many["ranks"]) == 8 and len(many["improvement"]) == 8 * 7 / 2
    for row, other in zip(many["ranks"], few["ranks"]):
        iqm, rough = row["iqm"], other["iqm"]
        assert row["method"] == other["method"] and iqm["value"] == rough["value"]
        assert iqm["low"] < iqm["value"] < iqm["high"]
        width = iqm["high"] - iqm["low"]
        assert abs(iqm["low"] - rough["low"]) < 0.1 * width and abs(iqm["high"] - rough["high"]) < 0.1 * width
