"""What the tests of the command line share: the program, started in an empty folder of its own."""

import fcntl
import json
import os
import signal
import struct
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / os.environ.get("GIPO_BUILD_DIR", "build/release")

# Where these tests were started with Ctrl-C ignored, so would be what they start: a handler is not passed on, "ignored" is.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Seconds after which something hangs. It is many times what any test takes, so that a busy machine breaks none: how fast
# the program is belongs in the benchmarks.
HANG = 600

# A run of well under a second.
TINY = {
    "policy.hidden": "[16, 16]",
    "learner.batch_size": 64,
    "learner.updates": 200,
    "replay.segment_length": 16,
    "eval.episodes": 3,
}


def wait_for(condition, process):
    """Until the condition holds, while the process lives."""
    end = time.monotonic() + HANG
    while not condition():
        assert process.poll() is None and time.monotonic() < end, process.poll()
        time.sleep(0.01)


def alive(folder):
    """Workers that have reported there and still live: each holds the lock of the file with its number as name."""
    found = []
    for path in Path(folder).glob("[0-9]*"):
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(int(path.name))
    return found


def settings(options):
    """--set arguments from a dictionary."""
    return [word for key, value in options.items() for word in ("--set", f"{key}={value}")]


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__")
    body = data[8 + length :]
    types = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "U8": "u1"}
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], types[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
    }


class Gipo:
    """Runs the program in `folder` and hands back exit status, stdout and stderr."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder

    def __call__(self, *arguments, timeout=HANG):
        return subprocess.run(
            [self.binary, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, timeout=timeout
        )

    def train(self, name, options=None, *arguments, timeout=HANG):
        """Trains to the end and returns the run folder; TINY where `options` does not say otherwise."""
        done = self(
            "train", *arguments, "--quiet", "--name", name, *settings(TINY | (options or {})), timeout=timeout
        )
        assert done.returncode == 0, done.stderr
        return Path(self.folder, "runs", name)

    def entries(self):
        return sorted(str(path.relative_to(self.folder)) for path in Path(self.folder).rglob("*"))


@pytest.fixture(scope="session")
def binary():
    path = BUILD / "gipo"
    if not path.exists():
        pytest.fail(f"{path} is not built (GIPO_BUILD_DIR names the build folder)", pytrace=False)
    return path


@pytest.fixture
def gipo(binary, tmp_path):
    return Gipo(binary, tmp_path)


def wait_until(condition, process=None):
    """Until the condition holds, while the process lives."""
    deadline = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < deadline, "it hangs"
        assert process is None or process.poll() is None or condition(), "the process has ended"
        time.sleep(0.002)


def stop_after_first_checkpoint(process, run):
    """The process stands still from then on, until it gets SIGCONT or is killed: it cannot end before the test goes on."""
    wait_until(lambda: (run / "checkpoints/LATEST").exists(), process)
    process.send_signal(signal.SIGSTOP)


def summary(run):
    return json.loads((run / "summary.json").read_text())


def json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]
