"""What work costs: wall clock, and processor time of client, servers and the program that asks, each apart."""
import ctypes
import os
import resource
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import lab
import processors

PR_SET_CHILD_SUBREAPER = 36


def cpu_of(pid):
    """Seconds of a process and of what it waited for."""
    return processors.used(pid, waited=True)


def tree_cpu(pids):
    """The same of the processes and all below them."""
    return sum(map(cpu_of, {each for root in pids for each in [root, *lab.descendants(root)]}))


def adopt_orphans():
    """Makes processes below us whose parent ends our children, where they can be found and counted."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("prctl: cannot become the reaper of orphans")


def own_children(*names):
    """Our children of these names, and whether each has ended."""
    return [(pid, status["State"].startswith("Z")) for pid, status in lab.processes()
            if int(status["PPid"]) == os.getpid() and status["Name"] in names]


def alive(servers):
    """Process numbers of those that run."""
    return [server.process.pid for server in servers if server.process is not None]


class Servers:
    """Processor time of servers with all their sessions, ended ones too.

    A session of sshd that ends does not wait for its SFTP server, so the time of that one would be lost with it. Such orphans
    become our children (see adopt_orphans), and are counted here before they are reaped. lasting: servers whose processes
    go on when a client has ended.
    """

    def __init__(self, listeners, lasting=()):
        self.listeners, self.lasting = listeners, lasting
        self.of_orphans = 0

    def _pids(self):
        return alive(self.listeners)

    def _orphans(self):
        """SFTP servers whose session is gone, and whether each has ended."""
        children = own_children("sshd", "sshd-session", "sftp-server")
        return [(pid, ended) for pid, ended in children if pid not in self._pids()]

    def wait_orphans(self):
        """Waits for SFTP servers to end whose session has."""
        lab.until(lambda: all(ended for _, ended in self._orphans()), 20, "SFTP servers end")

    def wait_sessions(self):
        """Waits for all sessions to end, of clients that have."""
        lab.until(lambda: not any(map(lab.descendants, self._pids())), 20, "sessions of sshd end")
        self.wait_orphans()

    def cpu(self):
        for pid, ended in self._orphans():
            if ended:
                self.of_orphans += cpu_of(pid)
                os.waitpid(pid, 0)
        return tree_cpu(self._pids() + alive(self.lasting)) + self.of_orphans


@dataclass
class Cost:
    """Of one piece of work: wall clock and processor time in seconds; the share of this machine's processors that went
    to programs which have nothing to do with it (or to other virtual machines), from 0 to 1; bytes on the wire, with
    all that protocols add to them."""
    seconds: float
    client_cpu: float
    server_cpu: float
    program_cpu: float
    others: float
    wire: int

    def all_cpu(self):
        return self.client_cpu + self.server_cpu + self.program_cpu


@dataclass
class Sample:
    rate_mb: float
    rtt_ms: int
    round: int
    system: str
    work: str
    bytes: int  # that were moved
    cost: Cost

    def line(self):
        return (self.rate_mb, self.rtt_ms)


def run_program(command):
    """Runs a shell command; its processor time with that of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    lab.run("sh", "-c", command, timeout=1800)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def wire_bytes():
    """What went over loopback so far, which is our own (see links.enter_namespace)."""
    lo = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(lo.partition(":")[2].split()[0])


def measured(system, work, servers):
    """The cost of system.run (work)."""
    pids, wire = system.client_pids(), wire_bytes()
    client, server, own, busy = tree_cpu(pids), servers.cpu(), time.thread_time(), processors.busy()[1]
    begin = time.monotonic()
    program = system.run(work)
    seconds = time.monotonic() - begin
    busy = processors.busy()[1] - busy
    if program is None:
        program = time.thread_time() - own
    if system.ends_with_work:
        servers.wait_sessions()
    cost = Cost(seconds, tree_cpu(pids) - client, servers.cpu() - server, program, 0, wire_bytes() - wire)
    if system.ends_with_work:
        cost.client_cpu, cost.program_cpu = cost.program_cpu, 0.0
    cost.others = max(0.0, min(1.0, (busy - cost.all_cpu()) / (seconds * os.cpu_count())))
    return cost


def median(values):
    values = list(values)
    return statistics.median(values) if values else None
