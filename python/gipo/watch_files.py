"""Follows the growing files of a run folder and keeps what they say in memory that does not grow with them."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from gipo.runs import Record

CHUNK_BYTES = 1 << 20  # read at a time, so that a long file does not hold up the others
LONGEST_LINE = 4 << 20  # more without an end is no line of a run
ANCHOR_BYTES = 64  # of the end of what was read, to notice that a file was cut back and has grown again


class Tail:
    """Reads what was appended to a file of lines since the last time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.behind = False  # more is there than was read
        self._start_anew()

    def _start_anew(self) -> None:
        self._offset = 0
        self._stamp = (0, 0)  # inode and time of the last change
        self._anchor = b""

    def read(self) -> tuple[list[bytes], bool]:
        """The new whole lines, and whether what was read before no longer holds: the file was cut back or replaced."""
        self.behind = False
        try:
            with self.path.open("rb") as file:
                return self._read(file)
        except OSError:
            gone = self._offset > 0
            if gone:
                self._start_anew()
            return [], gone

    def _read(self, file: BinaryIO) -> tuple[list[bytes], bool]:
        info = os.fstat(file.fileno())
        stamp = (info.st_ino, info.st_mtime_ns)
        if info.st_size == self._offset and stamp == self._stamp:
            return [], False
        reset = self._offset > 0 and (info.st_ino != self._stamp[0] or info.st_size < self._offset)
        if self._offset > 0 and not reset:
            file.seek(self._offset - len(self._anchor))
            reset = file.read(len(self._anchor)) != self._anchor
        if reset:
            self._start_anew()
        self._stamp = stamp
        file.seek(self._offset)
        data = file.read(CHUNK_BYTES)
        while data and b"\n" not in data and len(data) < LONGEST_LINE and (more := file.read(CHUNK_BYTES)):
            data += more
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) >= LONGEST_LINE:
            end = len(data)
        self._offset += end
        self._anchor = (self._anchor + data[:end])[-ANCHOR_BYTES:]
        self.behind = end > 0 and info.st_size > self._offset + len(data) - end
        lines = data[:end].split(b"\n")
        return lines if lines[-1] else lines[:-1], reset


def records_of(lines: Sequence[bytes]) -> tuple[list[Record], int]:
    """The JSON objects of the lines, and how many lines are none."""
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records, len(lines) - len(records)


class EventTimes:
    """When each update was logged, from a TensorBoard event file: the heads of its records alone are read."""

    HEAD = struct.Struct("<QI")  # length, its checksum
    MOST_RECORDS = 4000  # at a time

    def __init__(self, path: Path) -> None:
        self.path = path
        self.behind = False
        self._offset = 0
        self._last = (0, b"")  # place and head of the last record, to notice that the file was cut back

    def read(self) -> tuple[list[tuple[int, float]], bool]:
        """Pairs of update and seconds since 1970, and whether the file was cut back."""
        found: list[tuple[int, float]] = []
        try:
            with self.path.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                place, known = self._last
                reset = self._offset > 0 and (size < self._offset or os.pread(file.fileno(), len(known), place) != known)
                if reset:
                    self._offset = 0
                while self._offset + 16 < size and len(found) < self.MOST_RECORDS:
                    head = os.pread(file.fileno(), 32, self._offset)
                    length = self.HEAD.unpack_from(head)[0]
                    if self._offset + 16 + length > size:
                        break
                    self._last = (self._offset, head[: 12 + min(16, length)])
                    self._offset += 16 + length
                    if pair := self._times(head[12:]):
                        found.append(pair)
        except (OSError, struct.error):
            return found, False
        self.behind = len(found) == self.MOST_RECORDS
        return found, reset

    @staticmethod
    def _times(event: bytes) -> tuple[int, float] | None:
        """wall_time is field 1, a double; step is field 2, a varint."""
        if len(event) < 11 or event[0] != 0x09 or event[9] != 0x10:
            return None
        step = shift = 0
        for byte in event[10:20]:
            step |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return step, struct.unpack_from("<d", event, 1)[0]
        return None


class Track:
    """A table that stays small: rows are means over ever more lines of a file.

    When it is full, neighbours are merged and every further row takes twice as many lines; `generation` then changes,
    and a reader takes the whole table again.
    """

    def __init__(self, width: int, most: int) -> None:
        self._rows = np.empty((most, width))
        self.generation = 0
        self.clear()

    def clear(self) -> None:
        self.length = 0
        self.stride = 1
        self.generation += 1
        self._sum = np.zeros(self._rows.shape[1])  # of the row that is being filled
        self._known = np.zeros(self._rows.shape[1])
        self.pending = 0  # lines in it

    @property
    def sampling(self) -> int:
        """Of how many lines one is enough: each row is still a mean over at least four."""
        return max(1, self.stride // 4)

    def add(self, lines: np.ndarray, weight: int = 1) -> None:
        """The values of further lines, [lines, width], each of which stands for `weight`; NaN where there is none."""
        while len(lines):
            part, lines = np.split(lines, [-(-(self.stride - self.pending) // weight)])
            known = np.isfinite(part)
            self._sum += np.where(known, part, 0).sum(axis=0)
            self._known += known.sum(axis=0)
            self.pending += weight * len(part)
            if self.pending < self.stride:
                return
            self._rows[self.length] = self.tail()
            self.length += 1
            self._sum[:] = self._known[:] = 0
            self.pending = 0
            if self.length == len(self._rows):
                self._halve()

    def _halve(self) -> None:
        self.length //= 2
        pairs = self._rows[: 2 * self.length].reshape(self.length, 2, -1)
        known = np.isfinite(pairs)
        counts = known.sum(axis=1)
        self._rows[: self.length] = np.where(known, pairs, 0).sum(axis=1) / np.where(counts, counts, np.nan)
        self.stride *= 2
        self.generation += 1

    def tail(self) -> np.ndarray | None:
        """The row that is being filled, as far as it came."""
        if self.pending == 0:
            return None
        return self._sum / np.where(self._known, self._known, np.nan)

    def since(self, generation: int, length: int) -> tuple[int, np.ndarray]:
        """From which row on a reader with so much lacks rows, and these rows; the unfinished one comes last."""
        start = length if generation == self.generation and 0 <= length <= self.length else 0
        rows = self._rows[start : self.length]
        tail = self.tail()
        return start, rows.copy() if tail is None else np.vstack([rows, tail])
