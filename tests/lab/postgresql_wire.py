"""Stands between ecfs and a PostgreSQL server, and crashes the server at a counted step.

A step is what a client sends at once: a statement, or a few in a pipeline. The server is gone before it hears of it, or
when it has done it and before its answer is heard, so that the client cannot know which it was.
"""
import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import tempfile
import threading
import urllib.parse
from pathlib import Path

MOMENTS = ("before", "answered")
QUIET_S = 0.5  # an answer that does not end in this time ends with something else than "ready"
READY = b"Z"
CHUNK = 1 << 20


class Wire:
    def __init__(self, cluster):
        self.cluster = cluster
        self.directory = Path(tempfile.mkdtemp(prefix="ecfs-wire-"))
        self.location = f"postgresql://ecfs@/postgres?host={urllib.parse.quote(str(self.directory), safe='')}"
        self.server_path = str(cluster.directory / ".s.PGSQL.5432")
        self.lock = threading.Lock()
        self.at, self.moment, self.n_steps = 0, None, 0  # guarded by lock
        self.is_back = threading.Event()
        self.ends = set()  # sockets of connections that are open; guarded by lock
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.directory / ".s.PGSQL.5432"))
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, at, moment):
        """The server crashes at the step of this number from now on, from 1."""
        with self.lock:
            self.at, self.moment, self.n_steps = at, moment, 0
            self.is_back.clear()

    def disarm(self):
        """Whether it crashed; it is there again."""
        with self.lock:
            crashed = 0 < self.at <= self.n_steps
            self.at = 0
        assert not crashed or self.is_back.wait(120), "the server does not start again"
        return crashed

    def close(self):
        self.listener.close()
        self._cut()
        shutil.rmtree(self.directory)

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = socket.socket(socket.AF_UNIX)
        with client, server, contextlib.suppress(OSError):
            server.connect(self.server_path)
            with self.lock:
                self.ends |= {client, server}
            try:
                while self._pass_on(client, server):
                    pass
            finally:
                with self.lock:
                    self.ends -= {client, server}

    def _pass_on(self, client, server):
        ready, _, _ = select.select([client, server], [], [])
        for source in ready:
            data = source.recv(CHUNK)
            if not data:
                return False
            if source is server:
                client.sendall(data)
            elif not self._is_the_step():
                server.sendall(data)
            else:
                self._crash(server, data)
                return False
        return True

    def _is_the_step(self):
        with self.lock:
            self.n_steps += 1
            return self.n_steps == self.at

    def _crash(self, server, data):
        if self.moment == "answered":
            server.sendall(data)
            self._hear_all(server)
        self._cut()
        self.cluster.stop(signal.SIGQUIT)
        self.cluster.start()
        self.is_back.set()

    @staticmethod
    def _hear_all(server):
        """Messages of the answer, up to the one that says that it is ready again."""
        got = b""
        while select.select([server], [], [], QUIET_S)[0]:
            data = server.recv(CHUNK)
            if not data:
                return
            got += data
            while len(got) >= 5 and len(got) > struct.unpack(">I", got[1:5])[0]:
                is_ready = got[:1] == READY
                got = got[1 + struct.unpack(">I", got[1:5])[0]:]
                if is_ready and not got:
                    return

    def _cut(self):
        with self.lock:
            for end in self.ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
