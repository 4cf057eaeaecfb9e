"""Samples as tables: medians, what they are in relation to sshfs and to the mover, and processor time."""
import measure

GIB = 1 << 30
SMALL_WORKS = ["first byte", "random 64 KiB", "cp -r", "rsync -a", "small out", "find"]


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


def base_of(samples, work, word, system=""):
    """Median seconds of the row with this word in its name, of the same code where rows have one."""
    code = system.rpartition(" ")[2]
    for name in names_in_order(samples):
        if name.startswith(word) and (word == "sshfs" or name.endswith(code)):
            return measure.median(pick(samples, work, name), "seconds")
    return None


def large_row(samples, work, system):
    found = pick(samples, work, system)
    seconds, n_bytes = measure.median(found, "seconds"), found[0].bytes
    cpu = [measure.median(found, field) * GIB / n_bytes for field in ("client_cpu", "server_cpu", "program_cpu")]
    return [system, number(seconds, 2), number(n_bytes / seconds / 1e6, 0),
            ratio(seconds, base_of(samples, work, "sshfs")),
            ratio(seconds, base_of(samples, work, "bare mover", system)) if "rs:" in system else "-",
            *(number(value, 2) for value in cpu), number(sum(cpu), 2)]


def small_row(samples, system):
    row = [system]
    for work in SMALL_WORKS:
        seconds = measure.median(pick(samples, work, system), "seconds")
        row += [number(seconds, 4 if work == "first byte" else 3), ratio(seconds, base_of(samples, work, "sshfs"))]
    return row


def show(options, rate_mb, samples):
    """The tables of one rate."""
    limit = f"each server's link held to {rate_mb:g} MB/s; sshfs moves 1/8 of the large file, scaled" if rate_mb \
        else "links not limited"
    print(f"{options.size} MiB, {options.files} files of 8 KiB, medians of {options.rounds} rounds, {limit}\n")
    for work, title in (("in", "copied in"), ("out", "read, cold")):
        names = [name for name in names_in_order(samples) if pick(samples, work, name)]
        print_rows([[title, "s", "MB/s", "/sshfs", "/mover", "CPU s/GiB: client", "servers", "program", "all"],
                    *(large_row(samples, work, name) for name in names)])
    header = ["seconds and ratio to sshfs"]
    for work in SMALL_WORKS:
        header += [work, "/sshfs"]
    names = [name for name in names_in_order(samples) if pick(samples, "cp -r", name)]
    if names:
        print_rows([header, *(small_row(samples, name) for name in names)])
