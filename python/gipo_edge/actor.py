"""An actor around a control loop of the user's own: inference here with the learner's last weights, experience sent when
the learner has time for it."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from gipo_edge import wire
from gipo_edge.policy import EdgePolicy
from gipo_edge.wire import Episode, Steps

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between attempts
CALL_SECONDS = 10.0
CHANNEL = {
    "grpc.keepalive_time_ms": 4000, "grpc.keepalive_timeout_ms": 4000, "grpc.keepalive_permit_without_calls": 1,
    "grpc.http2.max_pings_without_data": 0, "grpc.use_local_subchannel_pool": 1,
    "grpc.max_receive_message_length": 64 << 20,
}
REFUSALS = {
    grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED,
}
REPLACED = {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ABORTED}


class Refused(Exception):
    """The learner will not have this actor, or does not answer; the message says why."""


@dataclass
class _Report:
    steps: int = 0
    episodes: list[Episode] = field(default_factory=list)
    segments: list[Steps] = field(default_factory=list)
    sequence: int = -1  # given when it is first sent
    message: bytes = b""

    @property
    def bytes(self) -> int:
        return len(self.message) or 100 + sum(segment.bytes for segment in self.segments)


@dataclass
class _Open:
    """The segment and the episode that go on."""

    observations: list[np.ndarray] = field(default_factory=list)
    actions: list[np.ndarray] = field(default_factory=list)
    log_probs: list[np.ndarray] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    env_step: float = 0.0
    chosen: tuple[np.ndarray, np.ndarray, np.ndarray, int] | None = None  # observation, action, log_prob, version
    after: np.ndarray | None = None  # observed after the last step
    returned: float = 0.0
    length: int = 0


class RemoteActor:
    """Collects experience for a learner (`gipo learn`) from your own control loop.

        actor = RemoteActor("learner.lab:7400", certs="certs/robot-1")
        while not actor.ended:
            action = actor.act(observation)
            observation, reward, terminated, truncated = robot.step(action)
            actor.record(reward, observation, terminated, truncated)
            if terminated or truncated:
                observation = robot.reset()
        actor.close()

    `act` and `record` never wait for the network. While the learner is away the loop goes on with the last weights, and
    what was recorded is sent when it is back. docs/cluster.md says what is kept and what is dropped.

    address: HOST:PORT of the learner. certs: folder that `gipo certs` made for this actor; None: a learner on this machine.
    name: of this actor; None: that of its certificate, or host and process. keep: megabytes of experience that the
    learner has not saved. wait: seconds to wait for a learner here, before the first weights. ledger: file to write a line
    to for each report and what became of it. seed: of the draws; None: of the machine's.
    """

    def __init__(
        self, address: str, certs: str | PathLike[str] | None = None, *, name: str | None = None, keep: float = 64.0,
        wait: float = 300.0, ledger: str | PathLike[str] | None = None, seed: int | None = None,
    ) -> None:
        self._address, self._credentials = address, _credentials(certs)
        own = f"{socket.gethostname()[:48]}-{os.getpid()}"
        self._name = name or ("" if certs else own)
        self._most_bytes = int(keep * 1e6)
        self._ledger = open(ledger, "a", buffering=1) if ledger else None
        self._random = np.random.default_rng(seed)
        self._changed = threading.Condition()
        self._policy: EdgePolicy | None = None
        self._place: dict[str, Any] = {}  # the last answer of Open
        self._waiting: deque[_Report] = deque()  # not yet sent
        self._sent: deque[_Report] = deque()  # sent, and not known to be in a checkpoint
        self._next = 0  # in _sent: what is to be sent again before the rest
        self._received, self._saved, self._credit, self._env_steps = 0, 0, 0, 0
        self._sequence = self._number = 0
        self._open, self._steps = _Open(), _Report()
        self._closing, self._connected, self._told, self._stream = False, False, False, 0
        self._error: Exception | None = None
        self.ended = False  # the run has ended: no more is wanted
        self.dropped_steps = 0  # for want of room, and with segments that were not finite
        self._link = threading.Thread(target=self._keep_linked, daemon=True)
        self._link.start()
        with self._changed:
            given_up = not self._changed.wait_for(lambda: self._policy or self._error or self.ended, wait)
        if given_up:
            self._error = Refused(f"learner at {address} does not answer; given up after {wait:g} s (wait)")
        if self._error:
            self.close()
            raise self._error

    # The control loop's side.

    def act(self, observation: Any) -> Any:
        """An action for this observation, drawn from the newest policy: an int, or an array."""
        policy = self._policy
        if policy is None:
            raise Refused("the run had ended before it sent a policy")
        size = self._description["observation_size"]
        seen = np.asarray(observation, np.float32).ravel()
        if seen.size != size or not np.isfinite(seen).all():
            raise ValueError(f"act: an observation of {seen.size} numbers; wanted {size}, all finite")
        action, log_prob = policy.choose(seen, self._random)
        with self._changed:
            now = self._open
            if now.chosen:  # what came of the last action is not known: the segment ends before it
                self._close_segment(now.chosen[0])
            elif now.after is not None and not np.array_equal(now.after, seen):  # moved by other means
                self._close_segment(now.after)
            self._open.chosen = (seen, action, log_prob, policy.version)
        return policy.to_task(action)

    def record(self, reward: float, observation: Any, terminated: bool = False, truncated: bool = False) -> None:
        """What came of the last action: the reward and the observation after it, also where the episode has ended.

        terminated: the task has ended there. truncated: the episode was only cut off.
        """
        if self._error:
            raise self._error
        seen = np.asarray(observation, np.float32).ravel()
        with self._changed:
            now = self._open
            if now.chosen is None:
                raise ValueError("record: call act first")
            if seen.size != now.chosen[0].size:
                raise ValueError(f"record: an observation of {seen.size} numbers; wanted {now.chosen[0].size}")
            self._steps.steps += 1
            if not np.isfinite(seen).all() or not np.isfinite(reward):
                self._drop_open()
            else:
                if not now.actions:
                    now.env_step = float(self._env_steps)
                chosen, now.chosen = now.chosen, None
                for values, value in zip((now.observations, now.actions, now.log_probs, now.versions), chosen, strict=True):
                    values.append(value)
                now.rewards.append(float(reward) * self._description["reward_scale"])
                now.returned += float(reward)
                now.length += 1
                now.after = seen
                if terminated or truncated or len(now.actions) == self._description["segment_length"]:
                    self._close_segment(seen, terminated, truncated)
                if terminated or truncated:
                    self._end_episode(terminated)
            if self._steps.segments or self._steps.steps >= self._block:
                self._hand_over()

    def drop(self) -> None:
        """Forgets the open segment, as after an emergency stop; the next `act` begins an episode."""
        with self._changed:
            self._drop_open()

    def wait(self, seconds: float | None = None) -> bool:
        """For loops that are faster than the learner, as simulators are: until it has taken what was recorded, or the run
        has ended. False where that took longer than so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting or self.ended or self._error is not None, seconds)

    def status(self) -> dict[str, Any]:
        """`connected`, `version` of the weights, steps that wait to be sent, that were dropped, and bytes that are kept."""
        with self._changed:
            return {
                "connected": self._connected, "version": self._policy.version if self._policy else -1,
                "waiting_steps": sum(report.steps for report in self._waiting), "dropped_steps": self.dropped_steps,
                "kept_bytes": self._bytes(), "received_reports": self._received, "saved_reports": self._saved,
            }

    def close(self, seconds: float = 5.0) -> None:
        """Hands over what is left, the open segment too, and leaves."""
        with self._changed:
            now = self._open
            if now.actions:
                self._close_segment(now.chosen[0] if now.chosen else now.after)
            if self._steps.steps:
                self._hand_over()
            done = lambda: self.ended or self._error or not (self._waiting or self._unreceived())
            self._changed.wait_for(done, seconds)
            self._closing = True
            self._changed.notify_all()
        self._link.join(5)
        if self._ledger:
            self._ledger.close()

    def __enter__(self) -> RemoteActor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # With the lock held.

    @property
    def _description(self) -> dict[str, Any]:
        return self._place["edge"]

    @property
    def _block(self) -> int:
        """Steps of a lease."""
        return self._place["report_rounds"] * self._description["envs_per_actor"]

    def _close_segment(self, final: np.ndarray | None, terminated: bool = False, truncated: bool = False) -> None:
        now = self._open
        now.chosen = None
        if now.actions:
            self._steps.segments.append(Steps(
                np.array([*now.observations, final], np.float32), np.array(now.actions, np.float32),
                np.array(now.log_probs, np.float32), np.array(now.rewards, np.float32), np.array(now.versions, np.int64),
                now.env_step, terminated, truncated,
            ))
        self._open = _Open(returned=now.returned, length=now.length)

    def _end_episode(self, terminated: bool) -> None:
        now = self._open
        version = self._policy.version if self._policy else 0
        self._steps.episodes.append(Episode(now.returned, now.length, self._env_steps, version, terminated))
        self._open = _Open()

    def _drop_open(self) -> None:
        self.dropped_steps += len(self._open.actions)
        self._open = _Open()

    def _hand_over(self) -> None:
        self._waiting.append(self._steps)
        self._steps = _Report()
        self._make_room()
        self._changed.notify_all()

    def _bytes(self) -> int:
        return sum(report.bytes for report in self._waiting) + sum(report.bytes for report in self._sent)

    def _make_room(self) -> None:
        """First what the learner has received but not saved goes, oldest first; then the oldest that was not sent."""
        total = self._bytes()
        while total > self._most_bytes and self._sent and self._sent[0].sequence < self._received:
            total -= self._sent.popleft().bytes
            self._next = max(0, self._next - 1)
        while total > self._most_bytes and self._waiting:
            report = self._waiting.popleft()
            total -= report.bytes
            self.dropped_steps += report.steps

    def _unreceived(self) -> bool:
        return bool(self._sent) and self._sent[-1].sequence >= self._received

    def _write(self, **record: Any) -> None:
        if self._ledger and not self._ledger.closed:
            place = self._place["place"] * self._description["envs_per_actor"]
            self._ledger.write(json.dumps(record | {"actor": place, "incarnation": self._place["incarnation"]}) + "\n")

    # The link's side: one thread connects and reads replies, gRPC's own sends, another reads weights.

    def _keep_linked(self) -> None:
        pause = SHORTEST_PAUSE
        while not self._closing:
            begun = time.monotonic()
            options = list(CHANNEL.items())
            channel = (grpc.secure_channel(self._address, self._credentials, options) if self._credentials
                       else grpc.insecure_channel(self._address, options))
            try:
                self._open_place(channel)
                self._exchange(channel)
            except grpc.RpcError as error:
                self._settle(error)
            except Exception as error:  # a defect, told where the user looks
                self._fail(error)
            finally:
                channel.close()
            with self._changed:
                self._connected = False
                self.ended |= self._told
                self._stream += 1
                self._changed.notify_all()
                if self.ended or self._error or self._closing:
                    return
            if time.monotonic() - begun > 5:
                pause = SHORTEST_PAUSE
            with self._changed:
                self._changed.wait_for(lambda: self._closing, pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _settle(self, error: grpc.RpcError) -> None:
        code = error.code()
        if code == grpc.StatusCode.OUT_OF_RANGE:
            with self._changed:
                self.ended = True
                self._changed.notify_all()
        elif code in REPLACED:
            # Whether reports that were sent came into the replay is not known: they are not sent as another's.
            with self._changed:
                lost = [report for report in self._sent if report.sequence >= self._received]
                self.dropped_steps += sum(report.steps for report in lost)
                self._sent.clear()
                self._place.pop("run", None)
                self._sequence = self._number = self._received = self._saved = self._next = 0
        elif code in REFUSALS:
            self._fail(Refused(f"learner at {self._address}: {error.details()}"))

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _open_place(self, channel: grpc.Channel) -> None:
        call = channel.unary_unary(wire.SERVICE + "Open")
        ask = {"protocol": wire.PROTOCOL, "version": "edge", "name": self._name, "edge": 1}
        if "run" not in self._place:
            told = wire.decode(wire.OPEN_REPLY, call(wire.encode(wire.OPEN_REQUEST, ask), timeout=CALL_SECONDS))
            agreement = json.loads(told["edge"])["agreement"]
        else:
            agreement = self._description["agreement"]
            with self._changed:
                kept = sum(report.steps for report in self._sent)
            ask |= {name: self._place[name] for name in ("run", "place", "incarnation")} | {"kept_steps": kept}
        reply = wire.decode(wire.OPEN_REPLY, call(
            wire.encode(wire.OPEN_REQUEST, ask | {"agreement": agreement}), timeout=CALL_SECONDS))
        reply["edge"] = json.loads(reply["edge"])
        with self._changed:
            again = "run" in self._place
            self._place = reply
            self._received, self._saved = reply["received"], reply["saved"]
            self._forget_saved()
            self._next = next((i for i, r in enumerate(self._sent) if r.sequence >= self._received), len(self._sent))
            self._credit = 0
            self._stream += 1
            if again:
                self._write(resumed=reply["received"])

    def _exchange(self, channel: grpc.Channel) -> None:
        key, stream = [("gipo-key", self._place["key"])], self._stream
        weights = channel.unary_stream(wire.SERVICE + "Weights")(b"", metadata=key)
        threading.Thread(target=self._read_weights, args=(weights, stream), daemon=True).start()
        replies = channel.stream_stream(wire.SERVICE + "Push")(self._requests(stream), metadata=key)
        self._connected = True
        try:
            for data in replies:
                self._take_reply(wire.decode(wire.PUSH_REPLY, data))
        finally:
            weights.cancel()

    def _take_reply(self, reply: dict[str, Any]) -> None:
        with self._changed:
            if reply["received"] > self._received:
                self._received = reply["received"]
            if reply["received"]:
                self._write(received=reply["received"])
            if reply["saved"] > self._saved:
                self._saved = reply["saved"]
                self._write(saved=self._saved)
                self._forget_saved()
            if reply["steps"]:
                self._credit += reply["steps"]
                self._env_steps = max(self._env_steps, reply["env_steps"])
            self._told |= bool(reply["ended"])
            self._make_room()
            self._changed.notify_all()

    def _forget_saved(self) -> None:
        while self._sent and self._sent[0].sequence < min(self._saved, self._received):
            self._sent.popleft()
            self._next = max(0, self._next - 1)

    def _requests(self, stream: int) -> Iterator[bytes]:
        """What was sent before and is lost, then what waits, as far as steps are leased. It ends once the learner has said that
        the run has: so the learner knows that this was heard."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stream != stream or self._closing or self._told or self._sendable())
                if self._stream != stream or self._told or (self._closing and not self._sendable()):
                    return
                if self._next == len(self._sent):
                    report = self._waiting.popleft()
                    self._credit -= report.steps
                    self._encode(report)
                    self._sent.append(report)
                message = self._sent[self._next].message
                self._next += 1
            yield b"\x0a" + wire.varint(len(message)) + message

    def _sendable(self) -> bool:
        return self._next < len(self._sent) or bool(self._waiting) and self._waiting[0].steps <= self._credit

    def _encode(self, report: _Report) -> None:
        d, incarnation = self._description, self._place["incarnation"]
        env = self._place["place"] * d["envs_per_actor"]
        segments, told = [], []
        for steps in report.segments:
            segments.append(wire.segment_message(steps, env, incarnation, self._number, d["fingerprint"], d["envs"]))
            told.append([env, self._number, len(steps.reward)])
            self._number += 1
        report.sequence = self._sequence
        self._sequence += 1
        report.message = wire.report_message(env, incarnation, report.sequence, report.steps, report.episodes, segments)
        report.segments = []
        self._write(made=report.sequence, steps=report.steps, segments=told)

    def _read_weights(self, weights: Any, stream: int) -> None:
        data = bytearray()
        try:
            for message in weights:
                part = wire.decode(wire.WEIGHTS_REPLY, message)
                if part["offset"] == 0:
                    data.clear()
                if part["offset"] != len(data):
                    continue
                data += part["part"] or b""
                if len(data) < part["size"] or wire.crc(bytes(data)) != part["crc"]:
                    continue
                policy = EdgePolicy(self._description, bytes(data))
                with self._changed:
                    self._policy = policy
                    self._changed.notify_all()
        except grpc.RpcError:
            pass  # the other stream says why
        except struct.error as error:
            self._fail(error)


def _credentials(certs: str | PathLike[str] | None) -> grpc.ChannelCredentials | None:
    if certs is None:
        return None
    missing = [name for name in ("ca.crt", "actor.key", "actor.crt") if not (Path(certs) / name).is_file()]
    if missing:
        raise Refused(f"certs = {os.fspath(certs)!r}: no {missing[0]} there; gipo certs makes the folder")
    return grpc.ssl_channel_credentials(*((Path(certs) / name).read_bytes() for name in ("ca.crt", "actor.key", "actor.crt")))
