"""A network of a test's own, whose lines to chosen ports can be held to a rate, and cut so that packets vanish.

What the test's thread starts while it is inside belongs to that network: servers, mounts, connections.
"""
import switch

NO_PACKET = "bfifo limit 1"  # one byte: each is dropped, and nobody is told


class Network(switch.Namespace):
    """Its loopback. Ports are those of servers; both directions share one rate."""

    def __init__(self):
        super().__init__()
        self.__enter__()
        self.classes = {}  # port -> number of its class

    def limit(self, ports, bytes_per_s):
        """Once per network: makes lines to ports, of this rate each."""
        lines = ["qdisc add dev lo root handle 1: htb"]  # what no filter names goes through at once
        for number, port in enumerate(ports, 1):
            self.classes[port] = number
            lines += switch.held("lo", number, bytes_per_s)
            lines += [f"filter add dev lo parent 1: protocol ip prio 1 u32 match ip protocol 6 0xff "
                      f"match ip {end} {port} 0xffff flowid 1:{number:x}" for end in ("sport", "dport")]
        self.ip(lines, "tc")

    def cut(self, ports):
        """Packets vanish from now on: no answer, no error."""
        self._lead_to(ports, NO_PACKET)

    def mend(self, ports):
        self._lead_to(ports, switch.MANY_PACKETS)

    def _lead_to(self, ports, queue):
        self.ip([f"qdisc replace dev lo parent 1:{self.classes[port]:x} {queue}" for port in ports], "tc")

    def close(self):
        self.__exit__()
        super().close()
