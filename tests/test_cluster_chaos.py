"""Everything that can go wrong between hosts, at random and again and again. Needs a build with GIPO_GRPC, root and `ip`.

GIPO_CHAOS_SECONDS=900 makes it as long as docs/cluster.md says.
"""

import json
import os
import random
import statistics
import time

import pytest

from conftest import settings, wait_until
from test_cluster import SMALL, cluster, grpc_built, marks, segments_of, stop, two_hosts, with_grpc  # noqa: F401  fixtures
from test_cluster_load import SlowWire

SECONDS = float(os.environ.get("GIPO_CHAOS_SECONDS", "60"))
NEAR, FAR = ["a", "b"], ["c", "d"]  # straight over the cable, and by a slow wire that loses packets


def promised(ledger, alive):
    """Segments that must be in the replay: of the last incarnation of a living actor what was received, else what was saved."""
    entries = list(marks(ledger).values())
    for i, entry in enumerate(entries):
        until = entry["received" if alive and i == len(entries) - 1 else "saved"]
        yield from (segment for number, made in entry["made"].items() if number < until for segment in made)


def returns(run):
    """(update, mean return of the last episodes) of each line."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [(line["update"], line["return_mean"]) for line in lines if line["return_mean"] is not None]


@pytest.mark.slow
def test_a_quarter_of_an_hour_of_faults(cluster, gipo, two_hosts, tmp_path):  # noqa: F811
    names = NEAR + FAR
    hosts = [word for host in ("10.213.1.1", "127.0.0.1") for word in ("--host", host)]
    assert gipo("certs", "certs", *hosts, *[word for name in names for word in ("--actor", name)]).returncode == 0
    cluster.certs, cluster.address = tmp_path / "certs", "10.213.1.1:0"
    options = {"staleness.actors": 4, "checkpoint.every_updates": 100, "replay.capacity": 20_000_000, "log.every_updates": 100,
               "policy.hidden": "[64, 64]", "learner.batch_size": 256}

    def learn():
        cluster.prefix = ["ip", "netns", "exec", "gipo-test"]
        process = cluster.learn(options)
        cluster.prefix = []
        return process

    def act(name):
        straight, cluster.address = cluster.address, wire.address if name in FAR else cluster.address
        process = cluster.act(name)
        cluster.address = straight
        return process

    learner = learn()
    wire = SlowWire(cluster.address)
    actors = {name: act(name) for name in names}
    chance, waits = random.Random(7), {}
    updates = lambda: (cluster.status() or {}).get("update", -1)
    wait_until(lambda: updates() > 0)
    begun = time.monotonic()
    while time.monotonic() - begun < SECONDS:
        time.sleep(chance.uniform(1, 8))
        fault = chance.choice(["actor", "actor", "learner", "cable", "wire"])
        mended = time.monotonic()  # the moment of the fault; of a cut network when it is whole again
        if fault == "actor":
            name = chance.choice(names)
            actors[name].kill()
            actors[name].wait()
            actors[name] = act(name)
        elif fault == "learner":
            learner.kill()
            learner.wait()
            learner = learn()
        elif fault == "cable":
            assert two_hosts("link", "set", "gipot0", "down")
            time.sleep(chance.uniform(5, 30))
            assert two_hosts("link", "set", "gipot0", "up")
            mended = time.monotonic()
        else:
            wire.tear()
        wait_until(lambda: updates() >= 0)
        at = updates()
        wait_until(lambda at=at: updates() > at)
        waits.setdefault(fault, []).append(time.monotonic() - mended)
    # All are back, and have been heard.
    heard = {name: len(cluster.ledger(name)) for name in names}
    wait_until(lambda: all(len(cluster.ledger(name)) > heard[name] + 5 for name in names), learner)
    alive = {name: actor.poll() is None for name, actor in actors.items()}
    assert stop(learner) == 130, cluster.text()
    for actor in actors.values():
        stop(actor)
    wire.close()
    held = segments_of(cluster.run())
    made = {s for name in names for entry in marks(cluster.ledger(name)).values() for made in entry["made"].values() for s in made}
    owed = {s for name in names for s in promised(cluster.ledger(name), alive[name])}
    steps = lambda segments: sum(s[3] for s in segments)
    row = {"faults": {fault: len(times) for fault, times in waits.items()},
           "longest_wait": {fault: round(max(times), 1) for fault, times in waits.items()},
           "transitions": steps(held), "promised": steps(owed), "twice": len(held) - len(set(held)),
           "lost": len(owed - set(held)), "strange": len(set(held) - made)}
    print(json.dumps(row), flush=True)
    assert row["twice"] == row["lost"] == row["strange"] == 0 and row["promised"] > 10_000, row
    assert max(row["longest_wait"].values()) < 10, row
    examined = gipo("doctor", cluster.run())
    assert examined.returncode == 0, examined.stdout
    # The same updates without faults.
    last = min(returns(cluster.run())[-1][0], int(SECONDS * 100))
    options |= {"learner.updates": last}
    undisturbed = gipo("train", "classic/stale", "--name", "undisturbed", "--quiet", "--set", "run.mode=async",
                       *settings(SMALL | options))
    assert undisturbed.returncode == 0, undisturbed.stderr
    mean = lambda run: statistics.mean(r for update, r in returns(cluster.run(run)) if last / 4 < update <= last)
    row = {"updates": last, "return": round(mean("run"), 1), "undisturbed": round(mean("undisturbed"), 1)}
    print(json.dumps(row), flush=True)
    assert row["return"] > 0.85 * row["undisturbed"], row
