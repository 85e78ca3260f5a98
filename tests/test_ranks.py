"""Several ranks for one learner: `learner.ranks`, and ranks that others start. Needs a build with GIPO_TORCH."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import HANG, read_safetensors, settings, wait_until
from test_resume import contents, resume, train, whole
from test_torch import torch_built, with_torch  # noqa: F401

SMALL = {"learner.backend": "torch", "learner.updates": 50, "learner.batch_size": 60, "policy.hidden": "[16,16]",
         "replay.segment_length": 16, "eval.episodes": 1, "log.tensorboard": "false", "checkpoint.every_updates": 20}  # fmt: skip
# Long enough to be met on the way.
LONG = {"learner.backend": "torch", "learner.ranks": 2, "learner.updates": 300, "eval.every_updates": 90}


def distance(ours, wanted):
    """The largest relative difference of a part of two policies."""
    ours, wanted = (read_safetensors(run / "policy.safetensors") for run in (ours, wanted))
    parts = [[np.concatenate([v.ravel() for k, v in p.items() if k.startswith(part)]) for p in (ours, wanted)]
             for part in ("policy.", "critic.")]  # fmt: skip
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in parts)


def ranks_of(launcher):
    """Its processes by rank."""
    found = {}
    for child in map(int, Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()):
        with contextlib.suppress(OSError):  # it has just ended
            rank = re.search(r"(?:^|\0)RANK=(\d+)", Path(f"/proc/{child}/environ").read_text())
            if rank:
                found[int(rank[1])] = child
    return found


@pytest.mark.parametrize(
    ("options", "numbers"),
    [({}, (2, 4)), ({"policy.memory": "gru", "policy.memory_size": 8}, (3,))],
    ids=["plain", "memory"],
)
def test_ranks_learn_as_one_with_the_whole_batch(gipo, with_torch, options, numbers):  # noqa: F811
    alone = gipo.train("alone", SMALL | options)
    for ranks in numbers:
        run = gipo.train(f"of-{ranks}", SMALL | options | {"learner.ranks": ranks})
        assert 0 < distance(run, alone) < 1e-5
        episodes = [(r / "episodes.jsonl").read_bytes() for r in (run, alone)]
        assert episodes[0] == episodes[1], "every transition must be in the replay once"


@pytest.fixture(scope="module")
def undisturbed(binary, torch_built, tmp_path_factory):  # noqa: F811
    if not torch_built:
        pytest.skip("this program was built without libtorch: make test-torch")
    folder = tmp_path_factory.mktemp("ranks")

    class Program:
        pass

    Program.binary = binary
    whole(train(Program, folder, "alone", **LONG))
    return contents(folder / "alone")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_all_and_the_run_goes_on_with_the_same_bytes(gipo, tmp_path, undisturbed, rank):
    words = train(gipo, tmp_path, "killed", **LONG)
    launcher = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    for after in (40, 140):
        wait_until(lambda after=after: any(int(p.name) >= after for p in (tmp_path / "killed/checkpoints").glob("[0-9]*[0-9]")), launcher)
        before = ranks_of(launcher)
        os.kill(before[rank], signal.SIGKILL)
        wait_until(lambda before=before: not set(ranks_of(launcher).values()) & set(before.values()), launcher)
    _, said = launcher.communicate(timeout=HANG)
    assert launcher.returncode == 0, said
    assert said.count(f"rank {rank} of 2 was killed by signal 9; all ranks start again from checkpoint") == 2, said
    assert contents(tmp_path / "killed") == undisturbed


def test_an_interrupted_run_is_resumed_with_the_same_bytes(gipo, tmp_path, undisturbed):
    launcher = subprocess.Popen(train(gipo, tmp_path, "stopped", **LONG), stderr=subprocess.PIPE, text=True)
    wait_until(lambda: (tmp_path / "stopped/checkpoints/LATEST").exists(), launcher)
    launcher.send_signal(signal.SIGINT)
    _, said = launcher.communicate(timeout=HANG)
    assert launcher.returncode == 130, said
    whole(resume(gipo, tmp_path / "stopped"))
    assert contents(tmp_path / "stopped") == undisturbed


def test_a_launcher_that_is_killed_takes_its_ranks_with_it(gipo, tmp_path, with_torch):  # noqa: F811
    launcher = subprocess.Popen(train(gipo, tmp_path, "left", **LONG), stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "left/checkpoints/LATEST").exists(), launcher)
    ranks = ranks_of(launcher)
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks.values()))


def test_ranks_that_others_start_find_each_other(gipo, tmp_path, undisturbed):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    words = train(gipo, tmp_path, "apart", **LONG)
    words = words[: words.index("learner.ranks=2") - 1] + words[words.index("learner.ranks=2") + 1 :]  # WORLD_SIZE says it
    both = [subprocess.Popen(words, env=os.environ | place | {"RANK": str(r)}, stderr=subprocess.PIPE, text=True) for r in (1, 0)]
    for process in both:
        _, said = process.communicate(timeout=HANG)
        assert process.returncode == 0, said
    assert contents(tmp_path / "apart") == undisturbed


def test_cards_exchange_by_nccl(gipo, tmp_path, with_torch):  # noqa: F811
    """Two ranks on one card, which NCCL takes for the cards of two hosts."""
    if not json.loads(gipo("doctor", "--machine", "--json").stdout)["cuda_devices"]:
        pytest.skip("no CUDA device")
    options = SMALL | {"learner.device": "cuda", "learner.products": "float"}
    alone = gipo.train("alone", options)
    for name in ("first", "second"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        place = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                 "NCCL_SOCKET_IFNAME": "lo"}  # fmt: skip
        words = train(gipo, gipo.folder / "runs", name, **options)
        both = [subprocess.Popen(words, env=os.environ | place | {"RANK": str(r), "NCCL_HOSTID": f"host-{r}"},
                                 stderr=subprocess.PIPE, text=True) for r in (0, 1)]  # fmt: skip
        for process in both:
            _, said = process.communicate(timeout=HANG)
            assert process.returncode == 0, said
    runs = gipo.folder / "runs"
    assert distance(runs / "first", alone) < 1e-4
    assert contents(runs / "first") == contents(runs / "second")


def test_what_is_not_accepted_is_named(gipo, with_torch):  # noqa: F811
    there = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "GIPO_RANK_WAIT": "1"}
    ranks = {"learner.backend": "torch", "learner.ranks": 2}
    for options, environment, words in [
        (ranks | {"learner.backend": "cpu"}, {}, 'learner.ranks = 2 needs learner.backend = "torch", and it is "cpu"'),
        (ranks | {"learner.batch_size": 1}, {}, "learner.ranks = 2 is not accepted: learner.batch_size = 1"),
        (ranks | {"learner.ranks": 0}, {}, "learner.ranks"),
        (ranks | {"learner.device": "cuda:1"}, {}, 'learner.device = "cuda:1" is not accepted with learner.ranks = 2'),
        (ranks, there | {"RANK": "2"}, 'RANK = "2" is not accepted in the environment: wanted a number from 0 to 1'),
        (ranks, there | {"RANK": "x"}, 'RANK = "x" is not accepted'),
        (ranks, there | {"WORLD_SIZE": "4"}, "learner.ranks = 2 is not accepted: WORLD_SIZE = 4 ranks were started"),
        (ranks, there | {"MASTER_PORT": ""}, 'MASTER_PORT = "" is not accepted'),
        (ranks, there | {"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        (ranks, there | {"RANK": "1"}, 'MASTER_ADDR = "127.0.0.1", MASTER_PORT = 1: rank 1 of 2 found nobody who answers there'),
    ]:
        ended = subprocess.run([gipo.binary, "train", *settings(ranks | options)], cwd=gipo.folder, capture_output=True, text=True,
                               env=os.environ | environment, timeout=HANG)  # fmt: skip
        assert ended.returncode == 2, (options, environment, ended.stderr)
        assert words in ended.stderr and ended.stderr.count("\n") == 1, ended.stderr
    assert gipo.entries() == []


def test_a_rank_without_rank_0_says_so_when_the_wait_is_over_and_not_later(gipo, with_torch):  # noqa: F811
    def seconds(wait):
        there = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "GIPO_RANK_WAIT": str(wait)}
        begun = time.monotonic()
        ended = subprocess.run([gipo.binary, "train", *settings({"learner.backend": "torch"})], cwd=gipo.folder,
                               capture_output=True, text=True, env=os.environ | there, timeout=HANG)  # fmt: skip
        assert f"rank 1 of 2 found nobody who answers there within {wait} s" in ended.stderr, ended.stderr
        return time.monotonic() - begun

    # The program itself takes its time to start, more so on a busy machine.
    assert 7 < seconds(11) - seconds(1) < 17
