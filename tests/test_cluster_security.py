"""What a learner makes of callers that are not gipo, or not who they say. Needs a build with GIPO_GRPC, and grpcio."""

import importlib
import importlib.util
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

from conftest import ROOT, wait_until
from test_cluster import cluster, grpc_built, with_grpc  # noqa: F401  fixtures

grpc = pytest.importorskip("grpc", reason="scripts/setup.sh --cluster installs grpcio")


@pytest.fixture(scope="session")
def wire(tmp_path_factory):
    """The messages and the service, as protoc makes them."""
    if importlib.util.find_spec("grpc_tools") is None:
        pytest.skip("scripts/setup.sh --cluster installs grpcio-tools")
    folder = tmp_path_factory.mktemp("wire")
    source = ROOT / "src/gipo/remote/grpc"
    # In a process of its own: its protobuf and that of gipo's module do not bear each other.
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{source}", f"--python_out={folder}",
                    f"--grpc_python_out={folder}", str(source / "learner.proto")], check=True)  # fmt: skip
    sys.path.insert(0, str(folder))
    return importlib.import_module("learner_pb2"), importlib.import_module("learner_pb2_grpc")


class Caller:
    """A client of the service that does as it likes."""

    def __init__(self, wire, address, certs=None):
        self.messages, service = wire
        if certs:
            read = lambda name: (certs / name).read_bytes() if (certs / name).exists() else None
            key, own = read("actor.key"), read("actor.crt")
            credentials = grpc.ssl_channel_credentials(read("ca.crt"), key, own)
            self.channel = grpc.secure_channel(address, credentials)
        else:
            self.channel = grpc.insecure_channel(address)
        self.stub = service.LearnerStub(self.channel)

    def open(self, name="x", agreement="", **more):
        request = self.messages.OpenRequest(protocol=2, version="0", name=name, agreement=agreement, **more)
        return self.stub.Open(request, timeout=10)

    def push(self, key, reports, wait=2.0):
        """Sends these, and how the stream ended; None: it did not."""
        done = threading.Event()

        def requests():
            for report in reports:
                yield self.messages.PushRequest(reports=report)
            done.wait(wait + 10)

        stream = self.stub.Push(requests(), metadata=[("gipo-key", key)], timeout=wait)
        replies = []
        try:
            for reply in stream:
                replies.append(reply)
            return replies, grpc.StatusCode.OK, ""
        except grpc.RpcError as error:
            return replies, error.code(), error.details()
        finally:
            done.set()


def refusal(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def agreement_of(caller):
    """What an honest actor says, asked of the refusals line by line."""
    known = ""
    while True:
        try:
            return known, caller.open("honest", known or "?")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error.details()
            line = error.details().split('the learner has "')[1].split('", the actor "')[0]
            known += line + "\n"


def report(actor=0, incarnation=1, sequence=0, steps=0, body=None):
    """A report that says nothing but its numbers, as train/report_wire.h has it; body: other bytes after them."""
    inner = struct.pack("<3Qq", actor, incarnation, sequence, steps) + (body or struct.pack("<4Q", 0, 0, 0, 0))
    head = b"gipo.rep" + struct.pack("<QI", 24 + len(inner) + 4, 1)
    head += struct.pack("<I", crc32c(head))
    return head + inner + struct.pack("<I", crc32c(head + inner))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def resident_kb(process):
    with open(f"/proc/{process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


@pytest.fixture
def busy(cluster):  # noqa: F811
    """A learner with one honest actor of two; at the end both are well, and the actor was not disturbed."""
    learner = cluster.learn()
    actor = cluster.act("a")
    wait_until(lambda: len(cluster.ledger("a")) > 20, learner)
    yield cluster, learner
    before = len(cluster.ledger("a"))
    wait_until(lambda: len(cluster.ledger("a")) > before + 20, learner)
    assert actor.poll() is None and learner.poll() is None, cluster.text()
    assert {line["incarnation"] for line in cluster.ledger("a")} == {1}


def test_another_protocol_and_other_spaces_are_refused_with_what_differs(busy, wire):
    caller = Caller(wire, busy[0].address)
    request = caller.messages.OpenRequest(protocol=99, version="9.9", name="x")
    code, text = refusal(lambda: caller.stub.Open(request))
    assert code == grpc.StatusCode.FAILED_PRECONDITION and "gipo 9.9 (protocol 99): install the same version" in text
    code, text = refusal(lambda: caller.open("x", "task: Other-v1\n"))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert 'the learner has "task: CartPole-v1", the actor "task: Other-v1"' in text
    for name in ("", "../x", "a b", "x" * 65, "a\nb"):
        assert refusal(lambda: caller.open(name))[0] == grpc.StatusCode.INVALID_ARGUMENT
    assert refusal(lambda: caller.open("a", agreement_of(caller)[0]))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_messages_that_no_actor_sends_are_refused_and_counted(busy, wire):
    cluster, learner = busy
    caller = Caller(wire, cluster.address)
    agreement, place = agreement_of(caller)

    def again():
        nonlocal place
        time.sleep(0.3)
        place = caller.open("honest", agreement)
        return place.key

    mine = 2 * place.place  # its first environment: two for each actor
    refused = grpc.StatusCode.INVALID_ARGUMENT
    good = report(mine, place.incarnation)
    # The same twice, and one of before: passed over.
    replies, code, _ = caller.push(place.key, [good, good, good], wait=1)
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED and replies[-1].received == 1
    assert next(a for a in cluster.status()["actors"] if a["name"] == "honest")["repeated"] == 2
    # In another order: those that are behind the last are passed over too, and nothing is taken twice.
    key = again()
    late, early = (report(mine, place.incarnation, sequence) for sequence in (5, 3))
    replies, code, _ = caller.push(key, [late, early, late], wait=1)
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED and replies[-1].received == 6
    assert next(a for a in cluster.status()["actors"] if a["name"] == "honest")["repeated"] == 2
    # Several in one message: each counts for itself, up to one that is none.
    key = again()
    three = lambda: b"".join(report(mine, place.incarnation, sequence) for sequence in range(3))
    replies, code, _ = caller.push(key, [three()], wait=1)
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED and replies[-1].received == 3
    key = again()
    replies, code, text = caller.push(key, [three() + b"hello"])
    assert code == refused and "cut short: 5 bytes" in text
    assert next(a for a in cluster.status()["actors"] if a["name"] == "honest")["reports"] == 3
    bad = {
        "cut short": lambda i: report(mine, i)[:-3],
        "another's place": lambda i: report(2 - mine, i),
        "another incarnation": lambda i: report(mine, i + 1),
        "an older incarnation": lambda i: report(mine, i - 1),
        "steps that were not leased": lambda i: report(mine, i, steps=60),
        "very many steps": lambda i: report(mine, i, steps=2**62),
        "steps below zero": lambda i: report(mine, i, steps=-1),
        "2^60 episodes": lambda i: report(mine, i, body=struct.pack("<Q", 2**60)),
        "a fault of no name": lambda i: report(mine, i, body=struct.pack("<3Q", 0, 1, 3) + b"\n\0x"
                                               + struct.pack("<3Q", 1, 0, 0)),
        "another's environment": lambda i: report(mine, i, body=struct.pack("<Q", 1)
                                                  + struct.pack("<Qqdqqqq", 3 - mine, 0, 1.0, 1, 1, 0, 0)
                                                  + struct.pack("<3Q", 0, 0, 0)),
        "no report": lambda i: b"hello",
        "a flipped bit": lambda i: bytes([*report(mine, i)[:40], report(mine, i)[40] ^ 1, *report(mine, i)[41:]]),
    }
    before = cluster.status()["refusals"]
    for what, make in bad.items():
        key = again()
        replies, code, text = caller.push(key, [make(place.incarnation)])
        wanted = (refused,) if what != "steps that were not leased" else (refused, grpc.StatusCode.DEADLINE_EXCEEDED)
        assert code in wanted, (what, code, text)
    assert cluster.status()["refusals"] >= before + len(bad) - 1
    for key in ("", "0" * 32, place.key[:-1]):
        assert caller.push(key, [good])[1] == grpc.StatusCode.UNAUTHENTICATED
    again()
    assert caller.push(place.key, [b"x" * (5 << 20)])[1] == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "was refused" in (cluster.run() / "log.txt").read_text()


def sums_again(message):
    """With checksums that fit: what is damaged reaches the parser behind them."""
    head = message[:8] + struct.pack("<Q", len(message)) + message[16:20]
    head += struct.pack("<I", crc32c(head))
    body = head + message[24:-4]
    return body + struct.pack("<I", crc32c(body))


@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_random_messages_neither_crash_nor_grow_the_learner(busy, wire, seconds):
    cluster, learner = busy
    caller, chance = Caller(wire, cluster.address), random.Random(4)
    agreement, place = agreement_of(caller)
    before = resident_kb(learner)
    raw = caller.channel.stream_stream("/gipo.wire.Learner/Push", request_serializer=None, response_deserializer=None)
    unary = caller.channel.unary_unary("/gipo.wire.Learner/Open", request_serializer=None, response_deserializer=None)
    streams = [caller.channel.unary_stream("/gipo.wire.Learner/Weights", request_serializer=None, response_deserializer=None),
               caller.channel.unary_unary("/gipo.wire.Learner/Status", request_serializer=None, response_deserializer=None)]
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end:
        valid = report(2 * place.place, place.incarnation, tried)
        mutated = bytearray(valid)
        for _ in range(chance.randrange(1, 6)):
            mutated[chance.randrange(len(mutated))] = chance.randrange(256)
        body = chance.choice([bytes(mutated), sums_again(bytes(mutated)), chance.randbytes(chance.randrange(200)), valid[:chance.randrange(len(valid))]])
        message = caller.messages.PushRequest(reports=body).SerializeToString()
        if chance.random() < 0.3:
            message = chance.randbytes(chance.randrange(100))
        for call in (lambda: list(streams[0](message, metadata=[("gipo-key", "x")], timeout=1)),
                     lambda: streams[1](message, timeout=1),
                     lambda: list(raw(iter([message]), metadata=[("gipo-key", place.key)], timeout=1)),
                     lambda: unary(message, timeout=1)):
            try:
                call()
            except grpc.RpcError:
                pass
        tried += 1
        if tried % 10 == 0:
            time.sleep(0.3)
            try:
                place = caller.open("honest", agreement)
            except grpc.RpcError:
                pass
    assert tried > 50
    assert resident_kb(learner) < before + 65536, "the learner has grown"


def test_slow_lorises_are_let_go_and_disturb_nobody(busy):
    cluster, learner = busy
    host, port = cluster.address.rsplit(":", 1)
    open_files = lambda: len(os.listdir(f"/proc/{learner.pid}/fd"))
    before, memory = open_files(), resident_kb(learner)
    silent = [socket.create_connection((host, int(port))) for _ in range(100)]
    slow = [socket.create_connection((host, int(port))) for _ in range(100)]
    begun, preface = time.monotonic(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    acted = len(cluster.ledger("a"))
    for i in range(18):  # a byte of what gRPC begins with, each second
        for connection in slow:
            try:
                connection.send(preface[i : i + 1])
            except OSError:  # it was let go
                pass
        time.sleep(1)
    assert len(cluster.ledger("a")) > acted + 100, "the honest actor waits"
    wait_until(lambda: open_files() < before + 20, learner)
    assert time.monotonic() - begun < 60
    assert resident_kb(learner) < memory + 32768
    for connection in silent + slow:
        connection.close()


def test_a_certificate_out_of_its_time_is_said_where_it_lies(gipo, tmp_path, with_grpc):  # noqa: F811
    """Expired, and not yet valid as where a clock is far off: the side that has it says so before it speaks to anybody."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    assert gipo("certs", "certs", "--actor", "a").returncode == 0
    folder = tmp_path / "certs"
    for whose, command in (("a/actor", ["actor", "127.0.0.1:1"]), ("learner/learner", ["learn", "classic/stale", "--listen",
                                                                                   "127.0.0.1:0"])):
        crt = folder / f"{whose}.crt"
        for begin, end, word in (("20200101000000Z", "20210101000000Z", "valid until Jan  1 00:00:00 2021 GMT"),
                                 ("20900101000000Z", "20910101000000Z", "valid from Jan  1 00:00:00 2090 GMT")):
            sign(folder, crt, begin, end)
            ended = gipo(*command, "--certs", crt.parent)
            assert ended.returncode == 2 and word in ended.stderr and "set the clock" in ended.stderr, ended.stderr
    assert not (tmp_path / "runs").exists()


def test_a_learner_lets_nobody_in_whose_certificate_has_expired(cluster, wire, gipo, tmp_path):  # noqa: F811
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    assert gipo("certs", "certs", "--actor", "a", "--actor", "b").returncode == 0
    cluster.certs = tmp_path / "certs"
    learner = cluster.learn()
    cluster.act("a")
    sign(cluster.certs, cluster.certs / "b/actor.crt", "20200101000000Z", "20210101000000Z")
    assert refusal(lambda: Caller(wire, cluster.address, cluster.certs / "b").open(""))[0] == grpc.StatusCode.UNAVAILABLE
    wait_until(lambda: len(cluster.ledger("a")) > 20, learner)


def sign(folder, crt, begin, end):
    """The same certificate of another time, by the same authority."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (work / "index.txt").write_text("")
    (work / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=d\n[d]\ndatabase={work}/index.txt\nnew_certs_dir={work}\nrand_serial=yes\ndefault_md=sha256\n"
        "policy=p\ncopy_extensions=copy\n[p]\ncommonName=supplied\n")
    name = subprocess.run(["openssl", "x509", "-in", crt, "-noout", "-subject", "-nameopt", "RFC2253"], capture_output=True,
                          text=True, check=True).stdout.split("CN=")[1].strip()
    run = lambda *words: subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
    run("req", "-new", "-key", crt.with_suffix(".key"), "-subj", f"/CN={name}", "-out", work / "r.csr")
    crt.unlink()
    run("ca", "-batch", "-config", work / "ca.cnf", "-cert", folder / "ca.crt", "-keyfile", folder / "ca.key", "-in",
        work / "r.csr", "-out", crt, "-startdate", begin, "-enddate", end, "-notext")


def test_certificates_decide_who_may_come(cluster, wire, gipo, tmp_path):  # noqa: F811
    made = gipo("certs", "certs", "--actor", "a", "--actor", "b", "--actor", "honest")
    assert made.returncode == 0, made.stderr
    assert os.stat(tmp_path / "certs/ca.key").st_mode & 0o77 == 0
    assert os.stat(tmp_path / "certs/a/actor.key").st_mode & 0o77 == 0
    assert gipo("certs", "certs", "--actor", "a").returncode == 2
    assert gipo("certs", "others", "--actor", "a").returncode == 0
    cluster.certs = tmp_path / "certs"
    learner = cluster.learn()
    actors = [cluster.act("a"), cluster.act("b")]
    wait_until(lambda: all(len(cluster.ledger(name)) > 20 for name in "ab"), learner)

    # No certificate, one of another authority, a learner's: all end in the handshake.
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    (nothing / "ca.crt").write_bytes((tmp_path / "certs/ca.crt").read_bytes())
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    for name in ("actor.key", "actor.crt"):
        (wrong / name).write_bytes((tmp_path / "others/a" / name).read_bytes())
    (wrong / "ca.crt").write_bytes((tmp_path / "certs/ca.crt").read_bytes())
    server = tmp_path / "server"
    server.mkdir()
    for end in ("key", "crt"):
        (server / f"actor.{end}").write_bytes((tmp_path / f"certs/learner/learner.{end}").read_bytes())
    (server / "ca.crt").write_bytes((tmp_path / "certs/ca.crt").read_bytes())
    for folder in (nothing, wrong, server):
        assert refusal(lambda: Caller(wire, cluster.address, folder).open(""))[0] == grpc.StatusCode.UNAVAILABLE
    assert refusal(lambda: Caller(wire, cluster.address).open("a"))[0] == grpc.StatusCode.UNAVAILABLE
    expired = gipo("actor", cluster.address, "--certs", "wrong", "--wait", "0.5")
    assert expired.returncode == 1 and "does not answer" in expired.stderr

    # Another's identity, and another's session.
    honest = Caller(wire, cluster.address, tmp_path / "certs/honest")
    code, text = refusal(lambda: honest.open("a"))
    assert code == grpc.StatusCode.PERMISSION_DENIED and "the certificate is honest's, not a's" in text
    assert stop_one(actors[1]) == 130
    stranger = Caller(wire, cluster.address, tmp_path / "certs/b")
    agreement, place = agreement_of(honest)
    assert stranger.push(place.key, [report(2 * place.place, place.incarnation)])[1] == grpc.StatusCode.UNAUTHENTICATED
    assert actors[0].poll() is None and learner.poll() is None
    assert {line["incarnation"] for line in cluster.ledger("a")} == {1}


def stop_one(process):
    process.terminate()
    return process.wait(timeout=60)
