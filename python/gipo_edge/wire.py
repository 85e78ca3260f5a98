"""The messages of a learner's service, as bytes: src/gipo/remote/grpc/learner.proto, train/report_wire.h, data/wire.h.

Written by hand: a dozen fields need neither generated code nor the version of protobuf that goes with it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np

PROTOCOL = 2
SERVICE = "/gipo.wire.Learner/"

# Numbers of the fields. Those that are text or bytes.
OPEN_REQUEST = {"protocol": 1, "version": 2, "name": 3, "agreement": 4, "run": 5, "place": 6, "incarnation": 7,
                "kept_steps": 8, "edge": 9}
OPEN_REPLY = {1: "run", 2: "name", 3: "config", 4: "key", 5: "place", 6: "incarnation", 7: "first_episode", 8: "received",
              9: "saved", 10: "report_rounds", 11: "edge"}
PUSH_REPLY = {1: "received", 2: "saved", 3: "env_steps", 4: "steps", 5: "ended"}
WEIGHTS_REPLY = {1: "version", 2: "size", 3: "offset", 4: "part", 5: "crc"}
TEXT = {"run", "name", "config", "key", "edge"}
LISTS = {"first_episode"}


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode(numbers: Mapping[str, int], values: Mapping[str, Any]) -> bytes:
    out = bytearray()
    for name, value in values.items():
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            out += varint(numbers[name] << 3 | 2) + varint(len(value)) + value
        else:
            out += varint(numbers[name] << 3) + varint(int(value))
    return bytes(out)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0

    def read() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        number, kind = divmod(read(), 8)
        if kind == 0:
            yield number, read()
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            yield number, int.from_bytes(data[at : at + size], "little")
            at += size
        elif kind == 2:
            size = read()
            yield number, data[at : at + size]
            at += size
        else:
            raise ValueError(f"a message with a field of kind {kind}")


def decode(names: Mapping[int, str], data: bytes) -> dict[str, Any]:
    """By name; what is not there is 0, empty text or an empty list. Fields of newer learners are passed over."""
    found: dict[str, Any] = {name: [] if name in LISTS else "" if name in TEXT else 0 for name in names.values()}
    for number, value in _fields(data):
        name = names.get(number)
        if name in LISTS:  # one after the other in one field
            assert isinstance(value, bytes)
            found[name] += _varints(value)
        elif name in TEXT:
            assert isinstance(value, bytes)
            found[name] = value.decode()
        elif name:
            found[name] = value
    return found


def _varints(data: bytes) -> list[int]:
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value = shift = 0
    return values


def crc(data: bytes) -> int:
    return google_crc32c.value(data)


@dataclass
class Steps:
    """A segment: steps of one episode, one after the other."""

    observation: np.ndarray  # [T + 1, size] float32, the last the one after the last step
    action: np.ndarray  # [T, dims] float32
    log_prob: np.ndarray  # [T, dims] float32
    reward: np.ndarray  # [T] float32, scaled
    version: np.ndarray  # [T] int64 of the weights that chose
    env_step: float  # steps of the whole run at its first one
    terminated: bool = False
    truncated: bool = False

    @property
    def bytes(self) -> int:
        return sum(a.nbytes for a in (self.observation, self.action, self.log_prob, self.reward, self.version)) + 200


@dataclass
class Episode:
    """An episode that has ended, for the log of the run."""

    returned: float
    length: int
    env_step: int
    version: int
    terminated: bool


def segment_message(steps: Steps, env: int, incarnation: int, number: int, fingerprint: int, stride: float) -> bytes:
    flags = 1 * steps.terminated | 2 * steps.truncated
    head = b"gipo.seg" + struct.pack(
        "<2I5Q2d", 1, fingerprint, env, incarnation, number, len(steps.reward), flags, steps.env_step, stride
    )
    columns = (steps.observation, steps.action, steps.log_prob, steps.reward, steps.version)
    body = head + b"".join(column.tobytes() for column in columns)
    return body + struct.pack("<I", crc(body))


def report_message(
    actor: int, incarnation: int, sequence: int, steps: int, episodes: Sequence[Episode], segments: Sequence[bytes]
) -> bytes:
    """Numbers of episodes are the learner's to give."""
    body = struct.pack("<3Qq", actor, incarnation, sequence, steps) + struct.pack("<Q", len(episodes))
    for e in episodes:
        body += struct.pack("<Qqd3qQ", actor, 0, e.returned, e.length, e.env_step, e.version, int(e.terminated))
    body += struct.pack("<3Q", 0, 0, len(segments))  # no faults
    body += b"".join(struct.pack("<Q", len(segment)) + segment for segment in segments)
    head = b"gipo.rep" + struct.pack("<QI", 24 + len(body) + 4, 1)
    head += struct.pack("<I", crc(head))
    return head + body + struct.pack("<I", crc(head + body))
