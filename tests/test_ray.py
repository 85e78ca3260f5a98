"""Training and suites on a Ray cluster: a head and two nodes on this machine. Needs Ray, and for training a build with
GIPO_GRPC."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from conftest import HANG, ROOT, settings
from gipo.demo_cluster import QUICK
from gipo.ray_nodes import programs
from test_cluster import grpc_built, with_grpc  # noqa: F401  fixtures
from test_suite import command, contents, finished, suite  # noqa: F401  fixture

ray = pytest.importorskip("ray", reason="scripts/setup.sh --cluster installs Ray")


def wait_until(condition, process=None):
    """As conftest has it, but seldom: looking at all processes takes a while."""
    deadline = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < deadline, "it hangs"
        assert process is None or process.poll() is None, "the process has ended"
        time.sleep(0.2)


class Nodes:
    def __init__(self, head_cpus=4):
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(initialize_head=True, head_node_args={
            "num_cpus": head_cpus, "include_dashboard": False, "_system_config": QUICK})
        self.ids, self.others = {self.cluster.head_node.node_id}, []  # of all there ever were; those that can be lost
        for _ in range(2):
            self.add()

    def add(self):
        self.others.append(self.cluster.add_node(num_cpus=4))
        self.ids.add(self.others[-1].node_id)

    def lose(self, node):
        self.others.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)

    def programs(self, word):
        """Processes `gipo WORD` of this cluster, also of nodes that it has lost, and the node each is on."""
        return programs(word, self.ids)


@pytest.fixture(scope="module")
def nodes():
    made = Nodes()
    ray.init(address=made.cluster.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.cluster.shutdown()


@pytest.fixture
def environment(nodes, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", nodes.cluster.address)


class InThread:
    """gipo.ray.train on a thread: the test does harm meanwhile."""

    def __init__(self, *arguments, **options):
        self.result = self.error = None
        self.thread = threading.Thread(target=self.work, args=(arguments, options), daemon=True)
        self.thread.start()

    def work(self, arguments, options):
        import gipo

        try:
            self.result = gipo.ray.train(*arguments, **options)
        except BaseException as error:
            self.error = error

    def wait(self):
        self.thread.join(300)
        assert not self.thread.is_alive(), "it hangs"
        if self.error:
            raise self.error
        return self.result


LONG = {"learner__updates": 60000, "checkpoint__every_updates": 2000, "log__every_updates": 500}


@pytest.mark.slow
def test_cartpole_is_solved_while_a_node_is_lost(with_grpc, nodes, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    seen = []
    training = InThread("classic/stale", callback=seen.append, actors=4, name="run", progress=False, **LONG)
    on_others = lambda: [pid for pid, node in nodes.programs("actor").items() if node in {n.node_id for n in nodes.others}]
    wait_until(lambda: training.error or (len(nodes.programs("actor")) == 4 and len(seen) > 3))
    learner_node = set(nodes.programs("learn").values())
    lost = next(n for n in nodes.others if n.node_id in nodes.programs("actor").values() and n.node_id not in learner_node)
    assert on_others() and len(set(nodes.programs("actor").values())) > 1, "all actors on one node"
    nodes.lose(lost)
    begin = time.monotonic()
    wait_until(lambda: training.error or (lost.node_id not in nodes.programs("actor").values() and len(nodes.programs("actor")) == 4))
    assert time.monotonic() - begin < 15
    nodes.add()
    run = training.wait()
    assert run.summary["ended"] == "finished" and run.summary["eval_return"]["mean"] >= 475
    assert run.path == tmp_path / "runs/run" and run.policy() is not None
    assert [figures["update"] for figures in seen] == sorted({figures["update"] for figures in seen})
    assert seen[-1]["update"] == run.metrics()["update"][-1]
    wait_until(lambda: not nodes.programs("actor") and not nodes.programs("learn"))


@pytest.mark.slow
def test_a_killed_learner_and_killed_actors_are_started_again(with_grpc, nodes, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    training = InThread("classic/stale", actors=2, name="run", progress=False, **LONG)
    log = tmp_path / "runs/run/log.txt"
    wait_until(lambda: training.error or (log.exists() and log.read_text().count(" came, incarnation 1") == 2))
    for word in ("learn", "actor"):
        pid = next(iter(nodes.programs(word)))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pid not in nodes.programs(word) and nodes.programs(word))
    assert training.wait().summary["ended"] == "finished"
    text = log.read_text()
    assert "actor actor-0 (" in text and "incarnation 2" in text


def test_a_callback_ends_the_run_which_can_be_continued(with_grpc, nodes, tmp_path, monkeypatch):  # noqa: F811
    import gipo

    monkeypatch.chdir(tmp_path)
    train = lambda **more: gipo.ray.train("classic/stale", actors=2, name="run", progress=False,
                                          learner__updates=4000, **more)
    assert train(callback=lambda figures: figures["update"] < 1000).summary["ended"] == "interrupted"
    with pytest.raises(gipo.ConfigError, match="run"):
        train()
    assert train(resume=True).summary["updates"] == 4000
    assert not nodes.programs("actor") and not nodes.programs("learn")


def test_mistakes_are_said_before_anything_is_placed(nodes, tmp_path, monkeypatch):
    import gipo

    monkeypatch.chdir(tmp_path)
    for options, words in (({"surrogate__sigmas": 1}, "surrogate.sigmas"), ({"actors": 0}, "actors = 0"),
                           ({"overwrite": True, "resume": True}, "exclude each other")):
        with pytest.raises(gipo.ConfigError, match=words):
            gipo.ray.train("classic/stale", **options)
    assert list(tmp_path.iterdir()) == []


def test_without_ray_the_command_says_how_to_have_it(gipo):
    hidden = gipo.folder / "hidden"
    hidden.mkdir()
    (hidden / "ray.py").write_text("raise ImportError('not here')\n")
    (gipo.folder / "s.toml").write_text('[suite]\nname = "s"\nconfig = "classic/stale"\nseeds = [1]\n'
                                        '[[task]]\nname = "CartPole-v1"\n[[method]]\nname = "m"\n')
    for words in (["cluster", "up", "classic/stale"], ["suite", "s.toml", "--ray"]):
        ended = subprocess.run([gipo.binary, *words], cwd=gipo.folder, capture_output=True, text=True,
                               env=os.environ | {"PYTHONPATH": str(hidden), "GIPO_PYTHON": sys.executable})
        assert ended.returncode == 2 and "pip install 'gipo[ray]'" in ended.stderr, ended.stderr
    assert gipo("cluster", "up").returncode == 2
    assert not (gipo.folder / "runs").exists()


def test_the_command_places_a_run(with_grpc, gipo, environment):  # noqa: F811
    ended = gipo("cluster", "up", "classic/stale", "--actors", "2", "--name", "run", "--json",
                 *settings({"learner.updates": 2000}))
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["ended"] == "finished" and said["run_dir"] == str(gipo.folder / "runs/run")
    assert "learner at" in ended.stderr
    assert gipo("cluster", "up", "classic/stale", "--name", "run").returncode == 2  # it is there already


def test_a_suite_over_the_cluster_leaves_the_bytes_of_a_local_one(suite, environment):  # noqa: F811
    local, far = suite.folder / "local", suite.folder / "far"
    for out, more in ((local, []), (far, ["--ray"])):
        ended = subprocess.run(command(suite, out.name, *more), cwd=suite.folder, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
    assert len(finished(far)) == 24
    assert contents(far) == contents(local)


def test_an_interrupted_suite_over_the_cluster_goes_on(suite, environment):  # noqa: F811
    suite.write(updates=3000)
    far, local = suite.folder / "far", suite.folder / "local"
    only = ["--seed", "1", "--task", "CartPole-v1", "--regime", "stale"]
    process = subprocess.Popen(command(suite, far.name, "--ray", *only), cwd=suite.folder)
    wait_until(lambda: list(far.glob("runs/*/checkpoints/LATEST")), process)
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    for out, more in ((local, []), (far, ["--ray"])):
        assert subprocess.run(command(suite, out.name, *only, *more), cwd=suite.folder).returncode == 0
    assert contents(far) == contents(local)


@pytest.mark.slow
def test_the_demo_loses_nothing_but_open_segments(with_grpc, tmp_path):  # noqa: F811
    ended = subprocess.run([sys.executable, "-m", "gipo.demo_cluster", "--out", "demo"], cwd=tmp_path, capture_output=True,
                           text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "python")})
    assert ended.returncode == 0, ended.stderr
    assert "raylet" not in ended.stdout + ended.stderr
    assert "killed an actor" in ended.stderr and "killed a node with" in ended.stderr, ended.stderr
    assert ", 0 that the learner had received were lost" in ended.stdout, ended.stdout
    rows = [line.split() for line in ended.stdout.splitlines() if line.startswith("actor-")]
    assert sum(row[2] == "killed" for row in rows) == 3, ended.stdout
    assert all(int(row[-2]) <= 256 for row in rows), f"more unsent than a report has\n{ended.stdout}"
    assert (tmp_path / "demo/cluster.png").stat().st_size > 10_000
