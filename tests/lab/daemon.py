"""What servers that listen on a port of their own have in common."""
import socket

import lab


class Daemon:
    """Has process (None: it does not run), port (0: it had none yet) and a title for messages, and knows how to _spawn()."""

    def start(self):
        """Listens again, on the same port once it had one; another program may take a free port before us, so retry."""
        assert self.process is None
        self.port = lab.until(lambda: self._start_on(self.port or lab.free_port()), 60, f"{self.title} starts", pause=0.1)

    def _start_on(self, port):
        """The port, or None: somebody else has it."""
        self.process = self._spawn(port)
        lab.until(lambda: self.process.poll() is not None or self._listens() and self._answers(port), 60,
                  f"{self.title} answers on port {port}")
        if self.process.poll() is None:
            return port
        self.process = None
        return None

    def _listens(self):
        """Whether it says that it has the port; else it may be another one that answers."""
        return True

    @staticmethod
    def _answers(port):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
        except OSError:
            return False
