"""gipo.RemoteActor: a control loop in Python as an actor of a real learner. Needs a build with GIPO_GRPC, and grpcio."""

import json
import re
import shutil
import struct
import subprocess
import sys
import threading
import zipfile

import numpy as np
import pytest

from conftest import ROOT, TINY, read_safetensors, settings, wait_until
from test_cluster import cluster, compare, grpc_built, marks, stop, with_grpc  # noqa: F401  fixtures

for package in ("grpc", "google_crc32c"):
    pytest.importorskip(package, reason="scripts/setup.sh --cluster installs what gipo_edge needs")
gymnasium = pytest.importorskip("gymnasium")
from gipo_edge import Refused, RemoteActor  # noqa: E402
from gipo_edge.policy import EdgePolicy  # noqa: E402


class Loop:
    """CartPole on a thread, around a RemoteActor; paced: no faster than the learner."""

    def __init__(self, actor, paced=True):
        self.actor, self.paced, self.steps, self.stopped, self.error = actor, paced, 0, False, None
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        try:
            env = gymnasium.make("CartPole-v1")
            observation, _ = env.reset(seed=1)
            while not self.stopped and not self.actor.ended:
                observation, reward, terminated, truncated, _ = env.step(self.actor.act(observation))
                self.actor.record(reward, observation, terminated, truncated)
                self.steps += 1
                if terminated or truncated:
                    observation, _ = env.reset()
                if self.paced and self.actor.status()["connected"]:
                    self.actor.wait(0.5)
        except BaseException as error:
            self.error = error

    def stop(self):
        self.stopped = True
        self.thread.join(30)
        assert self.error is None, self.error


def weights_message(path):
    """The policy of a file as a learner publishes it."""
    tensors = read_safetensors(path)
    policy = np.concatenate([t.ravel() for name, t in tensors.items() if name.startswith("policy.")])
    arrays = [policy, np.empty(0, np.float32), tensors["observation.mean"], tensors["observation.inverse_std"]]
    data = struct.pack("<2q", 7, 7)
    for array in arrays:
        data += struct.pack("<Q", array.size) + array.astype("<f4").tobytes()
    return data + struct.pack("<f", 10.0)


@pytest.mark.parametrize("options", [
    {"env.id": "CartPole-v1"},
    {"env.id": "Pendulum-v1", "policy.activation": "relu", "policy.layer_norm": "true"},
    {"env.id": "Pendulum-v1", "policy.distribution": "binned", "policy.bins": 5},
])
def test_the_policy_is_the_engines(options, gipo):
    import gipo as package

    ended = gipo("train", *settings(TINY | options), "--name", "r", "--quiet")
    assert ended.returncode == 0, ended.stderr
    run = gipo.folder / "runs/r"
    tensors = read_safetensors(run / "policy.safetensors")
    offset, listed = 0, []
    for name, tensor in tensors.items():
        if name.startswith("policy."):
            listed.append({"name": name, "offset": offset, "shape": list(tensor.shape)})
            offset += tensor.size
    policy = package.load(run)
    choices = [2] if options["env.id"] == "CartPole-v1" else [5] if "policy.bins" in options else [0]
    description = {"tensors": listed, "choices": choices, "activation": options.get("policy.activation", "tanh"),
                   "layer_norm": "policy.layer_norm" in options, "low": [-2.0], "high": [2.0],
                   "action": "discrete" if choices == [2] else "box"}
    edge = EdgePolicy(description, weights_message(run / "policy.safetensors"))
    chance = np.random.default_rng(3)
    for _ in range(50):
        seen = chance.normal(size=policy.observation_size).astype(np.float32)
        wanted = policy.parameters(seen)
        first = np.ravel(next(iter(wanted.values())))
        np.testing.assert_allclose(edge._outputs(seen), first, rtol=2e-5, atol=2e-6)
    drawn = [edge.choose(seen, chance) for _ in range(4000)]
    if choices[0]:
        for k in range(choices[0]):
            of_k = [log_prob[0] for action, log_prob in drawn if action[0] == k]
            assert of_k and abs(len(of_k) / len(drawn) - np.exp(of_k[0])) < 0.04
    else:
        std = np.exp(edge._tensors["log_std"][0])
        assert abs(np.std([action[0] for action, _ in drawn]) / std - 1) < 0.06
    assert all(edge.to_task(action) in (0, 1) if choices == [2] else -2 <= edge.to_task(action)[0] <= 2
               for action, _ in drawn)


@pytest.mark.parametrize("certified", [False, True])
def test_a_loop_in_python_trains_through_the_death_of_its_learner(cluster, gipo, tmp_path, certified):  # noqa: F811
    if certified:
        assert gipo("certs", "certs", "--actor", "a").returncode == 0
        cluster.certs = tmp_path / "certs"
    options = {"staleness.actors": 1, "env.count": 1}
    learner = cluster.learn(options)
    actor = RemoteActor(cluster.address, certs=tmp_path / "certs/a" if certified else None, name=None if certified else "a",
                        ledger=tmp_path / "a.ledger", wait=60)
    loop = Loop(actor)
    for _ in range(2):
        before = len(cluster.ledger("a"))
        # Killed with reports that it has received and not saved.
        wait_until(lambda: loop.error or len(cluster.ledger("a")) > before + 100)
        wait_until(lambda: (lambda m: m["received"] > m["saved"] > 0)(list(marks(cluster.ledger("a")).values())[-1]))
        learner.kill()
        learner.wait()
        gone = loop.steps
        wait_until(lambda: loop.steps > gone + 200)  # the loop goes on
        learner = cluster.learn(options)
    resumed = len(cluster.ledger("a"))
    wait_until(lambda: loop.error or len(cluster.ledger("a")) > resumed + 100)
    loop.stop()
    actor.close()
    assert stop(learner) == 130, cluster.text()
    held, owed = compare(cluster.run(), [cluster.ledger("a")], "received")
    assert owed > 50 and held == owed, "each was received once"
    assert actor.dropped_steps == 0
    assert [line for line in cluster.ledger("a") if "resumed" in line]
    episodes = [json.loads(line) for line in (cluster.run() / "episodes.jsonl").read_text().splitlines()]
    assert [e["episode"] for e in episodes] == list(range(len(episodes))) and len(episodes) > 20
    assert gipo("doctor", cluster.run()).returncode == 0


def test_a_loop_is_told_of_the_end_and_the_learner_knows(cluster):  # noqa: F811
    learner = cluster.learn({"staleness.actors": 1, "env.count": 1, "learner.updates": 300})
    actor = RemoteActor(cluster.address, name="a", wait=60)
    loop = Loop(actor)
    wait_until(lambda: loop.error or actor.ended)
    assert learner.wait(30) == 0, cluster.text()
    loop.stop()
    actor.close()
    assert "not told" not in (cluster.run() / "log.txt").read_text()


@pytest.mark.slow
def test_cartpole_is_learned_from_python(cluster):  # noqa: F811
    learner = cluster.start("learn", "classic/stale", "--name", "run", "--listen", "127.0.0.1:17431",
                            *settings({"staleness.actors": 1, "env.count": 1}), log="l.log")
    loop = Loop(RemoteActor("127.0.0.1:17431", wait=60, seed=1))
    assert learner.wait(300) == 0, cluster.text()
    loop.stop()
    summary = json.loads((cluster.run() / "summary.json").read_text())
    assert summary["eval_return"]["mean"] >= 475


def test_without_a_learner_the_oldest_is_dropped_and_counted(cluster):  # noqa: F811
    learner = cluster.learn({"staleness.actors": 1, "env.count": 1})
    actor = RemoteActor(cluster.address, name="a", keep=0.05, wait=60)
    loop = Loop(actor)
    wait_until(lambda: actor.status()["received_reports"] > 10)
    learner.kill()
    learner.wait()
    wait_until(lambda: loop.error or actor.dropped_steps > 500)
    assert actor.status()["kept_bytes"] <= 50_000 and not actor.status()["connected"]
    learner = cluster.learn({"staleness.actors": 1, "env.count": 1})
    before = actor.status()["received_reports"]
    wait_until(lambda: loop.error or actor.status()["received_reports"] > before + 20)
    loop.stop()
    actor.close()
    assert stop(learner) == 130


def test_what_cannot_be_is_said(cluster, tmp_path):  # noqa: F811
    with pytest.raises(Refused, match="no ca.crt there; gipo certs makes the folder"):
        RemoteActor("127.0.0.1:1", certs=tmp_path)
    with pytest.raises(Refused, match=r"127.0.0.1:1 does not answer; given up after 0.5 s"):
        RemoteActor("127.0.0.1:1", wait=0.5)
    cluster.learn({"advantage.mode": "stored", "surrogate.centre": "behaviour"})
    with pytest.raises(Refused, match='advantage.mode = "stored".*; use gipo actor'):
        RemoteActor(cluster.address, wait=60)


def test_a_loop_that_is_used_wrongly_is_told(cluster):  # noqa: F811
    learner = cluster.learn({"staleness.actors": 1, "env.count": 1})
    with RemoteActor(cluster.address, wait=60) as actor:
        with pytest.raises(ValueError, match="call act first"):
            actor.record(1.0, np.zeros(4))
        with pytest.raises(ValueError, match="an observation of 3 numbers; wanted 4"):
            actor.act(np.zeros(3))
        # Each way in which a segment is cut leaves only what fits together: the learner takes it all.
        for observation in (np.zeros(4), np.ones(4)):
            actor.act(observation)
            actor.act(observation)
            actor.record(1.0, 2 * np.ones(4))
        actor.act(3 * np.ones(4))
        actor.record(float("nan"), np.zeros(4))
        actor.act(np.zeros(4))
        actor.drop()
        actor.act(np.zeros(4))
        actor.record(1.0, np.zeros(4))
    assert cluster.status()["refusals"] == 0 and actor.dropped_steps == 0
    assert stop(learner) == 130


def test_the_edge_is_a_wheel_of_its_own(tmp_path):
    source = shutil.copytree(ROOT / "python/gipo_edge", tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__"))
    made = subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path,
                           source], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    version = re.search(r"project\(gipo VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    wheel = tmp_path / f"gipo_edge-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as files:
        assert {name for name in files.namelist() if name.endswith(".py")} == {
            f"gipo_edge/{name}.py" for name in ("__init__", "actor", "policy", "wire")}
        files.extractall(tmp_path / "site")
    alone = subprocess.run([sys.executable, "-c", "import sys, gipo_edge; print(sorted(n for n in sys.modules if n[:4] == 'gipo'))"],
                           cwd=tmp_path / "site", capture_output=True, text=True, env={"PATH": "/usr/bin"})
    assert alone.stdout.strip() == "['gipo_edge', 'gipo_edge.actor', 'gipo_edge.policy', 'gipo_edge.wire']", alone.stderr
