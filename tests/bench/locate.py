#!/usr/bin/python3
"""Lookups in the distributed hash table: tests/bench/locate.py [NODES [SECONDS [RATE...]]]

For 10, 100 and 1,000 lookups a second, evenly spread over real nodes, each a process of its own with an address of its
own (a network namespace, which needs root: tests/lab/switch.py): how long they take, how many found nothing, how many
were begun a second in fact, and how busy all processors of this machine were, with what else ran on it. Once as it is,
once with values put anew ten times a second, once right after a third of the nodes has gone, once while nodes end and
others come. A value is found if the newest one that was put two seconds before is among those that come: "newest" is
until it has come, "end" until the node has heard whom it asked, or has given up on them.

At last: how long it takes until an update is seen by each node that asks all the time.
"""
import base64
import os
import queue
import random
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent / "lab")]
import dht  # noqa: E402
import processors  # noqa: E402
import switch  # noqa: E402

NETWORK, N_KEYS, GRACE_S, TIMEOUT_S, N_UPDATES = 0xbe7c4, 50, 2, 20, 20
RATES = 10, 100, 1000


class Table:
    """What was put, and when."""

    def __init__(self, keys):
        self.lock, self.put_at = threading.Lock(), {key: [] for key in keys}

    def next(self, key):
        with self.lock:
            self.put_at[key].append(time.monotonic())
            return b"%d" % len(self.put_at[key])

    def expected(self, key):
        """The newest that everybody should see by now."""
        with self.lock:
            return sum(at < time.monotonic() - GRACE_S for at in self.put_at[key])


class Asker:
    """Many questions of one node at once."""

    def __init__(self, node, table):
        self.node, self.table, self.asked = node, table, {}
        self.ends, self.newest, self.lock, self.number, self.found = [], [], threading.Lock(), 1_000_000, set()
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, key):
        with self.lock:
            self.number += 1
            self.asked[self.number] = key, time.monotonic(), self.table.expected(key)
            self.node.say(f"get {self.number} {key}")

    def put(self, key):
        with self.lock:
            self.number += 1
            value = base64.b64encode(self.table.next(key)).decode()
            self.node.say(f"put {self.number} {key} {value}")

    def _listen(self):
        while self.node.process.poll() is None:
            try:
                word, number, *more = self.node.lines.get(timeout=1).split(" ")
            except queue.Empty:
                continue
            with self.lock:
                if word == "value" and int(number) in self.asked:
                    _, begun, expected = self.asked[int(number)]
                    if int(base64.b64decode(more[0])) >= max(expected, 1) and int(number) not in self.found:
                        self.found.add(int(number))
                        self.newest.append(time.monotonic() - begun)
                elif word == "done" and int(number) in self.asked:
                    self.ends.append(time.monotonic() - self.asked.pop(int(number))[1])


def pace(rate, seconds, act):
    begun = time.monotonic()
    for i in range(int(rate * seconds)):
        delay = begun + i / rate - time.monotonic()
        if delay > 0:
            time.sleep(delay)
        act(i)
    return time.monotonic() - begun


def used(nodes):
    return sum(processors.used(node.process.pid) for node in nodes)


def middle(seconds):
    return statistics.median(seconds or [float("nan")]) * 1e3


def tail(seconds, share=0.99):
    return sorted(seconds)[max(int(len(seconds) * share) - 1, 0)] * 1e3 if seconds else float("nan")


def measure(machines, rate, seconds, title, updates=False, gone=False, churn=False):
    nodes = dht.start(NETWORK, len(machines), machines)
    keys = [dht.key() for _ in range(N_KEYS)]
    table = Table(keys)
    askers = [Asker(node, table) for node in nodes]
    everybody, ended = list(askers), threading.Event()
    try:
        for i, key in enumerate(keys):
            askers[i % len(askers)].put(key)
        time.sleep(GRACE_S + 1)
        if gone:
            for asker in askers[2::3]:
                asker.node.kill()
            del askers[2::3]
        if updates:
            threading.Thread(target=lambda: pace(10, seconds, lambda i: askers[0].put(keys[i % N_KEYS])), daemon=True).start()

        def come_and_go():
            while not ended.wait(1):
                one = random.randrange(2, len(askers))
                askers[one].node.kill()
                askers[one] = Asker(dht.Node(NETWORK, nodes[:1], machine=askers[one].node.machine), table)
                everybody.append(askers[one])
        if churn:
            threading.Thread(target=come_and_go, daemon=True).start()
        (all_before, busy_before), ours_before = processors.busy(), used(nodes)
        took = pace(rate, seconds, lambda i: askers[i % (2 if churn else len(askers))].ask(random.choice(keys)))
        (all_after, busy_after), ours_after = processors.busy(), used(nodes)
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end and any(asker.asked for asker in everybody if asker.node.process.poll() is None):
            time.sleep(0.05)
    finally:
        ended.set()
        time.sleep(0.2)
        for asker in everybody:
            asker.node.kill()
    ends, newest = ([each for asker in everybody for each in getattr(asker, name)] for name in ("ends", "newest"))
    n_asked = int(rate * seconds)
    ours = "       -" if churn or gone else f"{(ours_after - ours_before) / n_asked * 1e3:5.2f} ms"
    print(f"{title:17} {rate:5}/s  begun {n_asked / took:5.0f}/s  newest found {len(newest):6} of {n_asked:6}: median {middle(newest):7.1f} ms  99% {tail(newest):7.1f} ms  "
          f"end {len(ends):6}: median {middle(ends):7.1f} ms  99% {tail(ends):7.1f} ms  processor each {ours}  "
          f"all processors {(busy_after - busy_before) / (all_after - all_before):4.0%}  load {os.getloadavg()[0]:5.1f}", flush=True)


def until_seen(machines):
    """A new value is put, and each node asks until it sees it: seconds until all have."""
    nodes, took, key = dht.start(NETWORK, len(machines), machines), [], dht.key()
    try:
        for i in range(N_UPDATES):
            value, begun = b"%d" % i, time.monotonic()
            nodes[i % len(nodes)].put(key, value)
            for node in nodes:
                while value not in node.get(key):
                    time.sleep(0.02)
            took.append(time.monotonic() - begun)
    finally:
        for node in nodes:
            node.kill()
    print(f"an update is seen by all {len(nodes)} nodes, one asked after the other: median {statistics.median(took) * 1e3:.0f} ms, longest of {N_UPDATES} {max(took) * 1e3:.0f} ms")


def main():
    n_nodes, seconds = (int(word) for word in (sys.argv[1:3] + ["16", "10"][len(sys.argv[1:3]):]))
    net = switch.Switch()
    machines = [net.machine() for _ in range(n_nodes)]
    print(f"{n_nodes} nodes, {seconds} s each")
    for title, how in (("as it is", {}), ("values put anew", {"updates": True}), ("a third has gone", {"gone": True}),
                       ("they come and go", {"updates": True, "churn": True})):
        for rate in map(int, sys.argv[3:] or RATES):
            measure(machines, rate, seconds, title, **how)
    until_seen(machines)
    net.close()


if __name__ == "__main__":
    main()
