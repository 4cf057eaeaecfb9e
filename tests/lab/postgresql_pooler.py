"""Stands between ecfs and a PostgreSQL server as a pooler of transactions: each transaction of a client goes to another
connection of the server, where nothing is known of what the client said before."""
import contextlib
import queue
import select
import shutil
import socket
import struct
import tempfile
import threading
import urllib.parse
from pathlib import Path

N_SERVERS = 3
CHUNK = 1 << 20
STARTUP = b"user\0ecfs\0database\0postgres\0client_encoding\0UTF8\0application_name\0ecfs\0\0"


def _messages(buffer):
    """Takes those that are whole: (type, content)."""
    while len(buffer) >= 5 and len(buffer) > struct.unpack(">I", buffer[1:5])[0]:
        end = 1 + struct.unpack(">I", buffer[1:5])[0]
        yield bytes(buffer[:1]), bytes(buffer[5:end])
        del buffer[:end]


class Pooler:
    def __init__(self, cluster):
        self.directory = Path(tempfile.mkdtemp(prefix="ecfs-pooler-"))
        self.location = f"postgresql://ecfs@/postgres?host={urllib.parse.quote(str(self.directory), safe='')}"
        self.server_path = str(cluster.directory / ".s.PGSQL.5432")
        self.free = queue.Queue()  # connections of the server, the one that rested longest first
        for _ in range(N_SERVERS):
            self._connect()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.directory / ".s.PGSQL.5432"))
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _connect(self):
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.server_path)
        server.sendall(struct.pack(">II", len(STARTUP) + 8, 3 << 16) + STARTUP)
        greeting, unread = b"", bytearray()
        while not greeting or b"Z" not in [kind for kind, _ in _messages(unread)]:
            data = server.recv(CHUNK)
            greeting += data
            unread += data
        self.greeting = greeting
        self.free.put(server)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client, contextlib.suppress(OSError):
            if client.recv(CHUNK):
                client.sendall(self.greeting)
                while self._transaction(client):
                    pass

    def _transaction(self, client):
        """Whether there may be another."""
        data = client.recv(CHUNK)
        if not data or data[:1] == b"X":
            return False
        server, n_asked, asked, answered = self.free.get(), 0, bytearray(), bytearray()
        while True:
            if data:
                server.sendall(data)
                asked += data
                n_asked += sum(kind in b"QS" for kind, _ in _messages(asked))
            ready, _, _ = select.select([client, server], [], [])
            if server in ready:
                heard = server.recv(CHUNK)
                client.sendall(heard)
                answered += heard
                states = [content for kind, content in _messages(answered) if kind == b"Z"]
                n_asked -= len(states)
                if states and states[-1] == b"I" and n_asked == 0:
                    self.free.put(server)
                    return True
            data = client.recv(CHUNK) if client in ready else b""
            if client in ready and (not data or data[:1] == b"X"):  # amid a transaction, which ends with its connection
                server.close()
                self._connect()
                return False

    def close(self):
        self.listener.close()
        while not self.free.empty():
            self.free.get().close()
        shutil.rmtree(self.directory)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
