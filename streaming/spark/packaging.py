"""Sluice for the machines of a Spark cluster: one zip for `--py-files`, and the jars that go with it.

::

    python -m sluice.streaming.spark.packaging zip sluice.zip
    spark-submit --py-files sluice.zip --jars "$(python -m sluice.streaming.spark.packaging jars)" …

The zip holds what drivers and executors import: everything but the HTTP service. The libraries that it uses must be
installed there; they have compiled parts, which Python cannot import from a zip.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from sluice.log_store.errors import ResourceNotFound

PACKAGES = ("conf", "ingest", "jobs", "log_store", "streaming")
ENTRY_MODULE = "pyspark_sluice"
"""What PySpark looks for to register `format("sluice")`."""
SUFFIXES = (".py", ".toml")
LIBRARIES = ("httpx", "msgspec", "numpy", "obstore", "pyarrow")
"""To be installed where the zip is used, beside PySpark itself."""
# Zip files know no time before this, and equal contents shall give equal files.
EPOCH = (1980, 1, 1, 0, 0, 0)


def package_files() -> Iterator[tuple[str, Path]]:
    """Names in the zip, and the files: wherever the packages are installed, they are `sluice/<package>` in it."""
    for package in PACKAGES:
        folder = _folder_of(f"sluice.{package}")
        for file in sorted(folder.rglob("*")):
            if file.suffix in SUFFIXES and "__pycache__" not in file.parts:
                yield f"sluice/{package}/{file.relative_to(folder).as_posix()}", file
    yield f"{ENTRY_MODULE}.py", _entry_file()


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ResourceNotFound(f"{package} is not installed as files")
    return Path(next(iter(spec.submodule_search_locations)))


def _entry_file() -> Path:
    spec = importlib.util.find_spec(ENTRY_MODULE)
    if spec is not None and spec.origin is not None:
        return Path(spec.origin)
    # An editable install that is older than the module: it stands beside the packages.
    beside = _folder_of("sluice.streaming").parent / f"{ENTRY_MODULE}.py"
    if not beside.is_file():
        raise ResourceNotFound(f"{ENTRY_MODULE} is not installed")
    return beside


def build_zip(target: Path) -> Path:
    """Python finds a package without `__init__.py`, as `sluice` is, in a zip only by an entry for its folder."""
    files = list(package_files())
    folders = sorted({parent.as_posix() for name, _ in files for parent in Path(name).parents} - {"."})
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in folders:
            archive.writestr(zipfile.ZipInfo(f"{folder}/", EPOCH), b"")
        for name, file in files:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    scratch.replace(target)
    return target


def delta_jar_paths() -> list[Path]:
    """Fetched at first use."""
    from sluice.conf.settings import load_settings
    from sluice.conf.spark import delta_jars

    return delta_jars(load_settings(None, os.environ).spark)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m sluice.streaming.spark.packaging")
    commands = parser.add_subparsers(dest="command", required=True)
    zipped = commands.add_parser("zip", help="write a zip for --py-files")
    zipped.add_argument("target", type=Path)
    commands.add_parser("jars", help="print the paths of Delta's jars, for --jars")
    given = parser.parse_args(arguments)
    printed = [build_zip(given.target)] if given.command == "zip" else delta_jar_paths()
    sys.stdout.write(",".join(map(str, printed)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
