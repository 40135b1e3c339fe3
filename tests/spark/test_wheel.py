"""`pip install` of the wheel, and `format("sluice")` is there: no register call, no editable install, no path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.quick_jvm import java_options
from tests.support.spark_cluster import bare_python
from tests.support.stock_readers import numbered, open_log, produce

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]
MODULES = [f"{name}.py" for name in PROJECT["tool"]["setuptools"]["py-modules"]]
RECORDS = 20

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

root, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
options = {"subscribe": "t", "startingOffsets": "earliest"}
batch = spark.read.format("sluice").options(**options).load(root).count()
counts = []
stream = spark.readStream.format("sluice").options(**options).load(root).writeStream.trigger(availableNow=True)
query = stream.foreachBatch(lambda rows, _: counts.append(rows.count())).option("checkpointLocation", checkpoint)
query.start().awaitTermination()
import sluice.streaming.source
print(json.dumps({"batch": batch, "stream": sum(counts), "at": sluice.streaming.source.__file__}), flush=True)
spark.stop()
"""


def _contents() -> set[str]:
    """Everything in the folders of the packages, code or not."""
    found = set(MODULES)
    for package, folder in FOLDERS.items():
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                found.add(f"{package.replace('.', '/')}/{file.relative_to(ROOT / folder).as_posix()}")
    return found


def _run(*command: str | Path, **more: object) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=240, check=False, **more
    )  # type: ignore[call-overload]
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, because setuptools leaves things beside the sources, and without a network."""
    copy, target = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE", *MODULES):
        shutil.copy(ROOT / name, copy)
    for folder in FOLDERS.values():
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    _run(*pip, "wheel", "--no-index", "--no-build-isolation", "--no-deps", "-w", target, copy)
    return next(target.glob("sluice-*.whl"))


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == _contents()


def test_the_format_is_there_after_pip_install(wheel: Path, tmp_path: Path):
    with open_log(tmp_path / "root") as log:
        log.create_topic("t", partitions=2)
        for partition in range(2):
            produce(log, "t", numbered(0, RECORDS // 2), partition)
    python = bare_python(tmp_path / "venv")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    _run(*pip, "install", "--no-index", "--no-deps", wheel)
    (tmp_path / "program.py").write_text(PROGRAM)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    environment = clean | {"PYSPARK_PYTHON": str(python), "JAVA_TOOL_OPTIONS": java_options()}
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    given = (tmp_path / "root", tmp_path / "checkpoint")
    said = _run(python, tmp_path / "program.py", *given, cwd=tmp_path, env=environment)
    found = json.loads(said.splitlines()[-1])
    assert (found["batch"], found["stream"]) == (RECORDS, RECORDS)
    assert found["at"].startswith(str(tmp_path / "venv")), "not the sources"
