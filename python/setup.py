"""What pyproject.toml cannot say: the version, which is that of meson.build, or of the source distribution."""
import re
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent


def version() -> str:
    for file, pattern in ((HERE / "PKG-INFO", r"^Version: (.+)$"), (HERE.parent / "meson.build", r"^\s*version: '([^']+)'")):
        found = re.search(pattern, file.read_text(encoding="utf-8"), re.M) if file.exists() else None
        if found:
            return found[1]
    raise SystemExit("ecfs: the version is in meson.build, one directory above, which is not there")


setup(version=version(), license="Apache-2.0")
