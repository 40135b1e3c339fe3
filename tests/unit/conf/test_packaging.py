"""What pyproject.toml says must stay true of the repository."""

from __future__ import annotations

import tomllib
from pathlib import Path

from sluice.conf.jars import DELTA_ARTIFACTS

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGE_DIRS = PROJECT["tool"]["setuptools"]["package-dir"]


def test_every_package_and_sub_package_is_listed():
    found = {
        ".".join(("sluice", *init.parent.relative_to(ROOT).parts))
        for folder in PACKAGE_DIRS.values()
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert found == set(PROJECT["tool"]["setuptools"]["packages"])


def test_every_folder_with_python_files_is_a_package():
    for folder in PACKAGE_DIRS.values():
        for module in (ROOT / folder).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), module


def test_sluice_itself_is_a_namespace():
    assert not (ROOT / "sluice").exists()
    assert not (ROOT / "__init__.py").exists()


def test_mypy_and_import_linter_see_every_package():
    expected = set(PACKAGE_DIRS)
    assert set(PROJECT["tool"]["mypy"]["packages"]) == expected | {"bench"}
    assert set(PROJECT["tool"]["importlinter"]["root_packages"]) == expected


def test_constraints_are_plain_pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for line in (line for line in lines if line and not line.startswith("#")):
        name, _, pinned = line.partition("==")
        assert name, line
        assert pinned, line
        assert not set(line) & set(" /@;:"), line


def test_the_jars_match_the_python_pins():
    dependencies = PROJECT["project"]["dependencies"]
    spark_jar, storage_jar = DELTA_ARTIFACTS
    assert f"delta-spark=={spark_jar.version}" in dependencies
    assert storage_jar.version == spark_jar.version
    pyspark = next(d.partition("==")[2] for d in dependencies if d.startswith("pyspark=="))
    assert spark_jar.name == f"delta-spark_{pyspark.rpartition('.')[0]}_2.13"
