"""Two machines and one archive: whichever stops between two of its steps, one sees the other, and nothing is lost."""
import os
import subprocess
import threading

import lab
import pytest
from steps import Pauses
from test_takeover import end, words_of

N_POINTS = int(os.environ.get("ECFS_PAUSES", 3))  # tools/check nightly has all of them


def points(n_steps):
    """Some of them, the first and the last among them."""
    n_points = min(N_POINTS, n_steps)
    return sorted({1 + round(at * (n_steps - 1) / max(n_points - 1, 1)) for at in range(n_points)})


class Machines:
    """The old machine, which has the archive mounted, and one that takes it over; one of them stops when it is told to."""

    def __init__(self, place, monkeypatch, old_stops):
        self.place = place
        self.endpoints = place.directories()
        self.archive = place.archive(self.endpoints)
        self.pauses = Pauses(place, [endpoint.root for endpoint in self.endpoints])
        self.environment = self.pauses.environment()
        with monkeypatch.context() as changed:
            for name in [name for name in self.environment if name not in os.environ] if old_stops else []:
                changed.setenv(name, self.environment[name])
            self.mount = place.mount(self.archive)
        self.acknowledged = {}
        assert self.write("first")

    def write(self, name):
        """Whether the old machine says that it is stored."""
        content = os.urandom(40_000)
        try:
            (self.mount.path / name).write_bytes(content)
        except OSError:
            return False
        if lab.ecfs("wait", self.archive.path, check=False).returncode != 0:
            return False
        self.acknowledged[name] = content
        return True

    def take_over(self, **options):
        return subprocess.Popen([lab.PROGRAM, "takeover", self.place.path / f"new-{self.archive.path.name}", "--yes",
                                 *words_of(self.endpoints)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)

    def judge(self, status, where):
        """Of two machines one has the archive, and that has all that was acknowledged."""
        archive = self.archive
        if status == 0:
            lab.until(lambda: not self.write("late"), 60, f"{where}: the old machine sees the new one")
            archive = lab.Archive(self.place.path / f"new-{archive.path.name}", self.endpoints)
            end(self.mount)
            self.mount = self.place.mount(archive)
        else:
            lab.until(lambda: self.write("late"), 60, f"{where}: the old machine goes on")
        for name, content in self.acknowledged.items():
            assert (self.mount.path / name).read_bytes() == content, f"{where}: {name}"
        self.mount.kill()


@pytest.mark.slow
def test_who_takes_over_stops_between_two_steps(place, monkeypatch):
    machines = Machines(place, monkeypatch, old_stops=False)
    process = machines.take_over(env=machines.environment)
    process.communicate(timeout=60)
    machines.judge(process.returncode, "without a pause")
    n_steps = machines.pauses.count()
    assert n_steps > 6 * 4, "six markers, if nothing else"
    for at in points(n_steps):
        machines = Machines(place, monkeypatch, old_stops=False)
        machines.pauses.stop_at(at)
        process = machines.take_over(env=machines.environment)
        lab.until(lambda: machines.pauses.where() or process.poll() is not None, 60, "it stops, or has had fewer steps")
        where = machines.pauses.where()
        machines.write("meanwhile")
        machines.pauses.go_on(process)
        process.communicate(timeout=120)
        machines.judge(process.returncode, where)


@pytest.mark.slow
def test_who_writes_stops_between_two_steps_while_another_takes_over(place, monkeypatch):
    machines = Machines(place, monkeypatch, old_stops=True)
    before = machines.pauses.count()
    assert machines.write("second")
    n_steps = machines.pauses.count() - before
    machines.mount.kill()
    assert n_steps > 6, "as many stripes, if nothing else"
    for at in points(n_steps):
        machines = Machines(place, monkeypatch, old_stops=True)
        machines.pauses.stop_at(at)
        writer = threading.Thread(target=machines.write, args=["meanwhile"])
        writer.start()
        lab.until(lambda: machines.pauses.where() or not writer.is_alive(), 60, "it stops, or has had fewer steps")
        where = machines.pauses.where()
        process = machines.take_over()
        process.communicate(timeout=120)
        assert process.returncode == 0, where
        machines.pauses.go_on(machines.mount.process)
        writer.join(120)
        machines.judge(0, where)
