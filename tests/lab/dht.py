"""Nodes of the distributed hash table: the program that ecfs runs for that, spoken to as ecfs does."""
import base64
import contextlib
import hmac
import os
import queue
import subprocess
import threading
import time
import uuid

import lab

PROGRAM = lab.BUILD / "tools/ecfs-locate"


class Node:
    """One that takes part in @network, a number, and asks the nodes @known first; on a machine of its own (switch.py), or here."""

    def __init__(self, network, known=(), port=0, machine=None):
        self.machine, self.address = machine, machine.address if machine else "127.0.0.1"
        with machine or contextlib.nullcontext():
            self._start(network, port)
        for other in known:
            self.say(f"bootstrap {other.port} {other.address}")

    def _start(self, network, port):
        self.process = subprocess.Popen([PROGRAM, str(port), f"{network:x}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines, self.number = queue.SimpleQueue(), 0
        threading.Thread(target=self._listen, daemon=True).start()
        word, _, said = self.lines.get(timeout=30).partition(" ")
        assert word == "ready"
        self.port = int(said)

    def _listen(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, words, rest="", timeout=60):
        """Values, and whether anybody has answered."""
        self.number += 1
        self.say(f"{words[0]} {self.number} {words[1]}{rest}")
        return self.answer(self.number, timeout)

    def answer(self, number, timeout=60):
        values, end = [], time.monotonic() + timeout
        while True:
            word, said, *more = self.lines.get(timeout=max(0.01, end - time.monotonic())).split(" ")
            if int(said) == number and word == "value":
                values.append(base64.b64decode(more[0]))
            elif int(said) == number and word == "done":
                return values, more[0] == "yes"

    def put(self, key, value):
        return self.ask(("put", key), " " + base64.b64encode(value).decode())[1]

    def get(self, key):
        return self.ask(("get", key))[0]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


def network_of(archive):
    """The number of an archive's network: by HKDF-SHA-256 of its UUID."""
    secret = uuid.UUID(archive.json("status")["archive"]).bytes
    random = hmac.digest(bytes(32), secret, "sha256")
    return int.from_bytes(hmac.digest(random, b"ecfs locate network\x01", "sha256")[:4], "little") | 1


def key():
    return os.urandom(20).hex()


def start(network, n, machines=()):
    """Nodes that know each other: a value that one puts another gets. Each on one of the machines, if there are any."""
    nodes = []
    for i in range(n):
        nodes.append(Node(network, nodes[:1], machine=machines[i] if machines else None))
    nodes[0].say(f"bootstrap {nodes[-1].port} {nodes[-1].address}")  # else it waits until it looks around
    for node in nodes:
        lab.until(lambda node=node: node.put(key(), b"y"), 30, "a node knows others")
    return nodes
