"""Learner and actors as programs of their own: what is promised when any of them is killed, and to hostile callers. Needs a
build with GIPO_GRPC."""

import json
import random
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from collections import deque
from contextlib import suppress

import pytest

from conftest import settings, summary, wait_until

SMALL = {
    "policy.hidden": "[16, 16]",
    "learner.batch_size": 64,
    "learner.updates": 10000000,
    "replay.segment_length": 16,
    "replay.capacity": 2000000,
    "staleness.regime": "custom",
    "staleness.env_steps_per_update": 4,
    "staleness.actors": 2,
    "eval.episodes": 3,
    "env.count": 2,
    "checkpoint.every_updates": 200,
    "log.tensorboard": "false",
}


@pytest.fixture(scope="session")
def grpc_built(binary):
    refused = subprocess.run([binary, "certs", "/dev/null/x"], capture_output=True, text=True)
    return "without gRPC" not in refused.stderr


@pytest.fixture
def with_grpc(grpc_built):
    if not grpc_built:
        pytest.skip("this program was built without gRPC: make test-cluster")


class Cluster:
    """A learner and actors in one folder; whatever is left is killed at the end."""

    def __init__(self, binary, folder):
        self.binary, self.folder, self.processes, self.learners = binary, folder, [], 0
        self.address, self.certs, self.prefix = "127.0.0.1:0", None, []

    def start(self, *arguments, log):
        file = (self.folder / log).open("ab")
        command = [*self.prefix, self.binary, *map(str, arguments)]
        process = subprocess.Popen(command, cwd=self.folder, stdout=file, stderr=file)
        self.processes.append(process)
        return process

    def learn(self, options=None, *arguments, name="run"):
        self.learners += 1
        log = f"learner{self.learners}.log"
        certs = ["--certs", self.certs / "learner"] if self.certs else []
        process = self.start("learn", "classic/stale", "--resume", "--name", name, "--listen", self.address, *certs,
                             *settings(SMALL | (options or {})), *arguments, log=log)
        text = lambda: (self.folder / log).read_text()
        wait_until(lambda: "listening on" in text() or process.poll() is not None)
        assert process.poll() is None, text()
        self.address = re.search(r"listening on (\S+)", text())[1]
        return process

    def act(self, name, *arguments, address=None):
        certs = ["--certs", self.certs / name] if self.certs else ["--name", name]
        return self.start("actor", address or self.address, *certs, "--ledger", f"{name}.ledger", *arguments, log=f"{name}.log")

    def status(self):
        certs = ["--certs", self.certs / "a"] if self.certs else []
        shown = subprocess.run([self.binary, "status", self.address, *certs, "--json"], capture_output=True, text=True,
                               cwd=self.folder)
        return json.loads(shown.stdout) if shown.returncode == 0 else None

    def ledger(self, name):
        path = self.folder / f"{name}.ledger"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def run(self, name="run"):
        return self.folder / "runs" / name

    def text(self):
        return "\n".join(path.read_text() for path in self.folder.glob("*.log"))


@pytest.fixture
def cluster(with_grpc, binary, tmp_path):
    made = Cluster(binary, tmp_path)
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def stop(process, signal_number=signal.SIGTERM):
    process.send_signal(signal_number)
    return process.wait(timeout=120)


def segments_of(run):
    """(environment, incarnation, number, steps) of all segments in the newest checkpoint: docs/checkpoints.md."""
    newest = (run / "checkpoints/LATEST").read_text().strip()
    data = (run / "checkpoints" / newest / "replay.bin").read_bytes()
    observation, dims = 4, 1
    # Before the counts: a random stream, and moments of observations and returns. Where they end shows by the counts, which
    # must agree with the segments.
    for at in range(64, 256, 8):
        found = read_segments(data, at, observation, dims)
        if found is not None:
            return found
    raise AssertionError("replay.bin is not as documented")


def read_segments(data, at, observation, dims):
    try:
        inserted, evicted, count = struct.unpack_from("<3Q", data, at)
        at += 24
        found = []
        if count == 0 or count > len(data) or evicted != 0:
            return None
        for _ in range(count):
            steps, _, _, env, incarnation, number, flags = struct.unpack_from("<Q2d4Q", data, at)
            if steps == 0 or steps > 16 or env > 1000 or flags > 3:
                return None
            found.append((env, incarnation, number, steps))
            at += 56 + 4 * (steps + 1) * observation + 4 * steps * (2 * dims + 1) + 8 * steps
        return found if sum(s[3] for s in found) == inserted else None
    except struct.error:
        return None


def marks(ledger):
    """Of each incarnation in a ledger: its reports by number, how far the learner has said to have them, and saved them."""
    found = {}
    for line in ledger:
        entry = found.setdefault((line["actor"], line["incarnation"]), {"made": {}, "received": 0, "saved": 0})
        if "made" in line:
            entry["made"][line["made"]] = [
                (env, line["incarnation"], number, steps) for env, number, steps in line["segments"]
            ]
        elif "resumed" in line:
            entry["received"] = line["resumed"]
        else:
            for what in ("received", "saved"):
                entry[what] = max(entry[what], line.get(what, 0))
    return found


def compare(run, ledgers, promised):
    """Each segment is in the replay once at most, was made by an actor, and is there where it was promised."""
    held = segments_of(run)
    assert len(set(held)) == len(held), "a segment is there twice"
    made, owed = set(), set()
    for ledger in ledgers:
        for entry in marks(ledger).values():
            for number, segments in entry["made"].items():
                made.update(segments)
                if number < entry[promised]:
                    owed.update(segments)
    assert set(held) <= made, "a segment that no actor made"
    assert owed <= set(held), f"{len(owed - set(held))} of {len(owed)} promised segments are lost"
    return len(held), len(owed)


def acknowledged_after_checkpoint(cluster, names):
    """Some report was received that no checkpoint has."""
    for name in names:
        last = list(marks(cluster.ledger(name)).values())[-1:]
        if last and last[0]["received"] > last[0]["saved"] and last[0]["received"] > 0:
            return True
    return False


def test_without_grpc_the_command_says_how_to_have_it(gipo, grpc_built):
    if grpc_built:
        pytest.skip("this program was built with gRPC")
    for command in (["learn", "classic/stale", "--listen", "127.0.0.1:0"], ["actor", "127.0.0.1:1"], ["certs", "c"]):
        ended = gipo(*command)
        assert ended.returncode == 2
        assert "scripts/setup.sh --cluster" in ended.stderr
    assert gipo.entries() == []


def test_a_run_with_two_actors_is_a_run_like_any_other(cluster, gipo):
    learner = cluster.learn({"learner.updates": 2000})
    actors = [cluster.act("a"), cluster.act("b")]
    assert learner.wait(timeout=300) == 0, cluster.text()
    assert [actor.wait(timeout=60) for actor in actors] == [0, 0], cluster.text()
    examined = gipo("doctor", cluster.run())
    assert examined.returncode == 0, examined.stdout
    assert summary(cluster.run())["ended"] == "finished"
    held, owed = compare(cluster.run(), [cluster.ledger("a"), cluster.ledger("b")], "received")
    assert owed > 100 and held >= owed
    assert "actor a (127.0.0.1, place" in (cluster.run() / "log.txt").read_text()


def test_a_learner_killed_twenty_times_between_acknowledgement_and_checkpoint_loses_nothing(cluster, gipo):
    names, random_moment = ["a", "b"], random.Random(1)
    learner = cluster.learn()
    actors = [cluster.act(name) for name in names]
    for _ in range(20):
        seen = [len(cluster.ledger(name)) for name in names]
        wait_until(lambda: all(len(cluster.ledger(n)) > s + 40 for n, s in zip(names, seen)), learner)
        time.sleep(random_moment.uniform(0, 0.3))
        wait_until(lambda: acknowledged_after_checkpoint(cluster, names), learner)
        learner.kill()
        learner.wait()
        learner = cluster.learn()
    # Both are back, and a checkpoint has what they had to send again.
    before = {name: list(marks(cluster.ledger(name)).values())[-1]["received"] for name in names}
    wait_until(lambda: all(list(marks(cluster.ledger(n)).values())[-1]["saved"] > before[n] for n in names), learner)
    assert all(actor.poll() is None for actor in actors), cluster.text()
    assert stop(learner) == 130, cluster.text()
    for actor in actors:
        assert stop(actor) == 130
    held, owed = compare(cluster.run(), map(cluster.ledger, names), "received")
    assert owed > 500
    # Each actor has lived through all of it in one incarnation.
    assert [list(marks(cluster.ledger(name))) for name in names] == [[(p, 1)] for p in places(cluster, names)]
    examined = gipo("doctor", cluster.run())
    assert examined.returncode == 0, examined.stdout


def places(cluster, names):
    return [cluster.ledger(name)[0]["actor"] for name in names]


def test_actors_killed_twenty_times_lose_open_segments_alone(cluster, gipo):
    names, random_moment = ["a", "b"], random.Random(2)
    learner = cluster.learn()
    actors = {name: cluster.act(name) for name in names}
    for i in range(20):
        name = names[i % 2]
        seen = len(cluster.ledger(name))
        wait_until(lambda: len(cluster.ledger(name)) > seen + 20, learner)
        time.sleep(random_moment.uniform(0, 0.1))
        actors[name].kill()
        actors[name].wait()
        actors[name] = cluster.act(name)
    wait_until(lambda: len(marks(cluster.ledger("b"))) == 11, learner)
    assert stop(learner) == 130, cluster.text()
    for actor in actors.values():
        stop(actor)
    ledgers = [cluster.ledger(name) for name in names]
    assert [len(marks(ledger)) for ledger in ledgers] == [11, 11]
    assert compare(cluster.run(), ledgers, "received")[1] > 200
    examined = gipo("doctor", cluster.run())
    assert examined.returncode == 0, examined.stdout


def test_killing_both_loses_nothing_that_was_saved(cluster, gipo):
    names, chance = ["a", "b"], random.Random(3)
    learner = cluster.learn({"checkpoint.every_updates": 100})
    actors = {name: cluster.act(name) for name in names}
    for _ in range(8):
        time.sleep(chance.uniform(0.2, 0.8))
        victim = chance.choice(names)
        learner.kill()
        actors[victim].kill()
        learner.wait()
        actors[victim].wait()
        learner = cluster.learn({"checkpoint.every_updates": 100})
        actors[victim] = cluster.act(victim)
    before = len(cluster.ledger("a"))
    wait_until(lambda: len(cluster.ledger("a")) > before + 50, learner)
    assert stop(learner) == 130, cluster.text()
    for actor in actors.values():
        stop(actor)
    compare(cluster.run(), map(cluster.ledger, names), "saved")
    examined = gipo("doctor", cluster.run())
    assert examined.returncode == 0, examined.stdout


def test_actors_are_told_of_the_end_when_it_is_on_disk(cluster):
    """Until then the learner may be killed and has to make its last updates again, for which it needs them."""
    for attempt in range(5):
        cluster.address, run = "127.0.0.1:0", f"run{attempt}"
        learner = cluster.learn({"learner.updates": 8000, "checkpoint.every_updates": 1000000}, name=run)
        actors = [cluster.act(f"{name}{attempt}") for name in "ab"]
        while all(actor.poll() is None for actor in actors):
            time.sleep(0.0005)
        learner.kill()
        learner.wait()
        assert (cluster.run(run) / "checkpoints/LATEST").read_text().strip().lstrip("0") == "8000"
        for actor in actors:  # one may have been told and the other not
            actor.kill()


class Cable:
    """To the learner at that address; it can be cut. What the learner says takes so many seconds. What is on its way when the
    learner closes the connection is lost, as TCP loses it if that learner is sent something then."""

    def __init__(self, address, seconds=0.0):
        self.learner, self.seconds, self.whole, self.ends = address.rsplit(":", 1), seconds, True, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            actor, _ = self.socket.accept()
            with suppress(OSError):
                learner = socket.create_connection(self.learner)
                self.ends += actor, learner
                if self.whole:
                    threading.Thread(target=self.carry, args=(actor, learner, 0.0), daemon=True).start()
                    threading.Thread(target=self.carry, args=(learner, actor, self.seconds), daemon=True).start()
                    continue
            actor.close()

    def carry(self, source, sink, seconds):
        under_way = deque()
        with suppress(OSError):
            while True:
                wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
                if select.select([source], [], [], wait)[0]:
                    data = source.recv(1 << 16)
                    if not data:
                        break
                    under_way.append((time.monotonic() + seconds, data))
                while under_way and under_way[0][0] <= time.monotonic():
                    sink.sendall(under_way.popleft()[1])
        self.close(source, sink)

    @staticmethod
    def close(*ends):
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        self.whole = False
        self.close(*self.ends)


def connected(cluster):
    return {actor["name"] for actor in cluster.status()["actors"] if actor["connected"]}


def test_an_actor_behind_a_slow_cable_is_told_of_the_end(cluster):
    learner = cluster.learn({"learner.updates": 8000})
    b = cluster.act("b", "--wait", "5", address=Cable(cluster.address, 2.5).address)
    wait_until(lambda: len(cluster.ledger("b")) > 5, learner)
    actors = [cluster.act("a", "--wait", "5"), b]
    assert [actor.wait(timeout=300) for actor in actors] == [0, 0], cluster.text()
    assert learner.wait(timeout=60) == 0, cluster.text()


def test_actors_that_are_away_at_the_end_are_told_when_they_come(cluster):
    learner = cluster.learn({"learner.updates": 8000, "staleness.actors": 3})
    cable = Cable(cluster.address)
    actors = {"a": cluster.act("a"), "b": cluster.act("b"), "c": cluster.act("c", "--wait", "20", address=cable.address)}
    wait_until(lambda: all(len(cluster.ledger(name)) > 20 for name in actors), learner)
    actors["b"].kill()
    cable.cut()
    wait_until(lambda: connected(cluster) == {"a"}, learner)
    assert actors["a"].wait(timeout=300) == 0, cluster.text()
    assert "actor b (place" in (cluster.run() / "log.txt").read_text()
    cable.whole = True
    actors["b"] = cluster.act("b", "--wait", "20")  # as systemd or Ray start it again
    assert [actor.wait(timeout=60) for actor in actors.values()] == [0, 0, 0], cluster.text()
    assert learner.wait(timeout=60) == 0, cluster.text()
    assert summary(cluster.run())["ended"] == "finished"
    assert "not told" not in (cluster.run() / "log.txt").read_text()


def test_a_learner_that_was_started_again_after_its_end_tells_the_actors_of_before(cluster):
    learner = cluster.learn({"learner.updates": 4000})
    cable = Cable(cluster.address)
    a, b = cluster.act("a"), cluster.act("b", "--wait", "20", address=cable.address)
    wait_until(lambda: len(cluster.ledger("b")) > 20, learner)
    cable.cut()
    assert a.wait(timeout=300) == 0, cluster.text()
    learner.kill()
    learner.wait()
    learner = cluster.learn({"learner.updates": 4000})
    time.sleep(1)
    assert b.poll() is None and learner.poll() is None
    cable.whole = True
    assert b.wait(timeout=60) == 0, cluster.text()
    assert stop(learner) == 0, cluster.text()  # it would wait for a, of which it does not know that it was told


def test_the_end_waits_for_no_actor_that_has_left_and_no_longer_than_asked(cluster):
    for way, run in ((signal.SIGTERM, "left"), (signal.SIGKILL, "killed")):
        cluster.address = "127.0.0.1:0"
        learner = cluster.learn({"learner.updates": 4000}, name=run)
        a, b = cluster.act(f"a-{run}"), cluster.act(f"b-{run}")
        wait_until(lambda: len(cluster.ledger(f"b-{run}")) > 20, learner)
        stop(b, way)
        assert a.wait(timeout=300) == 0, cluster.text()
        if way == signal.SIGKILL:
            wait_until(lambda: (cluster.run(run) / "summary.json").exists())
            time.sleep(1)
            assert learner.poll() is None
            learner.send_signal(signal.SIGTERM)
        assert learner.wait(timeout=30) == 0, cluster.text()
        assert ("b-killed was not told" in (cluster.run(run) / "log.txt").read_text()) == (way == signal.SIGKILL)


def test_bad_input_is_said_on_the_side_that_can_act(cluster, gipo):
    for address in ("nowhere", "127.0.0.1:99999", "0.0.0.0:0", "192.0.2.1:7400"):
        ended = gipo("learn", "classic/stale", "--listen", address)
        assert ended.returncode == 2 and "--listen" in ended.stderr and ended.stderr.count("\n") == 1, ended.stderr
    assert gipo("learn", "classic/stale", "--set", "run.mode=lockstep", "--listen", "127.0.0.1:0").returncode == 2
    refused = gipo("learn", "classic/stale", "--set", "advantage.mode=group", "--listen", "127.0.0.1:0")
    assert refused.returncode == 2 and 'advantage.mode = "group" is not accepted by learn' in refused.stderr
    assert gipo.entries() == []
    ended = gipo("actor", "127.0.0.1:1", "--wait", "0.5")
    assert ended.returncode == 1 and "127.0.0.1:1 does not answer" in ended.stderr
    ended = gipo("actor", "127.0.0.1:1", "--set", "learner.updates=3")
    assert ended.returncode == 2 and "env.python" in ended.stderr
    learner = cluster.learn()
    taken = gipo("learn", "classic/stale", "--name", "second", "--listen", cluster.address)
    assert taken.returncode == 2 and "cannot be used" in taken.stderr
    assert not cluster.run("second").exists()
    actors = [cluster.act(name) for name in "ab"]
    wait_until(lambda: len([a for a in cluster.status()["actors"] if a["connected"]]) == 2, learner)
    third = gipo("actor", cluster.address, "--name", "c", "--wait", "0.5")
    assert third.returncode == 1 and "all 2 places of the run are taken" in third.stderr
    assert all(actor.poll() is None for actor in actors)


@pytest.mark.slow
def test_cart_pole_is_learned_from_remote_actors(cluster, gipo):
    learner = cluster.learn({"run.target_return": 475, "policy.hidden": "[64, 64]", "replay.capacity": 50000})
    actors = [cluster.act("a"), cluster.act("b")]
    assert learner.wait(timeout=600) == 0, cluster.text()
    assert [actor.wait(timeout=60) for actor in actors] == [0, 0]
    assert summary(cluster.run())["ended"] == "solved"


@pytest.fixture
def two_hosts():
    """A network namespace behind a veth pair: 10.213.1.1 there, 10.213.1.2 here."""

    def ip(*words):
        return subprocess.run(["ip", *words], capture_output=True, text=True).returncode == 0

    ip("netns", "del", "gipo-test")
    if not ip("netns", "add", "gipo-test"):
        pytest.skip("network namespaces need root and ip")
    try:
        assert ip("link", "add", "gipot0", "type", "veth", "peer", "name", "gipot1", "netns", "gipo-test")
        assert ip("addr", "add", "10.213.1.2/24", "dev", "gipot0") and ip("link", "set", "gipot0", "up")
        for words in (["addr", "add", "10.213.1.1/24", "dev", "gipot1"], ["link", "set", "gipot1", "up"]):
            assert ip("-n", "gipo-test", *words)
        yield ip
    finally:
        ip("netns", "del", "gipo-test")


@pytest.mark.slow
def test_a_cut_network_loses_nothing(cluster, gipo, two_hosts, tmp_path):
    """Two hosts with certificates, and a cable that is pulled three times for longer than it takes to notice."""
    assert gipo("certs", "certs", "--host", "10.213.1.1", "--actor", "a", "--actor", "b").returncode == 0
    cluster.certs, cluster.address = tmp_path / "certs", "10.213.1.1:0"
    cluster.prefix = ["ip", "netns", "exec", "gipo-test"]
    learner = cluster.learn({"learner.updates": 10000000})
    cluster.prefix = []
    actors = [cluster.act("a"), cluster.act("b")]
    for _ in range(3):
        before = [len(cluster.ledger(name)) for name in "ab"]
        wait_until(lambda: all(len(cluster.ledger(n)) > s + 40 for n, s in zip("ab", before)), learner)
        assert two_hosts("link", "set", "gipot0", "down")
        time.sleep(12)
        cut = [len(cluster.ledger(name)) for name in "ab"]
        assert two_hosts("link", "set", "gipot0", "up")
        begin = time.monotonic()
        wait_until(lambda: all(len(cluster.ledger(n)) > s + 10 for n, s in zip("ab", cut)), learner)
        assert time.monotonic() - begin < 30
    assert all(actor.poll() is None for actor in actors), cluster.text()
    assert stop(learner) == 130, cluster.text()
    for actor in actors:
        stop(actor)
    assert compare(cluster.run(), map(cluster.ledger, "ab"), "received")[1] > 200
    assert all({line["incarnation"] for line in cluster.ledger(name)} == {1} for name in "ab")
