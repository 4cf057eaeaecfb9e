"""A network of a test's own, whose lines to chosen ports can be held to a rate, and cut so that packets vanish.

What the test's thread starts while it is inside belongs to that network: servers, mounts, connections.
"""
import ctypes
import os
import shutil
import subprocess

import lab
import pytest

CLONE_NEWNET = 0x40000000
MANY_PACKETS = "pfifo limit 1000"
NO_PACKET = "bfifo limit 1"  # one byte: each is dropped, and nobody is told


class Network:
    """Loopback in a network namespace. Ports are those of servers; both directions share one rate."""

    def __init__(self):
        if not lab.ROOT:
            pytest.skip("only root may make network namespaces")
        for program in ["ip", "tc"]:
            if shutil.which(program) is None:
                pytest.skip(f"there is no {program}: install iproute2")
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        if self.libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip(f"no network namespace can be made here: {os.strerror(ctypes.get_errno())}")
        self.classes = {}  # port -> number of its class
        lab.run("ip", "link", "set", "lo", "up")

    def limit(self, ports, bytes_per_s):
        """Once per network: makes lines to ports, of this rate each."""
        lines = ["qdisc add dev lo root handle 1: htb"]  # what no filter names goes through at once
        for number, port in enumerate(ports, 1):
            self.classes[port] = number
            lines += [f"class add dev lo parent 1: classid 1:{number:x} htb rate {bytes_per_s * 8}bit "
                      "burst 128kb cburst 128kb quantum 65536",
                      f"qdisc add dev lo parent 1:{number:x} {MANY_PACKETS}"]
            lines += [f"filter add dev lo parent 1: protocol ip prio 1 u32 match ip protocol 6 0xff "
                      f"match ip {end} {port} 0xffff flowid 1:{number:x}" for end in ("sport", "dport")]
        self._tell(lines)

    def cut(self, ports):
        """Packets vanish from now on: no answer, no error."""
        self._tell([f"qdisc replace dev lo parent 1:{self.classes[port]:x} {NO_PACKET}" for port in ports])

    def mend(self, ports):
        self._tell([f"qdisc replace dev lo parent 1:{self.classes[port]:x} {MANY_PACKETS}" for port in ports])

    @staticmethod
    def _tell(lines):
        done = subprocess.run(["tc", "-batch", "-"], input="\n".join([*lines, ""]), text=True, capture_output=True,
                              timeout=20)
        if done.returncode != 0:
            pytest.skip(f"this kernel cannot cut a line: {done.stderr.strip()}")

    def close(self):
        assert self.libc.setns(self.outside, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        os.close(self.outside)
