"""Samples as tables: medians, what they are in relation to sshfs and to the mover, and processor time."""
import measure
import systems

GIB = 1 << 30
PUBLISHED_LOSSES = {1: "0.92", 2: "0.84", 3: "0.74"}  # Gaidioz et al. 2006, 500 MB
TO_NULL = " to null"  # behind works that keep nothing, as movers and readers of mounts do
SMALL_WORKS = ["first byte", "random 64 KiB", "cp -r", "8 at a time", "rsync -a", "small out", "find", "rm -r"]


def ratio(value, base):
    return "-" if value is None or not base else f"{value / base:.2f}"


def number(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def names_in_order(samples):
    return list(dict.fromkeys(sample.system for sample in samples))


def pick(samples, work, system):
    return [sample for sample in samples if sample.work == work and sample.system == system]


def print_rows(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(row[0].ljust(widths[0]) + "".join("  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:])))
    print(flush=True)


def base_of(samples, work, word, system, value):
    """The value of the row with this word in its name, and of the same code where such rows have one."""
    code = system.rpartition(" ")[2]
    for name in names_in_order(samples):
        if name.startswith(word) and (":" not in name or name.endswith(code)):
            return value(pick(samples, work, name))
    return None


def per_gib(attribute):
    """A function from samples to the median of something in their cost, for each GiB that was moved."""
    def value(found):
        return measure.median(attribute(sample.cost) * GIB / sample.bytes for sample in found)
    return value


def links_seconds(work, system, line, n_gib):
    """What the large file takes on links of this rate, where all of them move what there is to move; None: no limit."""
    k, n = systems.split_code(system.rpartition(" ")[2]) if ":" in system else (1, 1)
    n_links = k if work.endswith("in") else n
    return n_gib * GIB / (n_links * line.rate_mb * 1e6) if line.rate_mb and "," not in work else None


def large_row(samples, work, system, n_gib, limit, line):
    found = pick(samples, work, system)

    def with_ratios(attribute, factor=1):
        value = per_gib(attribute)
        mover = base_of(samples, work.removesuffix(TO_NULL), limit, system, value) if ":" in system else None
        healthy = work.partition(",")[0].removesuffix(TO_NULL)  # sshfs has no servers to spare
        sshfs = base_of(samples, healthy, "sshfs", system, value)
        return [number(value(found) * factor, 2), ratio(value(found), sshfs),
                ratio(value(found), mover)]

    seconds = per_gib(lambda cost: cost.seconds)(found)
    parts = [lambda cost: cost.client_cpu, lambda cost: cost.server_cpu, lambda cost: cost.program_cpu]
    return [system, number(GIB / seconds / 1e6, 0), *with_ratios(lambda cost: cost.seconds, n_gib),
            ratio(seconds * n_gib, links_seconds(work, system, line, n_gib)),
            *(number(per_gib(part)(found), 2) for part in parts), *with_ratios(lambda cost: cost.all_cpu()),
            number(per_gib(lambda cost: cost.wire / GIB)(found), 2),
            f"{measure.median(sample.cost.others for sample in found):.0%}"]


def seconds_of(found):
    return measure.median(sample.cost.seconds for sample in found)


def small_row(samples, works, system):
    row = [system]
    for work in works:
        seconds = seconds_of(pick(samples, work, system))
        row += [number(seconds, 4 if work == "first byte" else 3),
                ratio(seconds, base_of(samples, work, "sshfs", system, seconds_of))]
    return row


def show_losses(options, samples):
    """What is left of the rate of reading with servers dead."""
    rows = [["rate of reading, of that with none dead", "0 dead", *(f"{n} dead" for n in options.dead)]]
    for name in names_in_order(samples):
        whole = seconds_of(pick(samples, "out", name))
        left = [seconds_of(pick(samples, f"out, {n} dead", name)) for n in options.dead]
        if whole and all(left):
            rows.append([name, "1.00", *(number(whole / seconds, 2) for seconds in left)])
    rows.append(["published: 8+6 with chunks missing", "1.00", *(PUBLISHED_LOSSES.get(n, "-") for n in options.dead)])
    print_rows(rows)


def show_distances(options, samples):
    """What is left of rates where servers are farther away."""
    for rate_mb in options.rates:
        rows = [[f"MB/s at {rate_mb:g} MB/s, and of that at {options.rtts[0]} ms", *(f"{rtt} ms" for rtt in options.rtts)]]
        for work in ("in", "out"):
            for name in names_in_order(samples):
                found = pick(samples, work, name)
                rates = [per_gib(lambda cost: cost.seconds)([s for s in found if s.line() == (rate_mb, rtt)])
                         for rtt in options.rtts]
                if all(rates):
                    rows.append([f"{name}, {work}", *(f"{GIB / rate / 1e6:.1f}  {rates[0] / rate:.2f}" for rate in rates)])
        print_rows(rows)


def ratio_by_round(found, others, value):
    """The median, over rounds that both have, of the value of one in relation to the other's."""
    def of_rounds(samples):
        rounds = {(sample.line(), sample.round) for sample in samples}
        return {key: measure.median(value(sample) for sample in samples if (sample.line(), sample.round) == key)
                for key in rounds}
    ours, theirs = of_rounds(found), of_rounds(others)
    return measure.median(ours[key] / theirs[key] for key in ours.keys() & theirs.keys() if theirs[key])


def show_ratios(chosen, samples, attribute, title):
    """What works cost where systems differ in one attribute, of what they cost with its first value: medians over rounds, in
    which all had their turn."""
    def rest(system):
        attributes = ["kind", "code", "words", "build_name", "key"]
        return [getattr(system, name) for name in attributes if name != attribute]

    def medians(found):
        return [measure.median(map(value, found)) for value in values]
    values = [lambda sample: sample.cost.seconds, lambda sample: sample.cost.all_cpu()]
    rows = [[f"of the first {title}: seconds, processor time", "works", title, "s", "CPU", "s / s", "CPU / CPU"]]
    for system in chosen:
        first = next(other for other in chosen if rest(other) == rest(system))
        for work in system.works + system.more_works if first is not system else []:
            ours, theirs = pick(samples, work, system.name), pick(samples, work, first.name)
            if ours and theirs:
                rows.append([first.name, work, getattr(system, attribute),
                             *(number(ratio_by_round(ours, theirs, value), 3) for value in values),
                             *(f"{number(our, 3)} / {number(their, 3)}" for our, their in zip(medians(ours), medians(theirs)))])
    print_rows(rows)


def show(options, line, samples):
    """The tables of one line."""
    print(f"{options.size} MiB, {options.files} files of 8 KiB, medians of {options.rounds} rounds, {line}\n")
    mover = f"bare mover, {'libssh2' if options.transport == 'libssh2' else 'openssh'}"
    titles = {"in": "copied in", "paced in": "copied in, paced", "out": "read, cold",
              "out" + TO_NULL: "read, cold, to /dev/null",
              **{f"out, {n} dead": f"read, cold, {n} dead" for n in options.dead}}
    for work, title in titles.items():
        names = [name for name in names_in_order(samples) if pick(samples, work, name)]
        if names:
            print_rows([[title, "MB/s", "s", "/sshfs", "/mover", "/links", "CPU s/GiB: client", "servers", "program", "all",
                         "/sshfs", "/mover", "wire", "others"],
                        *(large_row(samples, work, name, options.size / 1024, mover, line) for name in names)])
    header = ["seconds and ratio to sshfs"]
    names = names_in_order(samples)
    works = [work for work in SMALL_WORKS if any(pick(samples, work, name) for name in names)]
    for work in works:
        header += [work, "/sshfs"]
    names = [name for name in names if works and all(pick(samples, work, name) for work in works)]
    if names:
        print_rows([header, *(small_row(samples, works, name) for name in names)])
    if options.dead:
        show_losses(options, samples)
