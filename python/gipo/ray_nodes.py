"""What `gipo.ray` runs on the nodes of a cluster: the program `gipo` as a child of Ray's workers.

Sent to the nodes by value: a node needs Ray and the program, not this package. Nothing here imports the rest of it.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

START_SECONDS = 300.0  # for a learner to listen: it may have a large checkpoint to read
SHORT_SECONDS = 20.0  # a program that ends sooner has failed at its start
MOST_SHORT_LIVES = 5  # in a row
PIECE_BYTES = 16 << 20  # of a run folder that is sent to the driver
PR_SET_PDEATHSIG = 1


class ProgramFailed(Exception):
    """The program ended in a way that another attempt would not change; the message is the program's own."""


def program(wanted: str) -> str:
    """The program on this node: at the path that the driver has it, or the first on PATH."""
    found = wanted if os.access(wanted, os.X_OK) else shutil.which("gipo")
    if not found:
        raise ProgramFailed(f"no program gipo on node {os.uname().nodename}: neither {wanted} nor on PATH")
    return found


def start_program(words: Sequence[str], output: Any, cwd: str, last_signal: int) -> subprocess.Popen[bytes]:
    """Starts it so that it gets `last_signal` when this worker ends, however that happens."""
    import ray

    prctl = ctypes.CDLL(None).prctl
    node = ray.get_runtime_context().get_node_id()

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, last_signal)
        os.setpgid(0, 0)

    return subprocess.Popen(
        words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, preexec_fn=prepare,
        env=os.environ | {"GIPO_RAY_NODE": node},
    )


def programs(word: str, nodes: Collection[str]) -> dict[int, str]:
    """Processes `gipo WORD` on this machine that were started on one of these nodes, and the node each is on."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            variables = dict(v.split(b"=", 1) for v in (folder / "environ").read_bytes().split(b"\0") if b"=" in v)
        except OSError:  # it has ended, or is another user's
            continue
        node = variables.get(b"GIPO_RAY_NODE", b"").decode()
        if node in nodes and words[0].endswith(b"/gipo") and words[1:2] == [word.encode()]:
            found[int(folder.name)] = node
    return found


def last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1].removeprefix("gipo: ") if lines else "no message"


def end_program(process: subprocess.Popen[bytes], number: int, seconds: float) -> int:
    """Asks it to end; kills it where it does not."""
    if process.poll() is None:
        process.send_signal(number)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


class LearnerNode:
    """A learner on the node where Ray has placed this. One thread calls it."""

    def __init__(self, binary: str, config: str, words: Sequence[str], run_dir: str) -> None:
        import ray

        self._host = ray.util.get_node_ip_address()
        self.run_dir, self._binary, self._words = Path(run_dir), program(binary), list(words)
        self._folder = Path(tempfile.mkdtemp(prefix="gipo-learner-"))
        (self._folder / "config.toml").write_text(config)
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._starts = 0, 0
        self._asked = 0.0  # when the learner last was, about its actors
        self._actors: list[dict[str, Any]] = []

    def make_certificates(self, names: Sequence[str]) -> dict[str, dict[str, bytes]]:
        """An authority of this learner's own, whose key stays here; what each actor needs, by name."""
        words = [word for name in names for word in ("--actor", name)]
        made = subprocess.run(
            [self._binary, "certs", "certs", "--host", self._host, *words], cwd=self._folder, capture_output=True, text=True
        )
        if made.returncode != 0:
            raise ProgramFailed(made.stderr.strip().removeprefix("gipo: "))
        folders = {name: self._folder / "certs" / name for name in names}
        return {name: {file.name: file.read_bytes() for file in path.iterdir()} for name, path in folders.items()}

    def start(self, begun: bool, flags: Sequence[str]) -> str:
        """Starts the program, again at the port of before, and waits until it listens. Where it can be reached."""
        if begun and not (self.run_dir / "config.toml").exists():
            raise ProgramFailed(
                f"{self.run_dir} is not on node {os.uname().nodename}, where the learner was placed after its node was "
                "lost: set run.dir to a folder that all nodes share, or keep the learner on one node with "
                "learner_resources"
            )
        self._starts += 1
        self._log = self._folder / f"learner-{self._starts}.txt"
        words = [self._binary, "learn", str(self._folder / "config.toml"), *self._words, *flags, "--listen",
                 f"{self._host}:{self._port}", "--certs", str(self._folder / "certs/learner")]
        with self._log.open("wb") as output:
            self._process = start_program(words, output, str(self._folder), signal.SIGKILL)
        until = time.monotonic() + START_SECONDS
        while not (found := re.search(r"listening on (\S+):(\d+)\n", self._log.read_text(errors="replace"))):
            if self._process.poll() is not None or time.monotonic() > until:
                end_program(self._process, signal.SIGKILL, 10)
                raise ProgramFailed(last_line(self._log))
            time.sleep(0.05)
        self._port = int(found[2])
        return f"{found[1]}:{found[2]}"

    def look(self, offset: int) -> dict[str, Any]:
        """How the program is: `code` once it has ended, `lines` of metrics.jsonl from `offset` on, its actors."""
        assert self._process is not None
        code = self._process.poll()
        path = self.run_dir / "metrics.jsonl"
        size = path.stat().st_size if path.exists() else 0
        data = b""
        if size < offset:  # a learner that was started again has cut off what its checkpoint does not have
            offset = 0
        if size > offset:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(4 << 20)
            data = data[: data.rfind(b"\n") + 1]
        if code is None and time.monotonic() - self._asked > 2:
            self._asked = time.monotonic()
            self._actors = self._ask()
        return {"code": code, "lines": data.decode().splitlines(), "offset": offset + len(data), "actors": self._actors,
                "message": last_line(self._log) if code else ""}

    def _ask(self) -> list[dict[str, Any]]:
        certs = next((self._folder / "certs").glob("actor-*"))
        said = subprocess.run([self._binary, "status", f"{self._host}:{self._port}", "--certs", str(certs), "--json"],
                              capture_output=True, text=True)
        return json.loads(said.stdout)["actors"] if said.returncode == 0 else []

    def end(self, seconds: float) -> int:
        """Asks the learner to write its checkpoint and end."""
        assert self._process is not None
        return end_program(self._process, signal.SIGTERM, seconds)

    def mark(self) -> str:
        """By this the driver knows whether it sees the same run folder."""
        return (self.run_dir / "actors.json").read_text()

    def pieces(self) -> list[Any]:
        """The run folder, as the pieces of a tar file in Ray's store."""
        import ray

        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w") as tar:
            tar.add(self.run_dir, ".")
        data = whole.getvalue()
        return [ray.put(data[i : i + PIECE_BYTES]) for i in range(0, len(data), PIECE_BYTES)]

    def clean(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def run_actor(binary: str, address: str, certificates: dict[str, bytes], ledger: str = "") -> str:
    """An actor of that learner on this node, started again when it dies. Returns when the run has ended.

    ledger: file on this node for `gipo actor --ledger`; empty: none.
    """
    binary, short_lives = program(binary), 0
    with tempfile.TemporaryDirectory(prefix="gipo-actor-") as name:
        folder = Path(name)
        (folder / "certs").mkdir(mode=0o700)
        for file, data in certificates.items():
            (folder / "certs" / file).write_bytes(data)
            (folder / "certs" / file).chmod(0o600)
        while True:
            begun = time.monotonic()
            with (folder / "actor.txt").open("wb") as output:
                words = [binary, "actor", address, "--certs", "certs", *(["--ledger", ledger] if ledger else [])]
                process = start_program(words, output, name,
                                        signal.SIGTERM)
            try:
                code = process.wait()
            except BaseException:  # cancelled
                end_program(process, signal.SIGTERM, 10)
                raise
            if code == 0:
                return "ended"
            if code == 2:
                raise ProgramFailed(last_line(folder / "actor.txt"))
            short_lives = short_lives + 1 if time.monotonic() - begun < SHORT_SECONDS else 0
            if short_lives == MOST_SHORT_LIVES:
                raise ProgramFailed(f"{MOST_SHORT_LIVES} times in a row: {last_line(folder / 'actor.txt')}")
            time.sleep(0.2 * 2**short_lives)


def run_of_suite(binary: str, words: Sequence[str], cwd: str, output: str, mark: str) -> int:
    """One run of a suite, in the suite's own folders. Its exit code; below 0: the signal that ended it."""
    binary = program(binary)
    if not os.path.exists(os.path.join(cwd, mark)):
        raise ProgramFailed(f"{cwd}/{mark} is not on node {os.uname().nodename}: give the suite an --out that all nodes share")
    with open(os.path.join(cwd, output), "ab") as file:
        process = start_program([binary, *words], file, cwd, signal.SIGKILL)
        try:
            return process.wait()
        except BaseException:  # cancelled: as Ctrl-C does
            return end_program(process, signal.SIGINT, 120)
