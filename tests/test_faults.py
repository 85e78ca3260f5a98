"""A full disk, a folder that cannot be written, a kill in the middle of a slow write: what was good stays good."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest
from conftest import HANG, stop_after_first_checkpoint, wait_until

from test_resume import resume, run, train, whole


def latest_is_whole(folder):
    """LATEST names a folder whose files have the sizes and names that its manifest says."""
    latest = folder / "checkpoints" / (folder / "checkpoints/LATEST").read_text().strip()
    manifest = json.loads((latest / "manifest.json").read_text())["manifest"]
    return all((latest / name).stat().st_size == entry["size"] for name, entry in manifest["files"].items())


def test_killed_while_checkpoints_are_written_slowly(gipo, tmp_path):
    """The hook sleeps before each step of a write, so that a checkpoint takes far longer than the updates between."""
    slow = os.environ | {"GIPO_TEST_SLOW_DISK_MS": "4"}
    moments = random.Random(1)
    settings = {"learner.updates": 20000, "checkpoint.every_updates": 10}
    words = train(gipo, tmp_path, "slow", **settings)
    whole_latest = inside = 0
    for _ in range(20):
        process = subprocess.Popen(words, env=slow, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: (tmp_path / "slow/checkpoints/LATEST").exists(), process)
        time.sleep(moments.uniform(0.02, 0.2))
        process.kill()
        process.wait()
        inside += any((tmp_path / "slow/checkpoints").glob("*.tmp"))
        whole_latest += latest_is_whole(tmp_path / "slow")
        words = resume(gipo, tmp_path / "slow")
    assert whole_latest == 20
    assert inside > 0, "no kill fell into the write of a checkpoint"
    print(f"20 kills, {inside} of them between the first file and the rename")
    assert "passed over" not in run([*resume(gipo, tmp_path / "slow", "--updates", "1")]).stderr


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 32 megabytes; needs the right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", folder], capture_output=True).returncode != 0:
        pytest.skip("mounting a file system is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_full_disk_leaves_the_last_checkpoint_and_training_goes_on(gipo, small_disk):
    settings = {"learner.updates": 6000, "checkpoint.every_updates": 50, "log.tensorboard": "false"}
    process = subprocess.Popen(train(gipo, small_disk, "full", **settings), stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    folder = small_disk / "full"
    stop_after_first_checkpoint(process, folder)
    # Another program takes all that is left of the disk.
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 65536)
        except OSError:
            pass
    process.send_signal(signal.SIGCONT)
    # Wait for the first warning, then make room again.
    first = process.stderr.readline()
    assert "warning" in first and "No space left on device" in first
    assert latest_is_whole(folder)
    filler.unlink()
    rest = process.stderr.read()
    assert process.wait() == 0, rest
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["ended"], summary["updates"]) == ("finished", 6000)
    # No line was lost while there was no room.
    assert [json.loads(line)["update"] for line in (folder / "metrics.jsonl").open()] == list(range(5, 6001, 5))
    assert latest_is_whole(folder)


def test_checkpoint_folder_that_cannot_be_written_is_a_warning(gipo, tmp_path):
    process = subprocess.Popen(train(gipo, tmp_path, "odd", **{"learner.updates": 4000}), stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    checkpoints = tmp_path / "odd/checkpoints"
    stop_after_first_checkpoint(process, tmp_path / "odd")
    # A file in the place of the folder: also root cannot write there.
    shutil.move(checkpoints, tmp_path / "aside")
    checkpoints.write_text("not a folder")
    process.send_signal(signal.SIGCONT)
    _, messages = process.communicate(timeout=HANG)
    assert process.returncode == 0
    assert "was not written" in messages and str(checkpoints) in messages
    assert (tmp_path / "odd/summary.json").exists()


def test_second_interrupt_ends_at_once_and_leaves_no_temporary_file(gipo, tmp_path):
    process = subprocess.Popen(train(gipo, tmp_path, "twice", **{"learner.updates": 1000000}),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: (tmp_path / "twice/checkpoints/LATEST").exists(), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG) == 130
    assert not list((tmp_path / "twice").rglob("*.tmp"))
    assert json.loads((tmp_path / "twice/summary.json").read_text())["ended"] == "interrupted"
    whole(resume(gipo, tmp_path / "twice", "--updates", str(updates_done(tmp_path / "twice"))))


def updates_done(folder):
    return json.loads((folder / "summary.json").read_text())["updates"]
