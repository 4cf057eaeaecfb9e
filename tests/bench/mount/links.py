"""Links of a chosen speed and length on loopback: a network namespace of our own, in it tc's HTB on the servers' ports,
or, where there is a round trip, lab-proxy in front of each server."""
import contextlib
import os
import shutil
import subprocess
import sys
from typing import NamedTuple

import lab

MARK = "ECFS_BENCH_NAMESPACE"


def need_privileges(bench):
    """Ends the program where it cannot do what it is for."""
    if os.geteuid() != 0:
        sys.exit(f"{bench}: only root can mount, empty the page cache and limit links")
    for program, package in (("tc", "iproute2"), ("unshare", "util-linux")):
        if not shutil.which(program):
            sys.exit(f"{bench}: there is no {program}: apt install {package}")


def enter_namespace():
    """Runs the program again where loopback is nobody else's: others keep their speed, and nothing is left behind."""
    if MARK not in os.environ:
        os.environ[MARK] = "1"
        os.execvp("unshare", ["unshare", "--net", "--", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def tell_tc(lines):
    subprocess.run(["tc", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


class Line(NamedTuple):
    """What servers are reached through: MB/s in each direction, 0: no limit; milliseconds there and back."""
    rate_mb: float
    rtt_ms: int

    def __str__(self):
        rate = f"each server's link held to {self.rate_mb:g} MB/s" if self.rate_mb else "links not limited"
        return rate + (f", round trip {self.rtt_ms} ms" if self.rtt_ms else "")


class Far:
    """An sshd at the other end of a proxy: it is what the sshd is, at another port."""

    def __init__(self, server, line):
        self._server, self._proxy = server, lab.Proxy(server.port)
        self.port = self._proxy.port
        self._proxy.tell("delay", line.rtt_ms // 2)
        self._proxy.tell("throttle", int(line.rate_mb * 1e6))
        server.know(self.port)

    def __getattr__(self, name):
        return getattr(self._server, name)

    def url(self):
        return self._server.url(port=self.port)

    def endpoint(self):
        return self._server.endpoint(port=self.port)

    def close(self):
        self._proxy.close()


@contextlib.contextmanager
def reached_through(line, servers):
    """The servers as they are seen from the near end of the line."""
    if line.rtt_ms == 0:
        with Links([server.port for server in servers], line.rate_mb):
            yield servers
        return
    far = [Far(server, line) for server in servers]
    try:
        yield far
    finally:
        for server in far:
            server.close()


SHARED = {"sport": 0xfff0, "dport": 0xfff1}  # classes of tc


class Links:
    """While entered, each port has a link of rate_mb megabytes per second in each direction; rate_mb 0: no limit.
    shared: so has who uses them all, in each direction."""

    def __init__(self, ports, rate_mb, shared=False):
        self.ports, self.rate_mb, self.shared = ports, rate_mb, shared

    def __enter__(self):
        if self.rate_mb == 0:
            return self
        lines = ["qdisc add dev lo root handle 1: htb"]  # what no filter names goes through at once
        for parent in SHARED.values() if self.shared else ():
            lines.append(self._class("add", parent, self.rate_mb))
        for number, (port, end) in self._numbered():
            lines += [self._class("add", number, self.rate_mb, SHARED[end] if self.shared else None),
                      f"filter add dev lo parent 1: protocol ip prio 1 u32 match ip protocol 6 0xff "
                      f"match ip {end} {port} 0xffff flowid 1:{number:x}"]
        tell_tc(lines)
        return self

    def _numbered(self):
        return enumerate([(port, end) for port in self.ports for end in ("sport", "dport")], 1)

    def _class(self, verb, number, rate_mb, parent=None):
        # A packet of loopback has up to 64 KiB, and a burst must hold one. What is shared is lent to who wants it.
        own_mb = rate_mb if parent is None else rate_mb / len(self.ports)
        return (f"class {verb} dev lo parent 1:{parent or 0:x} classid 1:{number:x} htb rate {own_mb * 8000:.0f}kbit "
                f"ceil {rate_mb * 8000:.0f}kbit burst 128kb cburst 128kb quantum 65536")

    def hold(self, ports, rate_mb):
        """Gives some of the ports another rate, above 0; while entered and not without limit."""
        tell_tc([self._class("change", number, rate_mb) for number, (port, _) in self._numbered() if port in ports])

    def __exit__(self, *_):
        if self.rate_mb > 0:
            subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
