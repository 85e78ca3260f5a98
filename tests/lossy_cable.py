"""A cable between two hosts that is slow and loses packets: what netem does, for kernels that are built without it."""

import fcntl
import heapq
import os
import random
import selectors
import struct
import subprocess
import threading
import time

TUNSETIFF, TUN_WITHOUT_HEADER = 0x400454CA, 0x1001


class LossyCable:
    """10.213.2.2 here and 10.213.2.1 in a namespace, with a TUN device at each end. Each packet takes so many seconds. Some
    are lost on the way, below TCP, which notices and sends them again."""

    def __init__(self, namespace, seconds=0.2, lost=0.01, net="10.213.2", ends=("gipot2", "gipot3")):
        self.seconds, self.lost, self.carried, self.dropped = seconds, lost, 0, 0
        self.here, self.peer = ends[0], f"{net}.1"
        self.devices = [self.device(name) for name in ends]
        for words in (f"link set {ends[1]} netns {namespace}", f"addr add {net}.2/24 dev {ends[0]}", f"link set {ends[0]} up",
                      f"-n {namespace} addr add {net}.1/24 dev {ends[1]}", f"-n {namespace} link set {ends[1]} up"):  # fmt: skip
            subprocess.run(["ip", *words.split()], check=True)
        self.told_to_end, self.tell = os.pipe()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    @staticmethod
    def device(name):
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", name.encode(), TUN_WITHOUT_HEADER))
        return file

    def work(self):
        chance, under_way = random.Random(1), []
        chooser = selectors.DefaultSelector()
        for file in (*self.devices, self.told_to_end):
            chooser.register(file, selectors.EVENT_READ)
        while True:
            ready = chooser.select(max(0.0, under_way[0][0] - time.monotonic()) if under_way else None)
            for key, _ in ready:
                if key.fd == self.told_to_end:
                    return
                other = self.devices[1 - self.devices.index(key.fd)]
                while packet := self.attempt(os.read, key.fd, 65536):
                    self.carried += 1
                    if chance.random() < self.lost:
                        self.dropped += 1
                    else:
                        heapq.heappush(under_way, (time.monotonic() + self.seconds, self.carried, other, packet))
            while under_way and under_way[0][0] <= time.monotonic():
                self.attempt(os.write, *heapq.heappop(under_way)[2:])

    @staticmethod
    def attempt(f, *arguments):
        try:
            return f(*arguments)
        except OSError:  # nothing more to read, or the cable is cut
            return None

    def tear(self):
        """All connections that go through the cable end in the middle of what they carry. Says how many there were."""
        ended = subprocess.run(["ss", "-K", "-H", "-t", "dst", self.peer], capture_output=True, text=True)
        return len(ended.stdout.splitlines())

    def close(self):
        os.write(self.tell, b".")
        self.thread.join(10)
        for file in (*self.devices, self.told_to_end, self.tell):
            os.close(file)
