"""Many actors at one learner, networks that are slow, disks that are full, tasks of other kinds. Needs a build with
GIPO_GRPC."""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

import pytest

from conftest import BUILD, ROOT, settings, summary, wait_until
from test_cluster import cluster, compare, grpc_built, stop, with_grpc  # noqa: F401  fixtures
from test_cluster_security import resident_kb

LOAD_SECONDS = float(os.environ.get("GIPO_LOAD_SECONDS", "120"))
ACTORS, DELAY_MS = 512, 250


def old_frac(run):
    """Of the last fifth of the run."""
    values = [json.loads(line)["old_frac"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    return statistics.mean(values[-len(values) // 5 :])


@pytest.mark.slow
def test_512_slow_actors_are_served_alike_and_the_dial_holds(cluster, gipo):  # noqa: F811
    updates = int(LOAD_SECONDS * ACTORS * 1000 / DELAY_MS / 4)
    options = {"staleness.actors": ACTORS, "env.count": 1, "learner.updates": updates, "learner.batch_size": 64,
               "replay.capacity": 400_000, "staleness.env_steps_per_update": 4, "staleness.regime": "custom",
               # A segment is sent when it is closed: long ones of slow environments are old when they come, near or far.
               "replay.segment_length": 8, "checkpoint.every_updates": 20_000, "log.every_updates": 100, "policy.hidden": "[16, 16]"}
    learner = cluster.start("learn", "classic/stale", "--name", "far", "--listen", "127.0.0.1:17512", "--quiet",
                            *settings(options), log="learner.log")
    wait_until(lambda: "listening" in (cluster.run("far") / "log.txt").read_text()
               if (cluster.run("far") / "log.txt").exists() else False, learner)
    load = subprocess.Popen([BUILD / "tests/remote_load", "actors", "127.0.0.1:17512", "-", str(ACTORS), str(DELAY_MS)],
                            stdout=subprocess.PIPE, text=True)
    begun, memory, threads = time.monotonic(), [], []
    while learner.poll() is None:
        time.sleep(2)
        if learner.poll() is None:
            memory.append((time.monotonic() - begun, resident_kb(learner)))
            threads.append(len(os.listdir(f"/proc/{learner.pid}/fd")))
    assert learner.returncode == 0, cluster.text()
    said = json.loads(load.communicate(timeout=60)[0])
    # As many environments with fewer threads.
    options |= {"staleness.actors": 8, "env.count": ACTORS // 8}
    local = gipo("train", "classic/stale", "--name", "near", "--quiet", "--set", "run.mode=async", *settings(options))
    assert local.returncode == 0, local.stderr
    # The replay fills until it holds replay.capacity; what was made once is then used again.
    filled = [kb for at, kb in memory if at > 0.5 * memory[-1][0]]
    row = said | {"old_frac": old_frac(cluster.run("far")), "old_frac_local": old_frac(cluster.run("near")),
                  "memory_kb": [filled[0], filled[-1]], "seconds": round(memory[-1][0])}
    print(json.dumps(row))
    assert said["rejoined"] == 0 and said["steps_least"] > 0.8 * said["steps_median"], row
    assert abs(row["old_frac"] - row["old_frac_local"]) < 0.02, row
    later = threads[len(threads) // 2 : -2]  # all have come, and none has gone
    assert max(later) - min(later) < 20, "descriptors grow"
    assert filled[-1] < 1.1 * filled[0] + 4096, row


class SlowWire:
    """A way to the learner that takes 200 ms each way and now and then loses a packet, which TCP sends again later."""

    def __init__(self, address, seconds=0.2, lost=0.01, again=0.6):
        self.host, self.port = address.rsplit(":", 1)
        self.seconds, self.lost, self.again, self.open = seconds, lost, again, set()
        self.ready = threading.Event()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()
        self.ready.wait(10)

    def work(self):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.connect, "127.0.0.1", 0))
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.ready.set()
        self.loop.run_forever()

    async def connect(self, reader, writer):
        import random

        try:
            far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            return writer.close()
        both = {writer.transport, far_writer.transport}
        self.open |= both

        async def carry(source, sink):
            queue, chance = asyncio.Queue(), random.Random(1)

            async def deliver():
                while True:
                    due, data = await queue.get()
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    if data is None or sink.is_closing():  # torn
                        sink.close()
                        return
                    sink.write(data)

            task, last = asyncio.create_task(deliver()), 0.0
            try:
                while data := await source.read(1400):
                    late = self.again if chance.random() < self.lost else 0.0
                    last = max(last, time.monotonic() + self.seconds + late)  # what follows waits for it
                    queue.put_nowait((last, data))
            except OSError:
                pass
            queue.put_nowait((time.monotonic(), None))
            await task

        await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer), return_exceptions=True)
        self.open -= both

    def tear(self):
        """All connections end in the middle of what they carry."""
        self.loop.call_soon_threadsafe(lambda: [transport.abort() for transport in self.open])

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)


def test_a_slow_wire_that_loses_packets_loses_no_segment(cluster):  # noqa: F811
    learner = cluster.learn()
    wire = SlowWire(cluster.address)
    near, cluster.address = cluster.address, wire.address
    actors = [cluster.act(name) for name in "ab"]
    wait_until(lambda: all(len(cluster.ledger(name)) > 60 for name in "ab"), learner)
    cluster.address = near
    assert {line["incarnation"] for name in "ab" for line in cluster.ledger(name)} == {1}
    assert cluster.status()["refusals"] == 0
    for actor in actors:
        stop(actor)
    assert stop(learner) == 130, cluster.text()
    wire.close()
    assert compare(cluster.run(), map(cluster.ledger, "ab"), "received")[1] > 20


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "gipo-test", folder], capture_output=True).returncode:
        pytest.skip("needs to be root, to mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", folder])


def test_a_full_disk_at_the_learner_is_said_and_nothing_received_is_lost(cluster, small_disk):  # noqa: F811
    options = {"run.dir": small_disk, "checkpoint.every_updates": 500, "replay.capacity": 200000}
    learner = cluster.learn(options)
    log = small_disk / "run/log.txt"
    actors = [cluster.act(name) for name in "ab"]
    saved = lambda: sum("saved" in line for name in "ab" for line in cluster.ledger(name))
    wait_until(lambda: saved() > 0, learner)
    fill = subprocess.Popen(["sh", "-c", "while :; do cat /dev/zero >>filler; sleep 0.1; done"], cwd=small_disk,
                            stderr=subprocess.DEVNULL, start_new_session=True)
    wait_until(lambda: "No space left" in cluster.text(), learner)
    before, made = saved(), len(cluster.ledger("a"))
    wait_until(lambda: len(cluster.ledger("a")) > made + 100, learner)  # training goes on
    assert saved() <= before + 2, "saved without room"  # one was under way
    os.killpg(fill.pid, signal.SIGKILL)
    fill.wait()
    (small_disk / "filler").unlink()
    wait_until(lambda: saved() > before + 2, learner)
    assert all(actor.poll() is None for actor in actors)
    subprocess.run(["mount", "-o", "remount,size=200m", small_disk], check=True)
    for actor in actors:
        stop(actor)
    assert stop(learner) == 130, cluster.text()
    assert log.exists()
    assert compare(small_disk / "run", map(cluster.ledger, "ab"), "received")[1] > 100


@pytest.mark.parametrize("task", ["gymnasium:CartPole-v1", "python:pictures:Catch"])
def test_tasks_of_python_and_images_have_remote_actors(cluster, task, monkeypatch):  # noqa: F811
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests/bridge"))
    pytest.importorskip("gymnasium")
    learner = cluster.learn({"env.id": task, "env.python": sys.executable, "learner.updates": 300, "env.workers": 1,
                             "env.reward_scale": 1})
    host = ["--set", f"env.python={sys.executable}", "--set", "env.workers=1"]
    actors = []
    for name in "ab":  # each has joined before the run can end without it
        actors.append(cluster.act(name, *host))
        wait_until(lambda name=name: cluster.ledger(name), actors[-1])
        actors[-1].send_signal(signal.SIGSTOP)
    for actor in actors:
        actor.send_signal(signal.SIGCONT)
    assert learner.wait(timeout=300) == 0, cluster.text()
    assert [actor.wait(timeout=60) for actor in actors] == [0, 0], cluster.text()
    assert summary(cluster.run())["ended"] == "finished"
    made = {tuple(segment[:2]) for name in "ab" for line in cluster.ledger(name) for segment in line.get("segments", [])}
    assert len(made) > 10
