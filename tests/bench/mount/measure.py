"""What work costs: wall clock, and processor time of client, servers and the program that asks, each apart."""
import ctypes
import os
import resource
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import lab

TICK = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36


def stat_of(pid):
    """The name, and the fields of /proc/PID/stat from the third on (state, parent, ...); None: no such process."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return None
    return name, rest.split()


def cpu_of(fields):
    """Seconds of a process and of what it waited for."""
    return sum(map(int, fields[11:15])) / TICK


def tree_cpu(pids):
    """The same of the processes and all below them."""
    found = map(stat_of, {each for root in pids for each in [root, *lab.descendants(root)]})
    return sum(cpu_of(stat[1]) for stat in found if stat)


def adopt_orphans():
    """Makes processes below us whose parent ends our children, where they can be found and counted."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("prctl: cannot become the reaper of orphans")


def own_children(*names):
    """Process and stat fields of our children of these names."""
    found = ((int(pid), stat_of(pid)) for pid in os.listdir("/proc") if pid.isdigit())
    return [(pid, stat[1]) for pid, stat in found
            if stat and int(stat[1][1]) == os.getpid() and stat[0] in names]


class Servers:
    """Processor time of sshd processes with all their sessions, ended ones too.

    A session that ends does not wait for its SFTP server, so the time of that one would be lost with it. Such orphans
    become our children (see adopt_orphans), and are counted here before they are reaped.
    """

    def __init__(self, listeners):
        self.listeners = listeners
        self.of_orphans = 0

    def _pids(self):
        return [server.process.pid for server in self.listeners if server.process is not None]

    def _orphans(self):
        """Process and stat of SFTP servers whose session is gone."""
        children = own_children("sshd", "sshd-session", "sftp-server")
        return [(pid, fields) for pid, fields in children if pid not in self._pids()]

    def settled(self):
        """Waits for the sessions to end, of clients that have."""
        def all_ended():
            return (not any(lab.descendants(pid) for pid in self._pids()) and
                    all(fields[0] == "Z" for _, fields in self._orphans()))
        lab.until(all_ended, 20, "sessions of sshd end")

    def cpu(self):
        for pid, fields in self._orphans():
            if fields[0] == "Z":
                os.waitpid(pid, 0)
                self.of_orphans += cpu_of(fields)
        return tree_cpu(self._pids()) + self.of_orphans


@dataclass
class Sample:
    """One piece of work, once; CPU in seconds. seconds is scaled up where less than `bytes` was moved."""
    rate_mb: float
    system: str
    work: str
    seconds: float
    bytes: int
    client_cpu: float
    server_cpu: float
    program_cpu: float


def run_program(command):
    """Runs a shell command; its processor time with that of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    lab.run("sh", "-c", command, timeout=1800)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(work, client_pids, servers, settle):
    """Calls work (), which returns the processor time of programs it ran or None, between readings of all clocks.

    Returns seconds and CPU seconds of client, servers, program. settle: the clients end with the work.
    """
    client, server, own = tree_cpu(client_pids), servers.cpu(), time.thread_time()
    begin = time.monotonic()
    program = work()
    seconds = time.monotonic() - begin
    if program is None:
        program = time.thread_time() - own
    if settle:
        servers.settled()
    return seconds, tree_cpu(client_pids) - client, servers.cpu() - server, program


def median(samples, field):
    values = [getattr(sample, field) for sample in samples]
    return statistics.median(values) if values else None
