#!/usr/bin/python3
"""Lookups in the distributed hash table: tests/bench/locate.py [NODES [SECONDS]]

For 10, 100 and 1,000 lookups a second, evenly spread over real nodes on one machine, each with a process of its own:
how long they take, how many found nothing, and how many were begun a second in fact. Once as it is, once with each value
put anew ten times a second, once while nodes end and others come. A value is found if the newest one that was put two
seconds before is among those that come.

All nodes have one address here, of which OpenDHT takes 200 requests a second at each node: what goes beyond that is
about this machine, and not about lookups from as many machines.
"""
import base64
import queue
import random
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent / "lab")]
import dht  # noqa: E402

NETWORK, N_KEYS, GRACE_S, TIMEOUT_S = 0xbe7c4, 50, 2, 20
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
        self.node, self.table, self.asked, self.took, self.missed = node, table, {}, [], 0
        self.lock, self.number, self.values = threading.Lock(), 1_000_000, {}
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
                if word == "value":
                    self.values.setdefault(int(number), []).append(int(base64.b64decode(more[0])))
                elif int(number) in self.asked:
                    _, begun, expected = self.asked.pop(int(number))
                    found = self.values.pop(int(number), [])
                    self.took.append(time.monotonic() - begun)
                    self.missed += max(found, default=-1) < max(expected, 1)


def pace(rate, seconds, act):
    begun = time.monotonic()
    for i in range(int(rate * seconds)):
        delay = begun + i / rate - time.monotonic()
        if delay > 0:
            time.sleep(delay)
        act(i)
    return time.monotonic() - begun


def measure(rate, seconds, n_nodes, updates, churn):
    nodes = dht.start(NETWORK, n_nodes)
    keys = [dht.key() for _ in range(N_KEYS)]
    table = Table(keys)
    askers = [Asker(node, table) for node in nodes]
    ended = threading.Event()
    try:
        for i, key in enumerate(keys):
            askers[i % n_nodes].put(key)
        time.sleep(GRACE_S + 1)
        if updates:
            threading.Thread(target=lambda: pace(10, seconds, lambda i: askers[0].put(keys[i % N_KEYS])), daemon=True).start()

        def come_and_go():
            while not ended.wait(1):
                gone = random.randrange(2, len(askers))
                askers[gone].node.kill()
                askers[gone] = Asker(dht.Node(NETWORK, [nodes[0].port]), table)
                everybody.append(askers[gone])
        everybody = list(askers)
        if churn:
            threading.Thread(target=come_and_go, daemon=True).start()
        took = pace(rate, seconds, lambda i: askers[i % 2 if churn else i % n_nodes].ask(random.choice(keys)))
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end and any(asker.asked for asker in everybody if asker.node.process.poll() is None):
            time.sleep(0.05)
    finally:
        ended.set()
        time.sleep(0.2)
        for asker in everybody:
            asker.node.kill()
    all_took = sorted(each for asker in everybody for each in asker.took)
    n_asked = int(rate * seconds)
    tail = all_took[int(len(all_took) * 0.99) - 1] if all_took else float("nan")
    print(f"{rate:5}/s {'updates' if updates else '':8}{'churn' if churn else '':6} begun {n_asked / took:6.0f}/s  answered {len(all_took):6} of {n_asked:6}  "
          f"not the newest {sum(asker.missed for asker in everybody):5}  median {statistics.median(all_took or [float('nan')]) * 1e3:8.1f} ms  99% {tail * 1e3:8.1f} ms", flush=True)


def main():
    n_nodes, seconds = (int(word) for word in (sys.argv[1:] + ["16", "10"][len(sys.argv) - 1:]))
    print(f"{n_nodes} nodes, {seconds} s each")
    for updates, churn in ((False, False), (True, False), (True, True)):
        for rate in RATES:
            measure(rate, seconds, n_nodes, updates, churn)


if __name__ == "__main__":
    main()
