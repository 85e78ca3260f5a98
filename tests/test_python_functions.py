"""The functions of `import gipo` on arrays: against closed forms, plain loops, and what the command line prints."""

import inspect
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import gipo as library
import numpy as np
import pytest
from gipo import _core

LOG_RATIO = np.linspace(-3, 3, 13)


def test_every_public_name_has_a_docstring_and_a_stub():
    package = Path(library.__file__).parent
    stub = (package / "__init__.pyi").read_text()
    assert (package / "py.typed").exists()
    for name in library.__all__:
        value = getattr(library, name)
        assert re.search(rf"\bas {name}\b", stub), f"{name} is not in __init__.pyi"
        assert (value.__doc__ or "").strip(), f"{name} has no docstring"
        for attribute, member in vars(value).items() if inspect.isclass(value) else ():
            described = inspect.isroutine(member) or isinstance(member, property)
            if described and not attribute.startswith("_") and value.__module__.startswith("gipo"):
                assert (inspect.getdoc(getattr(value, attribute)) or "").strip(), f"{name}.{attribute} has no docstring"
    built = Path(_core.__file__).parent / "_core.pyi"
    text = built.read_text()
    for name in dir(_core):
        if not name.startswith("_"):
            assert re.search(rf"^(class|def) {name}\b", text, re.MULTILINE), f"{name} is not in {built}"
    assert sorted(set(re.findall(r"\bas (\w+)$", stub, re.MULTILINE))) == sorted([*library.__all__, *library._OPTIONAL])


def test_every_public_name_is_on_the_page():
    page = (Path(library.__file__).parents[2] / "docs" / "python.md").read_text()
    assert [name for name in library.__all__ if f"`{name}" not in page and f"gipo.{name}" not in page] == []


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        library.trian  # noqa: B018


def test_without_the_compiled_module_it_says_what_to_do():
    command = "import gipo, gipo.runs, gipo.figures; gipo.train"  # what needs no module is there
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, env=os.environ | {
        "PYTHONPATH": str(Path(library.__file__).parents[1]), "GIPO_BUILD_DIR": "nowhere"})  # fmt: skip
    assert "gipo.train needs the compiled module" in done.stderr and "make build" in done.stderr


# Surrogates


def test_surrogates_are_their_closed_forms():
    rho = np.exp(LOG_RATIO)
    for sigma in (0.3, 1.0):
        s = library.surrogate("gipo", sigma=sigma)
        weight = np.exp(-(LOG_RATIO**2) / (2 * sigma**2))
        np.testing.assert_allclose(s.weight(LOG_RATIO, 1.0), weight, rtol=1e-12)
        np.testing.assert_allclose(s.multiplier(LOG_RATIO, -2.0), weight * rho, rtol=1e-12)
        np.testing.assert_allclose(s.loss(LOG_RATIO, -2.0), 2 * weight * rho, rtol=1e-12)
    ppo = library.surrogate("ppo", epsilon=0.2)
    np.testing.assert_array_equal(ppo.multiplier(LOG_RATIO, 1.0), np.where(rho > 1.2, 0, rho))
    np.testing.assert_array_equal(ppo.multiplier(LOG_RATIO, -1.0), np.where(rho < 0.8, 0, rho))
    assert ppo.clips_to_zero and not library.surrogate("gipo").clips_to_zero


def test_arrays_broadcast_and_keep_their_type():
    s = library.surrogate("sapo", tau_pos=2.0)
    assert s.multiplier(0.0, 1.0) == 1 and s.multiplier(0.0, 1.0).shape == ()
    table = s.multiplier(LOG_RATIO[:, None], np.array([-1.0, 0.0, 1.0]))
    assert table.shape == (13, 3) and table.dtype == np.float64
    np.testing.assert_array_equal(table[:, 2], s.multiplier(LOG_RATIO, np.ones(13)))
    narrow = s.multiplier(LOG_RATIO.astype(np.float32), np.float32(1))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, table[:, 2], rtol=1e-5)
    np.testing.assert_array_equal(s.multiplier(LOG_RATIO[::-2], 1.0), s.multiplier(LOG_RATIO[::-2].copy(), 1.0))
    assert s.multiplier(np.empty((0, 2)), 1.0).shape == (0, 2)


def test_wrong_surrogates_are_refused():
    for name, options, said in [
        ("gippo", {}, "name = 'gippo' is not known (did you mean gipo?)"),
        ("gipo", {"sigma": -1.0}, "gipo.surrogate: sigma = -1.0 is not accepted: wanted 0.001 to 1000"),
        ("gipo", {"sgima": 1.0}, "gipo.surrogate() got an unexpected keyword argument 'sgima'; did you mean 'sigma'?"),
        ("ppo", {"sigma": 1.0}, "ppo does not read sigma; its options: epsilon"),
        ("gipo", {"sigma": "wide"}, "sigma = 'wide' is not accepted: wanted number"),
    ]:
        with pytest.raises(library.ConfigError, match=re.escape(said)) as raised:
            library.surrogate(name, **options)
        assert isinstance(raised.value, ValueError)
    assert library.surrogates()["ppo"][1] == ["epsilon"]


# Advantages


def plain_gae(reward, value, terminated, gamma, lam):
    value = np.append(value[:-1], 0 if terminated else value[-1])
    advantage, last = np.zeros(len(reward)), 0.0
    for t in reversed(range(len(reward))):
        last = reward[t] + gamma * value[t + 1] - value[t] + gamma * lam * last
        advantage[t] = last
    return advantage, advantage + value[:-1]


def plain_vtrace(reward, value, log_ratio, terminated, gamma, lam, rho_bar, c_bar):
    value = np.append(value[:-1], 0 if terminated else value[-1])
    rho, c = np.minimum(np.exp(log_ratio), rho_bar), lam * np.minimum(np.exp(log_ratio), c_bar)
    target = value.copy()
    for t in reversed(range(len(reward))):
        delta = rho[t] * (reward[t] + gamma * value[t + 1] - value[t])
        target[t] = value[t] + delta + gamma * c[t] * (target[t + 1] - value[t + 1])
    return reward + gamma * target[1:] - value[:-1], target[:-1]


def segments():
    random = np.random.default_rng(4)
    return random.normal(size=(3, 7)), random.normal(size=(3, 8)), np.array([False, True, False])


def test_advantages_are_those_of_plain_loops():
    reward, value, terminated = segments()
    log_ratio = np.random.default_rng(5).normal(size=(3, 7))
    advantage, target = library.gae(reward, value, terminated, gamma=0.9, lam=0.8)
    traced = library.vtrace(reward, value, log_ratio, terminated, gamma=0.9, lam=0.8, rho_bar=1.5, c_bar=0.7)
    for i in range(3):
        expected = plain_gae(reward[i], value[i], terminated[i], 0.9, 0.8)
        np.testing.assert_allclose([advantage[i], target[i]], expected, rtol=1e-12)
        np.testing.assert_array_equal(library.gae(reward[i], value[i], terminated[i], 0.9, 0.8)[0], advantage[i])
        expected = plain_vtrace(reward[i], value[i], log_ratio[i], terminated[i], 0.9, 0.8, 1.5, 0.7)
        np.testing.assert_allclose([traced[0][i], traced[1][i]], expected, rtol=1e-12)
    narrow = library.gae(reward.astype(np.float32), value.astype(np.float32), terminated)[0]
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(library.normalise(advantage).std(), 1, rtol=1e-6)


def test_wrong_shapes_are_refused():
    reward, value, _ = segments()
    for arguments in [(reward, reward), (reward[0], value), (reward, value, [True]), (reward[None], value[None])]:
        with pytest.raises(library.ConfigError, match=r"gipo.gae: shapes"):
            library.gae(*arguments)
    with pytest.raises(library.ConfigError, match=r"gipo.vtrace: shapes"):
        library.vtrace(reward, value, value)


# Diagnostics and bounds


def test_diagnostics_are_their_formulas():
    random = np.random.default_rng(6)
    log_ratio, advantage = random.normal(size=400).astype(np.float32), random.normal(size=400).astype(np.float32)
    gap = random.integers(0, 100, size=400)
    ppo = library.surrogate("ppo")
    figures = library.diagnostics(log_ratio, advantage, ppo, gap, t_old=50)
    multiplier = ppo.multiplier(log_ratio, advantage)
    used, old = np.abs(multiplier * advantage).astype(float), gap >= 50
    for name, expected in {
        "d95": np.quantile(np.abs(log_ratio), 0.95),
        "dead_frac": np.mean(multiplier == 0),
        "old_frac": old.mean(),
        "share_old": used[old].sum() / used.sum(),
        "ess": used.sum() ** 2 / (used**2).sum(),
        "kl": -log_ratio.mean(),
        "gap_mean": gap.mean(),
    }.items():
        assert math.isclose(figures[name], expected, rel_tol=1e-5), name
    assert figures["contribution_by_age"].shape == (8, 8) and figures["contribution_by_age"].sum() == 400
    row = np.minimum(7, 8 * gap // gap.max())
    shares = [used[row == k].sum() / used.sum() for k in range(8)]
    assert np.allclose(figures["share_by_age"], shares, rtol=1e-5) and figures["log_ratio_counts"].sum() == 400
    given = library.diagnostics(log_ratio, advantage, multiplier, gap, t_old=50, clips_to_zero=True)
    assert {k: v for k, v in given.items() if np.ndim(v) == 0 and v == v} == {
        k: v for k, v in figures.items() if np.ndim(v) == 0 and v == v
    }
    by_dimension = library.diagnostics(log_ratio.reshape(200, 2), advantage.reshape(200, 2), ppo, gap[:200])
    assert math.isclose(by_dimension["d95"], figures["d95"], rel_tol=1e-6)
    with pytest.raises(library.ConfigError, match="wanted .N. or .N, dims."):
        library.diagnostics(log_ratio, advantage, ppo, gap[:5])


def test_certify_says_what_the_command_says(gipo):
    for inputs in [{"sigma": 0.5, "kl": 0.02}, {"sigma": 2.0, "kl": 0.1, "gain": 3.0, "samples": 1000, "bias": 0.9},
                   {"interval": 1.0}]:  # fmt: skip
        words = [word for key, value in inputs.items() for word in ("--" + key, str(value))]
        printed = json.loads(gipo("certify", *words, "--json").stdout)
        del printed["equations"]
        found = library.certify(**inputs)
        assert {k: None if v != v else v for k, v in found.items()} == printed
    for wrong, said in [({}, "wants a run folder"), ({"sigma": 0}, "sigma = 0 is not accepted"),
                        ({"sigma": 1, "delta": 1}, "unknown input delta")]:  # fmt: skip
        with pytest.raises(library.ConfigError, match=said):
            library.certify(**wrong)


# Aggregates and the grid


def test_aggregates_are_those_of_the_command(gipo):
    random = np.random.default_rng(7)
    scores = {name: random.normal(size=(3, 8)) + i for i, name in enumerate("abc")}
    tasks = ["x", "y", "z"]
    table = {m: {t: row.tolist() for t, row in zip(tasks, s)} for m, s in scores.items()}
    (gipo.folder / "scores.json").write_text(json.dumps({"scores": table}))
    printed = json.loads(gipo("aggregate", "scores.json", "--json", "--repetitions", "2000", "--seed", "3").stdout)
    found = library.aggregate(scores, repetitions=2000, seed=3)
    for row in printed["ranks"]:
        for figure in ("iqm", "median", "mean", "optimality_gap"):
            assert found[row["method"]][figure]._asdict() == row[figure]
    for row in printed["improvement"]:
        assert found[row["x"]]["improvement"][row["y"]].value == row["value"]
        assert math.isclose(found[row["y"]]["improvement"][row["x"]].low, 1 - row["high"])
    assert library.iqm(scores["a"]) == found["a"]["iqm"].value == np.sort(scores["a"].ravel())[6:18].mean()
    assert library.iqm(table["a"]) == library.iqm(scores["a"])
    wins = np.mean([np.mean(x[:, None] > y) for x, y in zip(scores["b"], scores["a"])])
    assert math.isclose(library.probability_of_improvement(scores["b"], scores["a"]), wins)


def test_profile_and_single_tasks():
    runs = [0.1, 0.5, 0.5, 0.9]
    assert library.iqm(runs) == 0.5
    profile = library.performance_profile(runs, [0.0, 0.5, 1.0])
    np.testing.assert_array_equal(profile[:, 0], [1, 0.25, 0])
    assert (profile[:, 1] <= profile[:, 0]).all() and (profile[:, 0] <= profile[:, 2]).all()
    for wrong in ([], [[1.0], []], [1.0, math.nan]):
        with pytest.raises(library.ConfigError, match="wanted finite numbers"):
            library.iqm(wrong)
    with pytest.raises(library.ConfigError, match="ascending"):
        library.performance_profile(runs, [1.0, 0.0])


def test_grid_study_is_that_of_the_command(gipo):
    printed = json.loads(gipo("study", "gridworld", "--json", "--discount", "0.99").stdout)
    found = library.grid_study(discount=0.99)
    assert found["behaviours"] == printed["behaviours"] and len(found["rows"]) == len(printed["rows"])
    for mine, theirs in zip(found["rows"], printed["rows"]):
        assert list(mine) != [] and {k: mine[k] for k in ("behaviour", "surrogate", "state", "component")} == {
            k: theirs[k] for k in ("behaviour", "surrogate", "state", "component")
        }
        assert mine["parameters"] == theirs["parameters"]
        for key in ("bias", "variance", "mse", "truth", "expectation", "covariance"):
            np.testing.assert_allclose(mine[key], theirs[key], rtol=1e-12, atol=1e-15)
    printed = json.loads(gipo("study", "gridworld", "--optimal", "--json", "--behaviour", "B").stdout)
    best = library.grid_optimum("gipo", "B")
    assert best["mse"] == printed["rows"][0]["gipo"]["mse"]
    assert best["parameters"] == printed["rows"][0]["gipo"]["parameters"]
    for wrong in [{"discount": 2}, {"behaviours": ["D"]}]:
        with pytest.raises(library.ConfigError):
            library.grid_study(**wrong)
    with pytest.raises(library.ConfigError, match="family = reinforce"):
        library.grid_optimum("reinforce")
