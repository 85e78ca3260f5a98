"""`gipo.train` and what comes of it: the same run as the command line's, callbacks, Ctrl-C, run folders, policies."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time

import gipo as library
import numpy as np
import pytest
from conftest import HANG, ROOT, TINY, settings, summary, wait_for
from gipo.progress import TrainingLine

OPTIONS = TINY | {"policy.hidden": [16, 16]}


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return library.train(OPTIONS | {"run.dir": str(tmp_path_factory.mktemp("runs"))}, progress=False)


def test_run_is_that_of_the_command_line(gipo):
    """The same config gives the same bytes, whichever way it was written."""
    expected = summary(gipo.train("told", {"env.id": "Pendulum-v1", "surrogate.sigma": 0.7}, "--seed", "5"))
    (gipo.folder / "config.toml").write_text("[surrogate]\nsigma = 0.7\n[policy]\nhidden = [16, 16]\n")
    nested = {"env": {"id": "Pendulum-v1"}, "surrogate": {"sigma": 0.7}}
    keywords = {key.replace(".", "__"): value for key, value in OPTIONS.items()}
    for i, run in enumerate([
        lambda **more: library.train(OPTIONS | nested, **more),
        lambda **more: library.train({}, "Pendulum-v1", surrogate__sigma=np.float64(0.7), **keywords, **more),
        lambda **more: library.train("config.toml", env={"id": "Pendulum-v1"}, **keywords, **more),
    ]):  # fmt: skip
        found = run(seed=5, name=f"run-{i}", progress=False).summary
        assert found["fingerprint"] == expected["fingerprint"]
        assert found["final_return"] == expected["final_return"]
        assert found["command"].startswith("gipo.train(")


def test_mistakes_are_told_as_on_the_command_line(gipo):
    for key, value, setting in [
        ("surrogate.sigma", -1.0, "surrogate.sigma=-1.0"),
        ("surrogat.sigma", 1.0, "surrogat.sigma=1.0"),
        ("learner.updates", 1.5, "learner.updates=1.5"),
        ("env.id", "CartPol-v1", "env.id=CartPol-v1"),
        ("env.options.mass", 2, "env.options.mass=2"),
        ("policy.distribution", "gaussian", "policy.distribution=gaussian"),
    ]:
        told = gipo("train", "--set", setting)
        assert told.returncode == 2
        with pytest.raises(library.ConfigError) as raised:
            library.train({key: value}, progress=False)
        assert told.stderr.strip().removeprefix("gipo: --set: ") == str(raised.value).removeprefix("gipo.train: ")
    for wrong, said in [({"env": {"id": object()}}, "env.id = <object"), ({"run": {"seed": [None]}}, "run.seed = "),
                        ({3: 4}, "named by text, not by 3")]:  # fmt: skip
        with pytest.raises(library.ConfigError, match=said):
            library.train(wrong)
    assert gipo.entries() == []
    with pytest.raises(library.ConfigError, match="no.toml"):
        library.train("no.toml")


@pytest.mark.parametrize("arguments, said", [
    ({"surrogate__sigm": 1}, "gipo.train() got an unexpected keyword argument 'surrogate__sigm'; did you mean "
                             "'surrogate__sigma'?"),
    ({"sigma": 1}, "gipo.train() got an unexpected keyword argument 'sigma'; did you mean 'surrogate__sigma'?"),
    ({"surrogate__sigma": "x"}, "gipo.train: surrogate__sigma = 'x' is not accepted: wanted number"),
    ({"learner__updates": True}, "gipo.train: learner__updates = True is not accepted: wanted integer"),
    ({"seed": -1}, "gipo.train: seed = -1 is not accepted: wanted 0 to"),
    ({"name": "a/b"}, "gipo.train: name = 'a/b' is not accepted: wanted a folder name"),
    ({"total_timesteps": 10}, "gipo.train() got an unexpected keyword argument 'total_timesteps'; did you mean "
                              "'env_steps'?"),
    ({"n_steps": 10}, "gipo.train() got an unexpected keyword argument 'n_steps'; did you mean 'env_steps'?"),
    ({"env_steps": -1}, "gipo.train: env_steps = -1 is not accepted: wanted 0 to"),
    ({"env_steps": 10, "learner__updates": 5}, "gipo.train: env_steps = 10 is not accepted beside learner__updates = 5: "
                                               "each says how long the run is"),
    ({"env": "NoSuch-v1"}, "gipo.train: env: environment NoSuch-v1 is not known"),
])  # fmt: skip
def test_mistakes_name_the_argument_as_python_does(gipo, arguments, said):
    with pytest.raises(library.ConfigError) as raised:
        library.train(**arguments, progress=False)
    assert str(raised.value).startswith(said)
    assert "--" not in str(raised.value) and "gipo list" not in str(raised.value)
    assert gipo.entries() == []


def test_wrong_types_are_type_errors_that_name_the_argument(gipo):
    for call, said in [
        (lambda: library.train(3, "CartPole-v1"), "gipo.train: config must be a path or a dictionary, not int"),
        (lambda: library.train(callback=3), "callback must be callable, not int"),
        (lambda: library.resume(3), "gipo.resume: run must be a Run or a path, not int"),
        (lambda: library.load(3), "gipo.load: run must be a Run or a path, not int"),
        (lambda: library.resume(".", updates="x"), "gipo.resume: updates must be an int, not str"),
        (lambda: library.resume(".", env_steps=1.5), "gipo.resume: env_steps must be an int, not float"),
        (lambda: library.iqm(3), "scores must be numbers by run, or by task and run, not int"),
    ]:
        with pytest.raises(TypeError, match=re.escape(said)):
            call()
    assert gipo.entries() == []


def test_messages_of_existing_runs_name_arguments():
    run = library.train(OPTIONS, name="a", progress=False)
    with pytest.raises(library.ConfigError, match="choose another with name or run__dir, or .* with overwrite=True"):
        library.train(OPTIONS, name="a", progress=False)
    with pytest.raises(library.ConfigError, match="gipo.resume: updates = -3 is not accepted"):
        library.resume(run, updates=-3)
    with pytest.raises(library.ConfigError, match="^updates = 2 is not accepted: the run has made"):
        library.resume(run, updates=2)


def test_length_in_env_steps_wins_over_a_config(tmp_path):
    assert "learner.updates" in OPTIONS
    run = library.train(OPTIONS, env_steps=2000, name="a", progress=False)
    first = run.summary
    assert 2000 <= first["env_steps"] < 2000 + 16 and first["ended"] == "finished"
    assert run.config["learner"]["updates"] == first["updates"]
    library.resume(run, env_steps=3000, progress=False)
    assert 3000 <= run.summary["env_steps"] < 3000 + 16
    with pytest.raises(library.ConfigError, match="^env_steps = 1000 is not accepted: the run has made"):
        library.resume(run, env_steps=1000)
    with pytest.raises(library.ConfigError, match="^gipo.resume: env_steps = 4000 is not accepted beside updates = 9:"):
        library.resume(run, 9, env_steps=4000)
    (tmp_path / "file.toml").write_text("[learner]\nupdates = 10000000\n")
    short = library.train(tmp_path / "file.toml", env_steps=1500, name="b", progress=False)
    assert 1500 <= short.summary["env_steps"] < 1516


def test_presets_are_found_by_name():
    run = library.train("classic/stale", env_steps=1500, seed=3, progress=False)
    assert run.config["surrogate"]["centre"] == "proximal" and run.summary["seed"] == 3
    with pytest.raises(library.ConfigError, match=r"classic/stael: there is no such file, .*did you mean classic/stale"):
        library.train("classic/stael")


def test_an_exception_in_an_environment_ends_a_run_that_has_begun(tmp_path, monkeypatch):
    (tmp_path / "breaks.py").write_text(BREAKS)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(library.RunError, match="step raised RuntimeError(.|\n)*the wheel came off"):
        library.train(OPTIONS | {"env.options.after": 20}, env="python:breaks:Breaks", progress=False)
    with pytest.raises(library.ConfigError, match="the wheel came off"):  # tried out before anything is created
        library.train(OPTIONS | {"env.options.after": 1}, env="python:breaks:Breaks", progress=False)


BREAKS = """
import gymnasium, numpy
class Breaks(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, after):
        self.left = after
    def reset(self, **named):
        return numpy.zeros(2, numpy.float32), {}
    def step(self, action):
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("the wheel came off")
        return numpy.zeros(2, numpy.float32), 1.0, False, False, {}
"""


def test_existing_run_is_kept_unless_told():
    library.train(OPTIONS, name="a", progress=False)
    with pytest.raises(library.ConfigError, match="run folder runs/a exists"):
        library.train(OPTIONS, name="a", progress=False)
    assert library.train(OPTIONS, name="a", overwrite=True, seed=3, progress=False).summary["seed"] == 3


def test_callback_hears_every_logged_update_and_may_stop():
    heard = []
    whole = library.train(OPTIONS, name="whole", callback=heard.append, progress=False)
    assert [figures["update"] for figures in heard] == list(range(10, 201, 10))
    metrics = whole.metrics()
    np.testing.assert_allclose([f["d95"] for f in heard], metrics["d95"], rtol=1e-6)
    assert {"seconds", "env_steps", "updates", "return_mean", "share_old"} <= set(heard[0])

    part = library.train(OPTIONS, name="part", callback=lambda f: f["update"] < 100, progress=False)
    ended = part.summary
    assert ended["ended"] == "stopped" and ended["updates"] == 100 and ended["eval_return"]["episodes"] == 3
    assert part.evaluations()["update"].tolist() == [100]
    assert library.resume(part, progress=False).summary["fingerprint"] == whole.summary["fingerprint"]


@pytest.mark.parametrize("mode", ["lockstep", "async"])
def test_callbacks_hear_of_evaluations_and_episodes_and_may_stop(mode):
    evaluations, episodes = [], []
    options = OPTIONS | {"run.mode": mode, "eval.every_updates": 60}
    run = library.train(options, on_evaluation=evaluations.append, on_episode=episodes.append, progress=False)
    logged = run.evaluations()
    assert [e["update"] for e in evaluations] == logged["update"].tolist() and evaluations[-1]["update"] == 200
    assert [e["mean"] for e in evaluations] == logged["mean"].tolist()
    assert evaluations[0]["best"] and [e["update"] for e in evaluations if e["best"]][-1] == run.summary["best"]["update"]
    for name, column in run.episodes().items():
        assert [e[name] for e in episodes] == column.tolist(), name

    stopped = library.train(options, name="b", on_evaluation=lambda e: e["update"] < 120, progress=False).summary
    assert stopped["ended"] == "stopped" and 120 <= stopped["updates"] < 200
    stopped = library.train(options, name="c", on_episode=lambda e: False, progress=False).summary
    assert stopped["ended"] == "stopped" and stopped["eval_return"]["episodes"] == 3


def test_callbacks_are_given_the_policy_of_the_moment(tmp_path):
    kept, acted = [], []

    def callback(figures):
        if figures["update"] % 50 == 0:
            acted.append((figures["update"], figures.policy().version))
            kept.append(figures.policy())
            kept.append(figures)
        return True

    evaluated = []
    run = library.train(
        OPTIONS | {"eval.every_updates": 40, "learner.publish_every": 7},
        callback=callback,
        on_evaluation=lambda e: evaluated.append((e["update"], e.policy().version)),
        progress=False,
    )
    assert acted == [(50, 50), (100, 100), (150, 150), (200, 200)]
    assert [update for update, _ in evaluated] == [version for _, version in evaluated] == [40, 80, 120, 160, 200]
    observations = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    at_end = kept[-2].parameters(observations)["logits"]
    np.testing.assert_array_equal(at_end, run.policy().parameters(observations)["logits"])
    assert not np.array_equal(at_end, kept[0].parameters(observations)["logits"])
    with pytest.raises(library.ConfigError, match="the run has gone on; call it before the callback returns"):
        kept[-1].policy()


def test_what_callbacks_return_is_none_or_a_truth():
    for value in (True, None, np.bool_(True)):
        run = library.train(OPTIONS, name="a", overwrite=True, callback=lambda figures, value=value: value, progress=False)
        assert run.summary["ended"] == "finished"
    run = library.train(OPTIONS, name="a", overwrite=True, callback=lambda figures: np.bool_(False), progress=False)
    assert run.summary["ended"] == "stopped" and run.summary["updates"] == 10
    for name in ("callback", "on_evaluation", "on_episode"):
        with pytest.raises(TypeError, match=f"{name} returned 3: wanted None or True to go on, or False to end the run"):
            library.train(
                OPTIONS, name="a", overwrite=True, eval__every_updates=20, progress=False, **{name: lambda figures: 3}
            )
        with pytest.raises(TypeError, match=f"{name} must be callable, not int"):
            library.train(OPTIONS, name="b", **{name: 3})
    assert library.Run("runs/a").summary["ended"] == "interrupted"


def test_exception_of_a_callback_saves_and_is_raised():
    def callback(figures):
        if figures["update"] == 50:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        library.train(OPTIONS, name="a", callback=callback, progress=False)
    run = library.Run("runs/a")
    assert run.summary["ended"] == "interrupted" and run.summary["updates"] == 50
    assert library.resume("runs/a/", updates=300, progress=False).summary["updates"] == 300


def test_resume_names_what_is_missing():
    with pytest.raises(library.ConfigError, match="nowhere: no such run folder"):
        library.resume("nowhere")
    os.makedirs("empty")
    with pytest.raises(library.ConfigError, match="empty/config.toml"):
        library.resume("empty")


def test_other_threads_go_on_while_it_trains():
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.monotonic()
    library.train(OPTIONS | {"learner.updates": 2000}, progress=False)
    seconds = time.monotonic() - begin
    done.set()
    thread.join()
    # Without the lock released nothing would tick in between, however long it takes.
    assert sum(begin + 0.25 * seconds < t < begin + 0.75 * seconds for t in ticks) > 5


def test_trains_in_a_thread_of_its_own():
    found = []
    thread = threading.Thread(target=lambda: found.append(library.train(OPTIONS, progress=False)))
    thread.start()
    thread.join()
    assert found[0].summary["ended"] == "finished"


INTERRUPTED = """
import gipo
def callback(figures):
    if figures["update"] == 200:
        print("running", flush=True)
try:
    gipo.train({options!r}, name="a", callback={callback}, log__every_updates=100, progress=False)
except KeyboardInterrupt:
    print("interrupted", gipo.Run("runs/a").summary["ended"], flush=True)
    raise
"""


@pytest.mark.parametrize("callback", ["callback", "None"])
def test_ctrl_c_saves_and_raises(tmp_path, callback):
    script = INTERRUPTED.format(options=OPTIONS | {"learner.updates": 200_000}, callback=callback)
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
    )  # fmt: skip
    try:
        if callback == "None":
            wait_for(lambda: (tmp_path / "runs/a/metrics.jsonl").exists(), process)
        else:
            assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert out == "interrupted interrupted\n" and errors.strip().endswith("KeyboardInterrupt")
    updates = library.Run(tmp_path / "runs/a").summary["updates"]
    assert library.resume(tmp_path / "runs/a", updates=updates + 10, progress=False).summary["updates"] == updates + 10


def test_warnings_are_pythons():
    run = library.train(OPTIONS, name="a", progress=False)
    library.resume(run, updates=205, progress=False)  # each ends with a checkpoint; one between may be passed over
    newest = sorted((run.path / "checkpoints").glob("0*"))[-1]
    (newest / "replay.bin").write_bytes(b"damaged")
    with pytest.warns(RuntimeWarning, match=newest.name):
        assert library.resume(run, updates=210, progress=False).summary["updates"] == 210


# Run folders


def test_files_of_a_run_come_as_arrays(finished):
    metrics, episodes = finished.metrics(), finished.episodes()
    assert metrics["update"].tolist() == list(range(10, 201, 10))
    assert metrics["d95"].dtype == float and metrics["contribution_by_age"].shape == (20, 8, 8)
    assert metrics["share_by_age"].shape == (20, 8) and metrics["log_ratio_counts"].shape == (20, 28)
    assert len(episodes["return"]) == finished.summary["episodes"] and episodes["terminated"].dtype == bool
    assert finished.evaluations()["mean"].tolist() == [finished.summary["eval_return"]["mean"]]
    assert finished.config["policy"]["hidden"] == [16, 16]
    assert "finished" in repr(finished) and os.fspath(finished) == str(finished.path)
    with pytest.raises(library.ConfigError, match="nowhere: no such run folder"):
        library.Run("nowhere")


def test_plot_shows_the_run(finished, tmp_path):
    figure = finished.plot()
    returns, fractions = figure.axes
    assert "training return" in returns.get_title("left") and len(returns.lines) == 1 and len(fractions.lines) == 3
    figure.savefig(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000


# Policies


def test_policy_acts_on_one_and_on_many(finished):
    policy = library.load(finished)
    assert (policy.env, policy.version, policy.action_kind) == ("CartPole-v1", 200, "discrete")
    batch = np.random.default_rng(1).normal(size=(3000, 4)).astype(np.float32)
    actions = policy.act(batch)
    assert actions.dtype == np.int64 and actions.shape == (3000,) and set(actions) == {0, 1}
    assert [policy.act(row) for row in batch[:50]] == actions[:50].tolist() and np.ndim(policy.act(batch[0])) == 0
    np.testing.assert_array_equal(policy.parameters(batch)["logits"].argmax(axis=1), actions)
    np.testing.assert_array_equal(policy.act(batch.astype(float).tolist()), actions)
    assert policy.value(batch).shape == (3000,) and np.ndim(policy.value(batch[0])) == 0
    assert policy.act(np.empty((0, 4))).shape == (0,)
    rows, *_ = policy._masked_rows(batch)
    assert np.shares_memory(rows, batch)  # no copy where none is needed


def test_samples_follow_the_distribution_and_the_seed(finished):
    policy = library.load(finished.path / "policy.safetensors")
    obs = np.tile(np.array([0.1, 0.2, -0.1, 0.3], dtype=np.float32), (20_000, 1))
    sampled = policy.act(obs, deterministic=False, seed=1)
    logits = policy.parameters(obs[0])["logits"]
    assert abs(sampled.mean() - 1 / (1 + np.exp(logits[0] - logits[1]))) < 0.02
    np.testing.assert_array_equal(policy.act(obs, deterministic=False, seed=1), sampled)
    assert (policy.act(obs, deterministic=False) != sampled).any()


def test_continuous_actions_are_the_tasks():
    run = library.train(OPTIONS | {"env.id": "Pendulum-v1"}, progress=False)
    policy = run.policy()
    obs = np.random.default_rng(1).normal(size=(500, 3)).astype(np.float32)
    actions = policy.act(obs, deterministic=False, seed=2)
    assert actions.shape == (500, 1) and actions.dtype == np.float32 and policy.act(obs[0]).shape == (1,)
    assert np.abs(actions).max() <= 2
    mean = policy.parameters(obs)["mean"]
    np.testing.assert_allclose(policy.act(obs), np.clip(2 * mean, -2, 2), rtol=1e-5, atol=1e-6)


def test_wrong_observations_and_files_are_named(finished, tmp_path):
    policy = library.load(finished)
    for wrong in (np.zeros(3), np.zeros((2, 5)), np.zeros((1, 2, 4)), 0.0):
        with pytest.raises(library.ConfigError, match=re.escape("where (4,) or (N, 4) belong")):
            policy.act(wrong)
    with pytest.raises(library.ConfigError, match="nowhere: no such run folder or policy file"):
        library.load("nowhere")
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    with pytest.raises(library.ConfigError, match="bad.safetensors"):
        library.load("bad.safetensors")


# Progress


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize("stream, refreshed", [(Stream(False), False), (Stream(True), True)])
def test_progress_fits_where_it_is_shown(stream, refreshed):
    line = TrainingLine(stream)
    line.start("name", "name: window 3")
    figures = {"update": 50, "updates": 100, "env_steps": 4000, "seconds": 40.0, "return_mean": 12.34, "gap_mean": 7.0}
    line.show(figures)
    line.show(figures | {"update": 75, "env_steps": 4200, "seconds": 41.0, "return_mean": 0.001234})
    line.show(figures | {"update": 100, "env_steps": 4400, "seconds": 42.0, "return_mean": float("nan")})
    line.close()
    text = stream.getvalue()
    first, *shown = re.split("[\r\n]+", text.strip())
    assert first == "name: window 3"
    # What came before the first update seen, a warm-up or an earlier run, is no part of the rates and of the time left.
    assert shown[0].strip() == "name  50%  - env steps/s  - updates/s  return 12.3  gap 7  ETA -"
    assert shown[1].strip() == "name  75%  200 env steps/s  25 updates/s  return 0.00123  gap 7  ETA 1s"
    assert shown[2].strip() == "name 100%  200 env steps/s  25 updates/s  return -  gap 7  42s"
    assert text.count("\r") == (3 if refreshed else 0) and text.endswith("\n") and "\x1b" not in text


def test_a_run_that_cannot_save_its_environments_says_so_at_the_start(capfd):
    library.train(OPTIONS | {"env.id": "gymnasium:CartPole-v1"}, name="a", learner__updates=10)
    assert "a resumed run begins new episodes" in capfd.readouterr().err.splitlines()[1]


def test_progress_goes_to_stderr_and_can_be_left_out(capfd):
    library.train(OPTIONS, name="loud")
    out, errors = capfd.readouterr()
    assert out == "" and errors.startswith("loud: window ") and "loud 100%" in errors
    library.train(OPTIONS, name="quiet", progress=False)
    assert capfd.readouterr() == ("", "")
