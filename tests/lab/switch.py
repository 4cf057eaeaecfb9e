"""Machines on one switch: each a network namespace with an address of its own, and a line that can be held to a rate.

What a thread starts while it is inside a machine belongs there: servers, mounts, connections. The switch is in a
namespace, too, and the interfaces of the machine that runs this are left alone.
"""
import ctypes
import os
import shutil
import subprocess
import threading

import pytest

CLONE_NEWNET = 0x40000000
MANY_PACKETS = "pfifo limit 1000"
NEIGHBOURS = 128  # the kernel has one table for all namespaces, with room for 1024 that were asked for: 32 machines have as many pairs
libc = ctypes.CDLL(None, use_errno=True)


def _checked(result):
    assert result == 0, os.strerror(ctypes.get_errno())


def held(device, number, bytes_per_s):
    """Packets queue for a quarter of a second, as at most lines. One of a thousand of them, which may have 64 KiB each, would
    queue for 13 s at 5 MB/s while many connections share it: longer than servers and clients wait for an answer."""
    burst = max(128 << 10, bytes_per_s // 200)
    return [f"class add dev {device} parent 1: classid 1:{number:x} htb rate {bytes_per_s * 8}bit burst {burst} cburst {burst} quantum 65536",
            f"qdisc add dev {device} parent 1:{number:x} bfifo limit {max(bytes_per_s // 4, 1 << 20)}"]


class Namespace:
    """Of networks; `with` it the thread is inside."""

    def __init__(self):
        for program in ["ip", "tc"]:
            if shutil.which(program) is None:
                pytest.skip(f"there is no {program}: install iproute2")
        self.outside, self.fd = threading.local(), None
        before = self._current()
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip(f"no network namespace can be made here: {os.strerror(ctypes.get_errno())}")
        self.fd = self._current()
        _checked(libc.setns(before, CLONE_NEWNET))
        os.close(before)
        self.ip(["link set lo up"])

    @staticmethod
    def _current():
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self):
        self.outside.fds = [*getattr(self.outside, "fds", []), self._current()]  # it may be inside already
        _checked(libc.setns(self.fd, CLONE_NEWNET))
        return self

    def __exit__(self, *_):
        outside = self.outside.fds.pop()
        _checked(libc.setns(outside, CLONE_NEWNET))
        os.close(outside)

    def ip(self, lines, program="ip"):
        with self:
            done = subprocess.run([program, "-batch", "-"], input="\n".join([*lines, ""]), text=True, capture_output=True, timeout=20)
        if done.returncode != 0:
            pytest.skip(f"this kernel has no such networks: {program}: {done.stderr.strip()}")

    def path(self):
        """For ip(8)."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def close(self):
        os.close(self.fd)  # it goes with the last process in it


def address_of(number):
    return f"10.77.{number // 250}.{number % 250 + 1}"


def hardware_of(number):
    return f"02:00:0a:4d:{number // 256:02x}:{number % 256:02x}"


class Machine(Namespace):
    def __init__(self, switch, number):
        super().__init__()
        self.switch, self.port, self.address = switch, f"port{number}", address_of(number)
        switch.ip([f"link add {self.port} type veth peer name eth0 netns {self.path()}", f"link set {self.port} master switch up"])
        self.ip([f"link set eth0 address {hardware_of(number)}", f"addr add {self.address}/16 dev eth0", "link set eth0 up"])
        self.ip([f"neigh add {address_of(other)} lladdr {hardware_of(other)} dev eth0 nud permanent" for other in range(NEIGHBOURS) if other != number])

    def cut_off(self, is_cut=True):
        """Its line is unplugged, or plugged in again: packets vanish, and connections hear nothing of it."""
        self.switch.ip([f"link set {self.port} {'down' if is_cut else 'up'}"])

    def hold(self, bytes_per_s):
        """Its line, to so much in each direction, headers of packets included; 0: it is not held."""
        for namespace, device in ((self, "eth0"), (self.switch, self.port)):
            if bytes_per_s == 0:
                namespace.ip([f"qdisc del dev {device} root"], "tc")
            else:
                namespace.ip([f"qdisc add dev {device} root handle 1: htb default 1", *held(device, 1, bytes_per_s)], "tc")

    def hold_to_each(self, others, bytes_per_s):
        """What it sends, to so much for each of the others; 0: it is not held."""
        if bytes_per_s == 0:
            self.ip(["qdisc del dev eth0 root"], "tc")
            return
        lines = ["qdisc add dev eth0 root handle 1: htb"]  # what no filter names goes through at once
        for number, other in enumerate(others, 1):
            lines += held("eth0", number, bytes_per_s)
            lines += [f"filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst {other.address}/32 flowid 1:{number:x}"]
        self.ip(lines, "tc")

    def moved(self):
        """Bytes that it has sent and received."""
        with self:
            lines = subprocess.run(["cat", "/proc/net/dev"], capture_output=True, text=True, check=True).stdout.splitlines()
        fields = next(line.split(":")[1].split() for line in lines if line.strip().startswith("eth0:"))
        return int(fields[8]), int(fields[0])


class Switch(Namespace):
    def __init__(self):
        super().__init__()
        self.machines = []
        self.ip(["link add switch type bridge", "link set switch up"])

    def machine(self):
        self.machines.append(Machine(self, len(self.machines)))
        return self.machines[-1]

    def close(self):
        for machine in self.machines:
            machine.close()
        super().close()
