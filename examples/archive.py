#!/usr/bin/env python3
"""Stores a file in an archive, lists what is there, reads a part of the file, and prints how the archive is."""
import sys

import ecfs

with ecfs.Archive(sys.argv[1], writable=True) as archive:
    archive.write("/letters/hallo.txt", b"Hallo, Archiv!\n")
    for entry in archive.list("/", recursive=True):
        print(entry.path, entry.size)
    print(archive.read("/letters/hallo.txt", offset=7, size=6).decode())
    print(archive.status()["verdict"])
