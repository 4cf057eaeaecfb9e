"""Seconds of processors, as the kernel counts them."""
import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def used(pid, waited=False):
    """By a process, and if it is said by those it waited for; 0: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()  # from the third on
    except OSError:
        return 0
    return sum(map(int, fields[11:15 if waited else 13])) / TICK


def busy():
    """Since the start of the machine and of all together: how many there were, and how many of them were not idle."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]))
    return sum(fields) / TICK, (sum(fields) - fields[3] - fields[4]) / TICK
