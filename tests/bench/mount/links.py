"""Links of a chosen speed on loopback: a network namespace of our own, and in it tc's HTB on the servers' ports."""
import os
import subprocess
import sys

MARK = "ECFS_BENCH_NAMESPACE"


def enter_namespace():
    """Runs the program again where loopback is nobody else's: others keep their speed, and nothing is left behind."""
    if MARK not in os.environ:
        os.environ[MARK] = "1"
        os.execvp("unshare", ["unshare", "--net", "--", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


class Links:
    """While entered, each port has a link of rate_mb megabytes per second in each direction; rate_mb 0: no limit."""

    def __init__(self, ports, rate_mb):
        self.ports, self.rate_mb = ports, rate_mb

    def __enter__(self):
        if self.rate_mb == 0:
            return
        lines = ["qdisc add dev lo root handle 1: htb"]  # what no filter names goes through at once
        ends = [(port, end) for port in self.ports for end in ("sport", "dport")]
        for number, (port, end) in enumerate(ends, 1):
            # A packet of loopback has up to 64 KiB, and a burst must hold one.
            lines += [f"class add dev lo parent 1: classid 1:{number:x} htb rate {self.rate_mb * 8000:.0f}kbit "
                      "burst 128kb cburst 128kb quantum 65536",
                      f"filter add dev lo parent 1: protocol ip prio 1 u32 match ip protocol 6 0xff "
                      f"match ip {end} {port} 0xffff flowid 1:{number:x}"]
        subprocess.run(["tc", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)

    def __exit__(self, *_):
        if self.rate_mb > 0:
            subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
