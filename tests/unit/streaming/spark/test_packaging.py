"""The zip for --py-files: importable by an interpreter that has the libraries but not Sluice."""

from __future__ import annotations

import subprocess
import tomllib
import zipfile
from pathlib import Path

from sluice.streaming.spark.packaging import PACKAGES, build_zip
from tests.support.spark_cluster import bare_python

ROOT = Path(__file__).parents[4]
FOREIGN = ("fastapi", "uvicorn", "deltalake", "delta", "pandas", "typer")


def test_the_zip_is_all_that_an_executor_needs(tmp_path: Path):
    archive = build_zip(tmp_path / "sluice.zip")
    python = bare_python(tmp_path / "venv")
    script = (
        "import sys, pkgutil\n"
        "try:\n    import sluice\n    raise SystemExit('sluice is installed here')\n"
        "except ModuleNotFoundError:\n    sys.path.insert(0, sys.argv[1])\n"
        "assert 'pyspark_sluice' in [module.name for module in pkgutil.iter_modules()]\n"
        "import sluice.streaming.spark.reading, pyspark_sluice\n"
        "assert pyspark_sluice.DefaultSource.name() == 'sluice'\n"
        f"assert not [name for name in {FOREIGN!r} if name in sys.modules], sys.modules\n"
        "import sluice.streaming.spark.job_run\n"
        "print(sluice.streaming.spark.reading.__file__)\n"
    )
    done = subprocess.run(
        [python, "-c", script, archive], capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(archive))


def test_the_same_files_give_the_same_zip_and_the_service_is_not_in_it(tmp_path: Path):
    first, second = build_zip(tmp_path / "a.zip"), build_zip(tmp_path / "b.zip")
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert "sluice/" in names
    assert "sluice/__init__.py" not in names
    assert not [name for name in names if name.startswith("sluice/api") or "__pycache__" in name]


def test_every_package_but_the_service_is_in_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["setuptools"]["package-dir"]) == {"sluice.api", *(f"sluice.{name}" for name in PACKAGES)}
    assert project["tool"]["setuptools"]["py-modules"] == ["pyspark_sluice"]
