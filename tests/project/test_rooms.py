"""The library is a house: each folder below src/ is a room, and uses only those below it, by includes and by calls."""
import re
import subprocess
from collections import defaultdict

import lab
import pytest

SOURCE = lab.REPOSITORY / "src"
SHARED = ["endpoint/core", "endpoint/ssh", "endpoint/web"]  # by protocols: the other folders there
PROTOCOLS = sorted({f"endpoint/{path.name}" for path in (SOURCE / "endpoint").iterdir() if path.is_dir()} - set(SHARED))
# From below to above. A header that lies in the folder of several rooms is the contract that they implement.
ROOMS = ["util", "program", "key", "codec", "catalog", *SHARED, *PROTOCOLS, "endpoint", "cache", "peer", "locate", "object", "sim", "archive", "commit", "packing", "journal", "recover",
         "staging", "check", "wire", "upkeep", "service", "verbs", "fsck", "control", "fs"]
WITH_LIBPQ = ("catalog/pg_", "catalog/db_pg.")
MOST_INCLUDERS = 15  # of a header that a room keeps to itself
LARGEST_KNOT = 6  # files of a room that call each other in a circle
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
TYPE = re.compile(r"^(?:typedef )?(?:struct|enum|union) (Ecfs\w+)[^;{]*\{", re.M)


def sources(pattern="**/*.[ch]"):
    return sorted(SOURCE.glob(pattern))


def room(path):
    """Of a source, or of what is written behind #include."""
    return str(path.parent.relative_to(SOURCE) if path.is_absolute() else path.parent)


def included(path):
    return [SOURCE / name for name in INCLUDE.findall(path.read_text()) if (SOURCE / name).exists()]


def name(path):
    return str(path.relative_to(SOURCE))


def may_use(mine, other):
    """What is below; and protocols know nothing of each other."""
    return ROOMS.index(other) < ROOMS.index(mine) and not {mine, other} <= set(PROTOCOLS)


def test_every_folder_is_a_room():
    assert {room(path) for path in sources()} == set(ROOMS)


@pytest.mark.parametrize("path", sources(), ids=name)
def test_includes_point_downward_and_at_faces(path):
    for header in included(path):
        mine, other = room(path), room(header)
        if other == mine or mine.startswith(other + "/"):
            continue
        assert may_use(mine, other), f"{mine} may not include {name(header)}"
        assert not header.name.endswith("_priv.h"), f"{name(header)} is {other}'s own"


def test_private_headers_are_shared_by_few():
    includers = defaultdict(list)
    for path in sources():
        for header in included(path):
            if header.name.endswith("_priv.h"):
                includers[name(header)].append(name(path))
    assert includers
    assert not {header: paths for header, paths in includers.items() if len(paths) > MOST_INCLUDERS}


def test_type_names_stand_for_one_type():
    places = defaultdict(set)
    for path in [*sources(), *(lab.REPOSITORY / "include").glob("**/*.h")]:
        for found in TYPE.findall(path.read_text()):
            places[found].add(str(path.relative_to(lab.REPOSITORY)))
    assert len(places) > 100
    assert not {found: paths for found, paths in places.items() if len(paths) > 1}


@pytest.fixture(scope="module")
def calls():
    """Which file uses functions or data of which: {caller: {callee: names}}, from what was compiled."""
    objects = {}
    for path in sources("**/*.c"):
        compiled = "src_" + name(path).replace("/", "_") + ".o"
        objects[path] = next((place for place in sorted(lab.BUILD.glob("*.p")) if (place / compiled).exists()), None)
        objects[path] = objects[path] and objects[path] / compiled
    missing = [name(path) for path, place in objects.items()
               if place is None and room(path) not in PROTOCOLS and not name(path).startswith(WITH_LIBPQ)]
    assert not missing, "only protocols, and PostgreSQL or what says that it is not there, may be left out of a build"
    source = {str(place): path for path, place in objects.items() if place}
    defined, used = {}, {path: set() for path in objects}
    for line in subprocess.run(["nm", "-A", *source], capture_output=True, text=True, check=True).stdout.splitlines():
        place, _, told = line.partition(".o:")
        path = source[place + ".o"]
        *_, kind, symbol = told.split()
        if kind == "U":
            used[path].add(symbol)
        elif kind in "TDRBV":
            defined[symbol] = path
    edges = defaultdict(lambda: defaultdict(set))
    for path, symbols in used.items():
        for symbol in symbols & defined.keys():
            if defined[symbol] != path:
                edges[path][defined[symbol]].add(symbol)
    assert sum(map(len, edges.values())) > 500
    return edges


def test_rooms_call_only_what_is_below_them(calls):
    forbidden = [f"{name(caller)} calls {', '.join(sorted(symbols))} of {name(callee)}"
                 for caller, callees in calls.items() for callee, symbols in callees.items()
                 if room(callee) != room(caller) and not may_use(room(caller), room(callee))]
    assert not forbidden, "\n".join(forbidden)


def knots(edges):
    """The strongly connected components with more than one member, by Tarjan's algorithm."""
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            first = stack.index(node)
            found.append(stack[first:])
            del stack[first:]

    for node in list(edges):
        if node not in order:
            visit(node)
    return [knot for knot in found if len(knot) > 1]


def test_no_circle_of_calls_is_large(calls):
    large = [sorted(map(name, knot)) for knot in knots(calls) if len(knot) > LARGEST_KNOT]
    assert not large, large
