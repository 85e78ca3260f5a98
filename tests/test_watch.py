"""`gipo watch`: what it reads while files grow, what it answers, and the page in a real browser on a live run."""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from conftest import HANG, ROOT, TINY, Gipo, settings, wait_for
from test_suite import BASE, SUITE, command

sys.path.insert(0, str(ROOT / "python"))
from gipo import watch, watch_answers, watch_runs
from gipo.runs import UserMistake
from gipo.watch_files import EventTimes, Tail, Track, records_of

# Until it is stopped; small enough to stop at once.
LONG = TINY | {"learner.updates": 10_000_000, "eval.every_updates": 2000, "run.mode": "async", "staleness.regime": "custom",
               "staleness.window": 500, "staleness.env_steps_per_update": 8, "eval.episodes": 1}  # fmt: skip


@pytest.fixture(scope="module")
def finished(binary, tmp_path_factory):
    """A folder with two short runs, of which the second has no histograms and no event file."""
    gipo = Gipo(binary, tmp_path_factory.mktemp("watch"))
    for name, more in {"a": {}, "b": {"log.histograms": "false", "log.tensorboard": "false", "surrogate.name": "ppo"}}.items():
        done = gipo("train", *settings(TINY | more), "--name", name, "--quiet")
        assert done.returncode == 0, done.stderr
    return gipo


@contextmanager
def serving(gipo, *arguments):
    """The program, and the address that it prints."""
    process = subprocess.Popen([gipo.binary, "watch", *map(str, arguments), "--port", "0", "--no-browser"], cwd=gipo.folder,
                               stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        yield process, process.stdout.readline().split()[0]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG) == 0
        process.stdout.close()


@contextmanager
def training(gipo, name, **more):
    process = subprocess.Popen([gipo.binary, "train", *settings(LONG | more), "--name", name, "--quiet", "--overwrite"],
                               cwd=gipo.folder, stdout=subprocess.DEVNULL)  # fmt: skip
    metrics = gipo.folder / "runs" / name / "metrics.jsonl"
    try:
        wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0, process)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(HANG)


def ask(url, path="data", **request):
    with urllib.request.urlopen(urllib.request.Request(url + path, json.dumps(request).encode()), timeout=HANG) as answer:
        return json.load(answer)


NOTHING = {key: [0, 0, 0] for key in watch_answers.TRACKS}


# Files that grow


def test_tail_reads_whole_lines_once(tmp_path):
    path = tmp_path / "f"
    tail = Tail(path)
    assert tail.read() == ([], False), "not there yet"
    path.write_bytes(b"a\nb\nhal")
    assert tail.read() == ([b"a", b"b"], False)
    assert tail.read() == ([], False)
    with path.open("ab") as file:
        file.write(b"f\nc\n")
    assert tail.read() == ([b"half", b"c"], False)
    path.unlink()
    assert tail.read() == ([], True)
    path.write_bytes(b"new\n")
    assert tail.read() == ([b"new"], False)


@pytest.mark.parametrize("rest", [b"", b"c\n", b"c\nb2\n", b"cc\nd\nand much more than was there before\n"])
def test_tail_starts_anew_where_a_file_was_cut_back(tmp_path, rest):
    path = tmp_path / "f"
    path.write_bytes(b"a\nb\nb2\n")
    tail = Tail(path)
    tail.read()
    path.write_bytes(b"a\n" + rest)
    lines, reset = tail.read()
    assert reset and lines == [b"a", *rest.split(b"\n")[:-1]]


def test_tail_takes_long_files_in_parts(tmp_path):
    path = tmp_path / "f"
    line = b"x" * 999
    path.write_bytes((line + b"\n") * 3000)
    tail = Tail(path)
    first, _ = tail.read()
    assert 0 < len(first) < 3000 and tail.behind
    count = len(first)
    while tail.behind:
        lines, reset = tail.read()
        assert lines and not reset and set(lines) == {line}
        count += len(lines)
    assert count == 3000


def test_tail_passes_over_what_is_no_line(tmp_path, monkeypatch):
    monkeypatch.setattr("gipo.watch_files.CHUNK_BYTES", 10)
    monkeypatch.setattr("gipo.watch_files.LONGEST_LINE", 30)
    path = tmp_path / "f"
    path.write_bytes(b"x" * 45 + b"\nnext\n")
    tail, found = Tail(path), []
    for _ in range(5):
        found += tail.read()[0]
    assert found == [b"x" * 30, b"x" * 15, b"next"]


def test_damaged_lines_are_counted():
    assert records_of([b'{"a":1}', b"{", b"[1]", b"\xff", b'{"b":2}']) == ([{"a": 1}, {"b": 2}], 3)


def test_track_keeps_means_in_bounded_memory():
    track = Track(2, 64)
    values = np.column_stack([np.arange(10_000.0), np.where(np.arange(10_000) % 2, np.nan, 7.0)])
    for part in np.array_split(values, 37):
        track.add(part)
    start, rows = track.since(0, 0)
    assert start == 0 and len(rows) <= 65
    means = values[: len(rows[:-1]) * track.stride, 0].reshape(-1, track.stride).mean(axis=1)
    assert np.allclose(rows[:-1, 0], means), "each row is the mean of its lines"
    assert np.allclose(rows[:-1, 1], 7), "lines without a value do not count"


def test_lines_with_wrong_types_are_blank(tmp_path):
    wrong = [None, 3, "x", [], [1], {"a": 1}, [["x"] * 8] * 8, [[None] * 8] * 8, [1, [2]] * 32, [True] * 8]
    rows = watch_runs.age_rows([{"update": v, "contribution_by_age": v, "share_by_age": v} for v in wrong])
    assert rows.shape == (len(wrong), sum(watch_runs.AGE_PARTS.values()))
    assert np.isfinite(rows).sum() == 1 + 32, "update 3, and the whole numbers of lists that are mixed"


def test_long_files_are_sampled(tmp_path):
    """Curves of a run of 40,000 lines are those of all of its lines, though most were not parsed."""
    count = 40_000
    (tmp_path / "config.toml").write_text("")
    lines = [json.dumps({"update": i, "env_steps": 8 * i, "return_mean": i / 7, "d95": i % 2}) for i in range(count)]
    reader = watch_runs.RunReader(tmp_path, "a")
    with (tmp_path / "metrics.jsonl").open("w") as file:
        for part in range(0, count, 777):
            file.write("\n".join(lines[part : part + 777]) + "\n")
            file.flush()
            reader.follow()
    rows = reader.curve.since(0, 0)[1]
    stride = reader.curve.stride
    assert stride >= 32 and 500 <= len(rows) <= 1000 and reader.lines["metrics.jsonl"] == count
    expected = np.arange(len(rows)) * stride + (stride - 1) / 2
    assert np.all(np.abs(rows[:-1, 0] - expected[:-1]) <= stride)
    assert np.allclose(rows[:, 2], rows[:, 0] / 7), "all columns are means over the same lines"


def test_track_says_what_is_new():
    track = Track(1, 8)
    track.add(np.arange(5.0)[:, None])
    start, rows = track.since(track.generation, 3)
    assert start == 3 and rows.tolist() == [[3], [4]]
    generation = track.generation
    track.add(np.arange(5.0, 9)[:, None])
    start, rows = track.since(generation, 5)
    assert start == 0 and rows.tolist() == [[0.5], [2.5], [4.5], [6.5], [8]], "merged: all of it again, and what is pending"


def test_event_times_are_those_of_the_lines(finished):
    (path,) = (finished.folder / "runs/a").glob("events.out.*")
    pairs, reset = EventTimes(path).read()
    lines = [json.loads(line) for line in (finished.folder / "runs/a/metrics.jsonl").open()]
    assert not reset and [update for update, _ in pairs] == [line["update"] for line in lines]
    assert all(abs(seconds - path.stat().st_mtime) < HANG for _, seconds in pairs)


def test_event_times_survive_damage(tmp_path):
    path = tmp_path / "e"
    for data in (b"", b"\0" * 40, struct.pack("<QI", 1 << 60, 0) + b"x" * 50, os.urandom(500)):
        path.write_bytes(data)
        EventTimes(path).read()


# Where a run stands


def state_of(folder):
    reader = watch_runs.RunReader(folder, "a")
    reader.look(watch_runs.held_locks(), time.monotonic())
    return reader


def test_states_of_a_run(finished):
    assert state_of(finished.folder / "runs/a").state == "finished"
    assert state_of(finished.folder / "runs/none").state == "waiting"
    folder = finished.folder / "runs/live"
    with training(finished, "live") as process:
        assert state_of(folder).state == "running"
        process.send_signal(signal.SIGINT)
        process.wait(HANG)
        assert state_of(folder).state == "stopped"
    resumed = subprocess.Popen([finished.binary, "resume", "runs/live", "--quiet"], cwd=finished.folder, stdout=subprocess.DEVNULL)
    wait_for(lambda: "resumed" in (folder / "log.txt").read_text(), resumed)
    assert state_of(folder).state == "running", "though the summary of before says interrupted"
    resumed.kill()
    resumed.wait()
    reader = state_of(folder)
    assert reader.state == "killed" and "gipo resume" in reader.faults()[0]


def test_a_run_of_another_machine_is_silent_rather_than_killed(finished, monkeypatch, tmp_path):
    (tmp_path / "config.toml").write_text("[learner]\nupdates = 10\n")
    (tmp_path / "log.txt").write_text("2026-01-01 00:00:00 start: 10 updates\n")
    monkeypatch.setattr(watch_runs, "is_remote", lambda path: True)
    reader = watch_runs.RunReader(tmp_path, "a")
    (tmp_path / "metrics.jsonl").write_text('{"update":1,"env_steps":2}\n')
    reader.look(set(), 100.0)
    assert reader.state == "running"
    reader.look(set(), 100.0 + watch_runs.SILENT_SECONDS)
    assert reader.state == "silent"


def test_resume_cuts_the_curves_back(finished):
    """What is shown after a resume is what a reader that begins then shows."""
    folder = finished.folder / "runs/cut"
    done = finished("train", *settings(TINY | {"checkpoint.every_updates": 50}), "--name", "cut", "--quiet")
    assert done.returncode == 0
    reader = state_of(folder)
    reader.follow()
    newest = sorted((folder / "checkpoints").glob("0*"))[-1]
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()
    assert finished("resume", "runs/cut", "--updates", "230", "--quiet").returncode == 0
    reader.follow()
    other = state_of(folder)
    other.follow()
    for key in watch_answers.TRACKS:
        mine, theirs = (getattr(r, key).since(0, 0)[1] for r in (reader, other))
        assert np.array_equal(mine, theirs, equal_nan=True), key
    assert other.curve.since(0, 0)[1][-1, 0] == 230


# What the page is told


def test_answers_are_what_is_new(finished):
    with serving(finished, "runs/a") as (_, url):
        first = ask(url, version=0, runs={"a": NOTHING})
        while first["more"] or not first["tracks"]["a"].get("curve"):
            first = ask(url, version=0, runs={"a": NOTHING})
        assert first["kind"] == "run" and first["standings"]["a"]["state"] == "finished"
        curve = first["tracks"]["a"]["curve"]
        columns = dict(zip(first["columns"]["curve"], curve["columns"]))
        lines = [json.loads(line) for line in (finished.folder / "runs/a/metrics.jsonl").open()]
        assert columns["update"] == [line["update"] for line in lines]
        assert columns["d95"] == pytest.approx([line["d95"] for line in lines], rel=1e-5)
        ages = dict(zip(first["columns"]["ages"], first["tracks"]["a"]["ages"]["columns"]))
        assert ages["share_by_age"][3] == pytest.approx(lines[3]["share_by_age"], rel=1e-5)
        assert ages["log_ratio_counts"][3] == lines[3]["log_ratio_counts"] and sum(ages["log_ratio_counts"][3]) == 64
        has = {key: [t["generation"], t["whole"], t["pending"]] for key, t in first["tracks"]["a"].items()}
        again = ask(url, version=first["version"], runs={"a": has})
        assert again["tracks"] == {"a": {}} and again["standings"] == {}
        multiplier = ask(url, "multiplier", run="a")
        assert len(multiplier["x"]) == len(multiplier["positive"]) > 400 and multiplier["x"] == sorted(multiplier["x"])


def test_only_pages_of_this_machine_are_answered(finished):
    with serving(finished, "runs/a") as (_, url):
        for request, code in (
            (urllib.request.Request(url, headers={"Host": "example.org"}), 403),
            (urllib.request.Request(url + "../secret"), 404),
            (urllib.request.Request(url + "data", b"no json"), 400),
            (urllib.request.Request(url + "data", b"[]"), 400),
        ):
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(request, timeout=HANG)
            assert error.value.code == code
        ask(url, version=-5, runs={"a": {"curve": [1], "ages": "x"}, "nowhere": {}})  # answered all the same


def test_runs_that_appear_and_vanish(finished, monkeypatch, tmp_path):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text("[learner]\nupdates = 10\n")
    monkeypatch.setattr(watch_answers, "SCAN_SECONDS", 0.0)
    watcher = watch_answers.Watcher(watch_answers.Watched(tmp_path))
    first = watcher.answer({})
    assert sorted(first["standings"]) == ["x", "y"]
    os.rename(tmp_path / "y", tmp_path / "z")
    end = time.monotonic() + HANG
    while "z" not in (later := watcher.answer({"version": first["version"]}))["standings"]:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert later["standings"]["y"] == {}


# Mistakes


def test_mistakes_are_told_in_one_line(finished, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no run")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for arguments, text in {
            ("runs/a", "--port", str(port)): rf"port {port} is taken by another program: choose another with --port",
            ("nowhere",): "nowhere: no such folder: give a run folder",
            (str(tmp_path / "empty"),): "empty: no run in it: give a run folder",
            (str(tmp_path / "text"),): "text is neither a run nor a suite: wanted a run folder",
            ("runs/a", "--port", "70000"): "port",
        }.items():
            done = finished("watch", *arguments, "--no-browser")
            assert done.returncode == 2 and re.search(text, done.stderr), (arguments, done.stderr)
            assert done.stdout == "" and (done.stderr.count("\n") == 1 or "70000" in arguments)


def test_without_plotly_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(watch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserMistake, match=r"pip install 'gipo\[watch\]'"):
        watch.plotly_script()


# The page, in a browser

needs_browser = pytest.mark.skipif(not CHROMIUM, reason="no chromium here")
DRAWN = "PANELS.some(p => p.visible) && PANELS.filter(p => p.visible).every(p => p.drawn > 0)"


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_page_follows_a_live_run(finished, width, tmp_path):
    with training(finished, f"live{width}") as run, serving(finished, f"runs/live{width}") as (_, url), Browser(tmp_path / "p", width) as page:
        page.open(url)
        page.wait_for(DRAWN)
        assert page.value("document.getElementById('state').textContent") == "running"
        before = page.value("[page.polls, Number(page.standings[page.focus].update)]")
        drawn = page.value("PANELS[0].drawn")
        page.wait_for(f"page.polls >= {before[0] + 3} && page.standings[page.focus].update > {before[1]} && PANELS[0].drawn > {drawn}")
        assert page.value("column(page.focus, 'curve', 'update').length > 1 && column(page.focus, 'times', 'seconds').length > 1")
        for panel in ("returns", "map", "ratios", "ages", "speed", "figure"):
            page.value(f"document.getElementById('panel_{panel}').scrollIntoView()")
            page.wait_for(f"document.querySelectorAll('#plot_{panel} .main-svg').length > 0")
        page.wait_for("document.querySelectorAll('#plot_ratios .legendtext').length >= 3")
        assert page.value("document.documentElement.scrollWidth") <= width
        run.send_signal(signal.SIGINT)
        page.wait_for("document.getElementById('state').textContent === 'stopped'", HANG)
        assert page.messages == []


@needs_browser
def test_page_overlays_runs_and_shows_those_without_histograms(finished, tmp_path):
    with serving(finished, "runs") as (_, url), Browser(tmp_path / "p") as page:
        page.open(url)
        page.wait_for("page.shown?.includes('a') && page.shown.includes('b') && PANELS[0].drawn > 0 && column('b', 'curve', 'update').length > 0")
        assert page.value("PANELS[0].plot.data.filter(t => t.mode === 'lines').length") >= 2
        page.value("document.getElementById('focus').value = 'b', document.getElementById('focus').onchange()")
        page.wait_for("document.querySelector('#panel_ratios p').textContent.includes('log.histograms')")
        page.value("document.querySelector('#list input[aria-label=\"show a\"]').click()")
        page.wait_for("!page.shown.includes('a') && !('a' in page.tracks)")
        assert page.messages == []


@needs_browser
def test_page_shows_a_suite_as_a_grid(binary, tmp_path):
    gipo = Gipo(binary, tmp_path)
    (tmp_path / "base.toml").write_text(BASE.format(updates=100))
    (tmp_path / "suite.toml").write_text(SUITE)
    assert subprocess.run(command(gipo, "out"), cwd=tmp_path, capture_output=True).returncode == 0
    runs = json.loads((tmp_path / "out/suite.json").read_text())["runs"]
    with serving(gipo, "out") as (_, url), Browser(tmp_path / "p", 390) as page:
        page.open(url)
        page.wait_for("document.querySelectorAll('.cells a').length > 0")
        assert page.wait_for(f"Object.values(page.standings).filter(s => s.state === 'finished').length === {len(runs)}")
        assert page.value("document.documentElement.scrollWidth") <= 390
        page.value("document.querySelector('.cells a').click()")
        page.wait_for("page.cell && PANELS[0].drawn > 0 && PANELS[0].plot.data.length > 0")
        page.value("history.back()")
        page.wait_for("!page.cell && document.querySelectorAll('.cells a').length > 0")
        assert page.messages == []


@needs_browser
def test_page_says_that_the_server_is_gone(finished, tmp_path):
    with Browser(tmp_path / "p") as page:
        with serving(finished, "runs/a") as (_, url):
            page.open(url)
            page.wait_for(DRAWN)
        page.wait_for("document.getElementById('trouble').textContent.includes('has ended')")


# For minutes


def resident_mb(pid):
    """Memory of a process and of all that it started."""
    with open(f"/proc/{pid}/status") as status, open(f"/proc/{pid}/task/{pid}/children") as children:
        own = int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1000
        return own + sum(resident_mb(int(child)) for child in children.read().split())


def heap_mb(page):
    page.call("HeapProfiler.collectGarbage")
    return page.call("Runtime.getHeapUsage")["usedSize"] / 1e6


def first_paint_ms(page, url):
    page.open(url)
    return page.wait_for("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")


@contextmanager
def suite_of_24(gipo):
    """A suite of 24 runs that takes longer than it is watched."""
    (gipo.folder / "base.toml").write_text(BASE.format(updates=100_000))
    (gipo.folder / "suite.toml").write_text(SUITE)
    process = subprocess.Popen(command(gipo, "out"), cwd=gipo.folder, stdout=subprocess.DEVNULL)
    try:
        wait_for((gipo.folder / "out" / "suite.json").exists, process)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(HANG)


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("watched", ["run", "suite"])
def test_memory_is_flat_over_ten_minutes(binary, watched, tmp_path):
    gipo = Gipo(binary, tmp_path)
    training_goes_on, path = (training(gipo, "live"), "runs/live") if watched == "run" else (suite_of_24(gipo), "out")
    with training_goes_on, serving(gipo, path) as (server, url), Browser(tmp_path / "p") as page:
        paint = min(first_paint_ms(page, url) for _ in range(3))
        page.wait_for("page.polls > 2")
        samples, start, polls = [], time.monotonic(), page.value("page.polls")
        while time.monotonic() < start + 600:
            time.sleep(20)
            samples.append((resident_mb(server.pid), heap_mb(page), page.value("document.querySelectorAll('*').length")))
        seconds = (time.monotonic() - start) / (page.value("page.polls") - polls)
        print(f"\n{watched}: first paint {paint:.0f} ms; an update every {seconds:.2f} s; process, heap (MB) and elements:")
        for name, values in zip(("from", "to", "at the end"), (np.min(samples, 0), np.max(samples, 0), samples[-1])):
            print(f"  {name:<12}" + " ".join(f"{value:.1f}" for value in values))
        assert page.messages == []
    assert paint < 1000
    early, late = np.mean(samples[3:9], 0), np.mean(samples[-6:], 0)
    assert (late[:2] < 1.1 * early[:2] + 3).all() and late[2] < 10_000, samples
    assert seconds < 1.5
