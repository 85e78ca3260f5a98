"""`gipo report`: figures, tables and a page that stands alone."""

import csv
import html.parser
import json
import re
import shutil
import statistics
import subprocess

import pytest
from conftest import HANG, Gipo
from test_suite import BASE, SUITE, command

FIGURES = ["iqm", "profiles", "sensitivity", "learning_curves_1", "staleness", "fractions", "old_data", "gap_tail",
           "weights", "bias_variance", "thresholds"]  # fmt: skip


@pytest.fixture(scope="module")
def suite(binary, tmp_path_factory):
    """A finished suite of 18 short runs, with its report."""
    gipo = Gipo(binary, tmp_path_factory.mktemp("report"))
    text = SUITE + '\n[[method]]\nname = "GIPO 1.0"\nsurrogate.sigma = 1.0\n'
    text = text.replace("[1, 2]", "[1]").replace("reference = ", "threshold = -400.0\nreference = ")
    (gipo.folder / "base.toml").write_text(BASE.format(updates=800))
    (gipo.folder / "suite.toml").write_text(text)
    done = subprocess.run(command(gipo, "out"), cwd=gipo.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = gipo("report", "out", "--json")
    assert done.returncode == 0, done.stderr
    gipo.printed = json.loads(done.stdout)
    gipo.out = gipo.folder / "out" / "report"
    return gipo


def rows(suite, name):
    with (suite.out / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_figure_is_there_twice(suite):
    for name in FIGURES:
        assert (suite.out / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name
        assert "</svg>" in (suite.out / f"{name}.svg").read_text(), name


def test_page_stands_alone_and_is_well_formed(suite):
    text = (suite.out / "index.html").read_text()
    assert text.count("src='data:image/png;base64,") == len(FIGURES)
    assert not re.search(r"""(src|href)=['"](?!data:|#)""", text), "the page asks for another file"
    assert "18 runs, seeds 1" in text and "gipo report out" in text

    class Balanced(html.parser.HTMLParser):
        void, stack = {"meta", "link", "img"}, []

        def handle_starttag(self, tag, attrs):
            if tag not in self.void:
                self.stack.append(tag)

        def handle_endtag(self, tag):
            assert self.stack.pop() == tag

    parser = Balanced()
    parser.feed(text)
    assert parser.stack == []


def test_tables_are_the_runs(suite):
    results = json.loads((suite.folder / "out" / "results.json").read_text())
    for row in rows(suite, "returns_stale_train"):
        for task in ("CartPole-v1", "Pendulum-v1"):
            runs = [r for r in results if (r["method"], r["task"], r["regime"]) == (row["method"], task, "stale")]
            assert row[task] == f"{statistics.mean(r['final_return']['mean'] for r in runs):.2f}"
    for row in rows(suite, "diagnostics_stale"):
        runs = [r for r in results if (r["method"], r["regime"]) == (row["method"], "stale")]
        assert float(row["D95"]) == pytest.approx(statistics.mean(r["window"]["d95"] for r in runs), rel=1e-3)
    assert suite.printed["tables"]["ranks_stale_train"][0]["rank"] == "1"


def test_ranks_are_those_of_gipo_aggregate(suite):
    results = json.loads((suite.folder / "out" / "results.json").read_text())
    scales = {t["name"]: {k: t[k] for k in ("random", "reference")}
              for t in json.loads((suite.folder / "out" / "suite.json").read_text())["tasks"]}  # fmt: skip
    scores = {}
    for r in results:
        if r["regime"] == "stale":
            scores.setdefault(r["method"], {}).setdefault(r["task"], []).append(r["eval_return"]["mean"])
    (suite.folder / "scores.json").write_text(json.dumps({"scores": scores, "scales": scales}))
    result = json.loads(suite("aggregate", "scores.json", "--json").stdout)
    ranks = result["ranks"]
    expected = [[r["method"], f"{r['iqm']['value']:.4f} [{r['iqm']['low']:.4f}, {r['iqm']['high']:.4f}]"] for r in ranks]
    assert [[row["algorithm"], row["IQM"]] for row in rows(suite, "ranks_stale_greedy")] == expected
    chances = {row.pop("P(row beats column)"): row for row in rows(suite, "improvement_stale_greedy")}
    for pair in result["improvement"]:
        x, y, p, low, high = (pair[k] for k in ("x", "y", "value", "low", "high"))
        assert chances[x][y] == f"{p:.2f} [{low:.2f}, {high:.2f}]"
        assert chances[y][x] == f"{1 - p:.2f} [{1 - high:.2f}, {1 - low:.2f}]"
    by_regime = {row["method"]: row for row in rows(suite, "regimes_greedy")}
    assert {m: row["stale"] for m, row in by_regime.items()} == {r["method"]: f"{r['mean']['value']:.4f}" for r in ranks}


def test_latex_tables_have_every_row(suite):
    text = (suite.out / "returns_stale_train.tex").read_text()
    assert text.count(r"\\") == 1 + 3 and r"\toprule" in text and "GIPO 0.5 &" in text


def test_steps_to_threshold_are_read_from_the_episodes(suite):
    (row,) = [r for r in rows(suite, "thresholds_stale") if r["method"] == "PPO 0.2"]
    run = suite.folder / "out/runs/CartPole-v1-PPO_0.2-stale-1/episodes.jsonl"
    hundredth = json.loads(run.read_text().splitlines()[99])
    assert row["CartPole-v1: -400"] == f"{hundredth['env_steps']} (1/1)"  # every return is above it from the beginning
    assert row["Pendulum-v1: -400"] == "not reached (0/1)"


def test_results_alone_are_enough_for_the_aggregates(suite, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in ("suite.json", "results.json"):
        shutil.copy(suite.folder / "out" / name, kept)
    done = suite("report", kept)
    assert done.returncode == 0, done.stderr
    assert (kept / "report/iqm.png").exists() and not (kept / "report/learning_curves_1.png").exists()
    assert (kept / "report/ranks_stale_train.csv").read_bytes() == (suite.out / "ranks_stale_train.csv").read_bytes()


def test_two_suites_stand_beside_each_other(suite, tmp_path):
    one = json.loads((suite.folder / "out/suite.json").read_text())
    for folder, regime in (("a", "stale"), ("b", "stale + KL")):
        (tmp_path / folder).mkdir()
        shutil.copy(suite.folder / "out/results.json", tmp_path / folder)
        part = one | {"regimes": [regime], "runs": [r for r in one["runs"] if r["regime"] == regime]}
        (tmp_path / folder / "suite.json").write_text(json.dumps(part))
    done = suite("report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "both/ranks_stale___KL_train.csv").exists() and (tmp_path / "both/ranks_stale_train.csv").exists()
    done = suite("report", tmp_path / "a", tmp_path / "a")
    assert done.returncode == 2 and "regime 'stale'" in done.stderr


def test_a_task_has_a_report_of_its_own(suite, tmp_path):
    before = (suite.out / "index.html").read_bytes()
    task = json.loads((suite.folder / "out/suite.json").read_text())["tasks"][0]["name"]
    done = suite("report", "out", "--task", task, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["out"] == f"out/report-{task}" and not printed["missing"]
    for row in printed["tables"]["returns_stale_train"]:
        assert set(row) == {"method", task}
    assert (suite.out / "index.html").read_bytes() == before
    wrong = suite("report", "out", "--task", "CartPoel", "--out", tmp_path / "none")
    assert wrong.returncode == 2 and f"--task CartPoel is not accepted: wanted {task}" in wrong.stderr
    assert not (tmp_path / "none").exists()


def test_unfinished_runs_are_named_and_left_out(suite, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(suite.folder / "out", copy, ignore=shutil.ignore_patterns("report", "checkpoints", "results.json"))
    (copy / "runs/CartPole-v1-GIPO_0.5-stale-1/summary.json").unlink()
    done = suite("report", copy, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["missing"] == ["CartPole-v1-GIPO_0.5-stale-1"]
    assert "1 runs are missing: CartPole-v1-GIPO_0.5-stale-1" in (copy / "report/index.html").read_text()


def test_results_of_a_suite_that_goes_on_elsewhere_say_what_is_missing(suite, tmp_path):
    shutil.copy(suite.folder / "out/suite.json", tmp_path)
    results = json.loads((suite.folder / "out/results.json").read_text())
    for row in results[:12]:
        row["ended"] = "not begun or not ended"
    (tmp_path / "results.json").write_text(json.dumps(results[:-1]))
    done = suite("report", tmp_path)
    assert done.returncode == 0 and "5 runs, 13 missing" in done.stdout, done.stdout + done.stderr
    assert "13 runs are missing: CartPole-v1-GIPO_0.5-stale-1, " in (tmp_path / "report/index.html").read_text()


def test_damaged_files_of_runs_are_named_and_the_rest_is_reported(suite, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(suite.folder / "out", copy, ignore=shutil.ignore_patterns("report", "checkpoints", "results.json"))
    one, two, three, four = (copy / "runs" / f"{task}-{method}-stale-1" for task in ("CartPole-v1", "Pendulum-v1")
                             for method in ("GIPO_0.5", "PPO_0.2"))  # fmt: skip

    def damage(path, number, line):
        lines = path.read_bytes().splitlines(keepends=True)
        lines[number - 1] = line + b"\n"
        path.write_bytes(b"".join(lines))

    damage(one / "metrics.jsonl", 3, b'{"update": 30, "env')
    damage(one / "metrics.jsonl", 5, b'{"update": 50, "env_steps": "many"}')
    damage(one / "episodes.jsonl", 2, b"\xff\xfe\x00")
    damage(two / "metrics.jsonl", 1, b"[" * 100000)
    (three / "summary.json").write_text('{"schema_version": 1, "ended": "finished"}')
    text = (four / "summary.json").read_text()
    (four / "summary.json").write_text(text.replace('"ended": "finished"', '"ended": "solved"'))
    done = suite("report", copy, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["missing"] == [three.name]  # a solved run is not missing
    assert printed["damaged"] == [
        f"{three / 'summary.json'}: final_return has no mean",
        f"{one / 'metrics.jsonl'}:3: not a JSON object",
        f"{one / 'metrics.jsonl'}:5: env_steps is no number",
        f"{one / 'episodes.jsonl'}:2: not a JSON object",
        f"{two / 'metrics.jsonl'}:1: not a JSON object",
    ]
    assert [f"gipo: warning: {fault}: left out" for fault in printed["damaged"]] == done.stderr.splitlines()
    page = (copy / "report/index.html").read_text()
    assert "5 damaged lines or files were left out" in page and "17 runs" in page


def test_bad_folders_are_refused_by_path(suite, tmp_path):
    def refused(part):
        done = suite("report", tmp_path)
        assert done.returncode == 2 and part in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert not (tmp_path / "report").exists()

    assert suite("report", "missing").returncode == 2
    refused("suite.json")
    good = (suite.folder / "out/suite.json").read_text()
    (tmp_path / "suite.json").write_text(good[: len(good) // 2])
    refused("suite.json: not valid JSON")
    (tmp_path / "suite.json").write_text('{"schema_version": 2}')
    refused("suite.json: schema_version 1 is wanted")
    (tmp_path / "suite.json").write_text('{"schema_version": 1, "name": "a"}')
    refused("suite.json or results.json is damaged: KeyError('regimes')")
    (tmp_path / "suite.json").write_text(good)
    refused("no finished run")
    (tmp_path / "results.json").write_text("[")
    refused("results.json: not valid JSON")
    (tmp_path / "results.json").write_text("[1]")
    refused("suite.json or results.json is damaged")


# The page measures itself: whether it scrolls sideways, and whether every image is there.
PROBE = """<iframe id='f' width='{width}' height='900' src='index.html'></iframe><script>
onload = () => {{ const d = document.getElementById('f').contentDocument;
  document.title = JSON.stringify({{scroll: d.documentElement.scrollWidth, room: d.documentElement.clientWidth, images: [...d.images].map(
    i => i.complete && i.naturalWidth > 0 && i.getBoundingClientRect().width > 100)}}); }};
</script>"""


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium here")
@pytest.mark.parametrize("width", [1280, 390])
def test_page_in_a_browser(suite, width, tmp_path):
    shutil.copy(suite.out / "index.html", tmp_path)
    (tmp_path / "probe.html").write_text(PROBE.format(width=width))
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
         f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--window-size=1400,1000",
         "--virtual-time-budget=5000", "--dump-dom", (tmp_path / "probe.html").as_uri()],
        capture_output=True, text=True, timeout=HANG,
    )  # fmt: skip
    measured = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", done.stdout)[1]))
    assert measured["scroll"] <= measured["room"] <= width  # the scroll bar down the side takes some
    assert measured["images"] == [True] * len(FIGURES)
    assert "CONSOLE" not in done.stderr, done.stderr
