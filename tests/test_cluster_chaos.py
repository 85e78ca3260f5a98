"""Everything that can go wrong between hosts, at random and again and again. Needs a build with GIPO_GRPC, Ray, root and `ip`.

GIPO_CHAOS_SECONDS=900 makes it as long as docs/cluster.md says. The same training is then repeated three times without faults.
"""

import json
import os
import random
import signal
import statistics
import time
from pathlib import Path

import pytest

from conftest import HANG, settings, wait_until
from gipo.ray import connect, place_actor
from gipo.ray_nodes import last_line
from lossy_cable import LossyCable
from test_cluster import SMALL, cluster, grpc_built, marks, segments_of, two_hosts, with_grpc  # noqa: F401  fixtures
from test_ray import Nodes, ray
from test_ray import wait_until as wait_seldom

SECONDS = float(os.environ.get("GIPO_CHAOS_SECONDS", "60"))
DISTURBED = int(SECONDS * 1200)  # updates that take about so long with faults
UPDATES = DISTURBED + 60_000  # and some for all to come back, for which the far ones need a while
NEAR, FAR = ["a", "b"], ["c", "d"]  # straight over a cable, and over one that is slow and loses packets
ON_RAY = ["e", "f"]  # over the near cable, on nodes of Ray
NEAR_ADDRESS, FAR_ADDRESS = "10.213.1.1", "10.213.2.1"


@pytest.fixture
def lossy_cable(two_hosts):  # noqa: F811
    if not os.path.exists("/dev/net/tun"):
        pytest.skip("a cable that loses packets needs /dev/net/tun")
    made = LossyCable("gipo-test")
    yield made
    made.close()


class RayActors:
    """Actors that Ray places on two nodes, which can be lost."""

    def __init__(self):
        self.nodes, self.tasks = Nodes(head_cpus=0), {}  # names of actors by their tasks
        ray.init(address=self.nodes.cluster.address, log_to_driver=False)
        connect(len(ON_RAY))

    def place(self, name, binary, address, certs, ledger):
        files = {file.name: file.read_bytes() for file in certs.iterdir()}
        self.tasks[place_actor(ray, str(binary), address, files, str(ledger))] = name

    def lose(self, node):
        """As if its power went."""
        for pid, place in self.nodes.programs("actor").items():
            if place == node.node_id:
                os.kill(pid, signal.SIGKILL)
        self.nodes.lose(node)

    def wait_without(self, node):
        """Until all actors are on other nodes; then there is a new one for it."""
        places = lambda: list(self.nodes.programs("actor").values())
        wait_seldom(lambda: node.node_id not in (on := places()) and len(on) == len(self.tasks))
        self.nodes.add()

    def end(self):
        done, late = ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=60)
        # An actor's program works in a folder of its own, with what it says (ray_nodes.run_actor).
        said = [last_line(Path(f"/proc/{pid}/cwd/actor.txt")) for pid in self.nodes.programs("actor")]
        assert not late, f"actors {[self.tasks[task] for task in late]} have not ended; their programs say: {said}"
        assert ray.get(done) == ["ended"] * len(self.tasks)

    def close(self):
        ray.shutdown()
        self.nodes.cluster.shutdown()


@pytest.fixture
def ray_actors(with_grpc):  # noqa: F811
    made = RayActors()
    yield made
    made.close()


def promised(ledger, alive):
    """Segments that must be in the replay: of the last incarnation of a living actor what was received, else what was saved."""
    entries = list(marks(ledger).values())
    for i, entry in enumerate(entries):
        until = entry["received" if alive and i == len(entries) - 1 else "saved"]
        yield from (segment for number, made in entry["made"].items() if number < until for segment in made)


def mean_return(run):
    """Of the training episodes, after the first quarter of the updates."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["update"] == UPDATES
    return statistics.mean(line["return_mean"] for line in lines if line["update"] > UPDATES / 4)


def policy_return(gipo, run):
    """Of the policy that the training ends with."""
    played = gipo("eval", run, "--sampled", "--episodes", "200", "--json")
    assert played.returncode == 0, played.stderr
    return json.loads(played.stdout)["eval_return"]["mean"]


@pytest.mark.slow
def test_a_quarter_of_an_hour_of_faults(cluster, gipo, two_hosts, lossy_cable, ray_actors, tmp_path):  # noqa: F811
    names = NEAR + FAR + ON_RAY
    hosts = [word for host in (NEAR_ADDRESS, FAR_ADDRESS) for word in ("--host", host)]
    assert gipo("certs", "certs", *hosts, *[word for name in names for word in ("--actor", name)]).returncode == 0
    cluster.certs, cluster.address = tmp_path / "certs", f"{NEAR_ADDRESS}:0"
    # The schedules of learning rate and entropy end with learner.updates: runs of different lengths cannot be compared.
    options = {"staleness.actors": len(names), "checkpoint.every_updates": 100, "replay.capacity": 20_000_000,
               "log.every_updates": 100, "policy.hidden": "[64, 64]", "learner.batch_size": 256, "learner.updates": UPDATES}

    def learn():
        cluster.prefix, cluster.address = ["ip", "netns", "exec", "gipo-test"], cluster.address.replace(NEAR_ADDRESS, "0.0.0.0")
        process = cluster.learn(options)
        cluster.prefix, cluster.address = [], cluster.address.replace("0.0.0.0", NEAR_ADDRESS)
        return process

    def act(name):
        near = cluster.address
        cluster.address = near.replace(NEAR_ADDRESS, FAR_ADDRESS) if name in FAR else near
        process = cluster.act(name)
        cluster.address = near
        return process

    learner = learn()
    actors = {name: act(name) for name in NEAR + FAR}
    for name in ON_RAY:
        ray_actors.place(name, cluster.binary, cluster.address, cluster.certs / name, tmp_path / f"{name}.ledger")
    chance, waits, torn, back = random.Random(7), {}, 0, []
    updates = lambda: (cluster.status() or {}).get("update", -1)
    wait_until(lambda: updates() > 0)
    begun = time.monotonic()
    while True:
        rest = time.monotonic() + chance.uniform(1, 8)
        while time.monotonic() < rest and updates() < DISTURBED:
            time.sleep(0.5)
        if updates() >= DISTURBED:
            break
        fault = chance.choice(["actor", "actor", "learner", "cable", "connections", "node"])
        mended = time.monotonic()  # the moment of the fault; of a cut network when it is whole again
        if fault == "actor":
            name = chance.choice(list(actors))
            actors[name].kill()
            actors[name].wait()
            actors[name] = act(name)
        elif fault == "learner":
            learner.kill()
            learner.wait()
            learner = learn()
        elif fault == "cable":
            cut = chance.choice([["gipot0"], [lossy_cable.here], ["gipot0", lossy_cable.here]])
            assert all(two_hosts("link", "set", end, "down") for end in cut)
            time.sleep(chance.uniform(5, 30))
            assert all(two_hosts("link", "set", end, "up") for end in cut)
            mended = time.monotonic()
        elif fault == "connections":
            torn += lossy_cable.tear()
        else:
            node = chance.choice(ray_actors.nodes.others)
            ray_actors.lose(node)
        wait_until(lambda: updates() >= 0)
        at = updates()
        wait_until(lambda at=at: updates() > at)
        waits.setdefault(fault, []).append(time.monotonic() - mended)
        if fault == "node":
            ray_actors.wait_without(node)
            back.append(time.monotonic() - mended)
    seconds = time.monotonic() - begun
    # All are back, and have been heard.
    heard = {name: len(cluster.ledger(name)) for name in names}
    wait_until(lambda: all(len(cluster.ledger(name)) > heard[name] + 5 for name in names), learner)
    alive = {name: True for name in ON_RAY} | {name: actor.poll() is None for name, actor in actors.items()}
    assert learner.wait(timeout=HANG) == 0, cluster.text()
    assert [actor.wait(timeout=60) for actor in actors.values()] == [0] * 4, cluster.text()
    ray_actors.end()
    held = segments_of(cluster.run())
    made = {s for name in names for entry in marks(cluster.ledger(name)).values() for made in entry["made"].values() for s in made}
    owed = {s for name in names for s in promised(cluster.ledger(name), alive[name])}
    steps = lambda segments: sum(s[3] for s in segments)
    row = {"seconds": round(seconds), "packets": lossy_cable.carried, "packets_lost": lossy_cable.dropped, "connections_torn": torn,
           "faults": {fault: len(times) for fault, times in waits.items()},
           "longest_wait": {fault: round(max(times), 1) for fault, times in waits.items()},
           "node_back": round(max(back, default=0), 1), "transitions": steps(held), "promised": steps(owed),
           "twice": len(held) - len(set(held)),
           "lost": len(owed - set(held)), "strange": len(set(held) - made)}
    print(json.dumps(row), flush=True)
    assert row["twice"] == row["lost"] == row["strange"] == 0 and row["promised"] > 10_000, row
    assert max(row["longest_wait"].values()) < 10, row
    assert torn or "connections" not in waits, "ss -K has ended no connection: does the kernel have INET_DIAG_DESTROY?"
    examined = gipo("doctor", cluster.run())
    assert examined.returncode == 0, examined.stdout
    # The same training without faults and without a network.
    for seed in (1, 2, 3):
        ended = gipo("train", "classic/stale", "--name", f"undisturbed-{seed}", "--quiet", "--seed", seed,
                     *settings(SMALL | options | {"run.mode": "async"}), timeout=4 * SECONDS + HANG)  # fmt: skip
        assert ended.returncode == 0, ended.stderr
    runs = [cluster.run(), *(cluster.run(f"undisturbed-{seed}") for seed in (1, 2, 3))]
    row = {"updates": UPDATES, "returns": [round(mean_return(run), 1) for run in runs],
           "policies": [round(policy_return(gipo, run), 1) for run in runs]}  # fmt: skip
    print(json.dumps(row), flush=True)
    for disturbed, *undisturbed in (row["returns"], row["policies"]):
        assert disturbed > 0.98 * statistics.mean(undisturbed), row
