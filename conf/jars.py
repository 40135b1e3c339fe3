"""Delta's two jars: found in a folder, or fetched into it once with the Ivy that PySpark ships.

Two jars are enough. Unrestricted resolution brings 38, among them older copies of libraries that Spark has.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sluice.conf.errors import MissingJarsError

_RESOLVE_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Artifact:
    """A Maven artifact, fetched without its dependencies."""

    organisation: str
    name: str
    version: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}"


# The versions belong to the pyspark and delta-spark pins in pyproject.toml.
DELTA_ARTIFACTS = (
    Artifact("io.delta", "delta-spark_4.2_2.13", "4.4.0"),
    Artifact("io.delta", "delta-storage", "4.4.0"),
)

Resolver = Callable[[Artifact, Path], None]


class ResolveError(Exception):
    """One artifact could not be fetched."""


def jars_folder(configured: str, env: Mapping[str, str]) -> Path:
    """The folder of the setting, else of SLUICE_JARS_DIR, else in the user's cache."""
    if chosen := configured or env.get("SLUICE_JARS_DIR", ""):
        return Path(chosen).expanduser().absolute()
    cache = env.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a relative path there is to be ignored.
    base = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return base / "sluice" / "jars"


def ensure_jars(folder: Path, resolve: Resolver, artifacts: Sequence[Artifact] = DELTA_ARTIFACTS) -> list[Path]:
    """Paths of all artifacts in `folder`; what is not there yet is resolved and moved in atomically."""
    missing = [artifact for artifact in artifacts if not _is_jar(folder / artifact.file_name)]
    if missing:
        _install(folder, missing, resolve)
    return [folder / artifact.file_name for artifact in artifacts]


def _install(folder: Path, missing: Sequence[Artifact], resolve: Resolver) -> None:
    names = ", ".join(artifact.coordinates for artifact in missing)
    sys.stderr.write(f"sluice: fetching Delta's jars ({names}) into {folder}, once\n")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Inside the folder, so that the rename below stays on one file system.
        with tempfile.TemporaryDirectory(prefix=".resolving-", dir=folder) as scratch:
            for artifact in missing:
                resolve(artifact, Path(scratch))
                fetched = Path(scratch) / artifact.file_name
                if not _is_jar(fetched):
                    raise ResolveError(f"{artifact.coordinates} was resolved but is not a readable jar")
                fetched.replace(folder / artifact.file_name)
    except (ResolveError, OSError) as error:
        still = [artifact for artifact in missing if not _is_jar(folder / artifact.file_name)]
        raise MissingJarsError(_missing_message(folder, still, error)) from error


def _is_jar(path: Path) -> bool:
    return path.is_file() and zipfile.is_zipfile(path)


def _missing_message(folder: Path, missing: Sequence[Artifact], error: Exception) -> str:
    lines = ["Delta's jars are not there and could not be fetched.", "Missing:"]
    lines += [f"  {artifact.file_name}  (Maven artifact {artifact.coordinates})" for artifact in missing]
    lines += [
        f"Put them in: {folder}",
        "(another folder: setting spark.jars.dir or variable SLUICE_JARS_DIR)",
        "On a machine with network, these commands fetch them into the current folder:",
    ]
    lines += ["  java -jar " + " ".join(_ivy_arguments(artifact, Path(), quote=True)) for artifact in missing]
    lines += [
        "Behind a proxy set JAVA_TOOL_OPTIONS (-Dhttps.proxyHost=… -Dhttps.proxyPort=…); "
        "a repository of your own goes into ~/.ivy2/ivysettings.xml.",
        f"What failed: {error}",
    ]
    return "\n".join(lines)


def resolve_with_ivy(artifact: Artifact, folder: Path) -> None:
    """Fetches one artifact into `folder`. The JVM's own proxy settings and ~/.ivy2/ivysettings.xml are respected."""
    _run_ivy(_ivy_arguments(artifact, folder), folder, artifact.coordinates)


def resolve_with_ivy_file(ivy_xml: str, folder: Path) -> None:
    """Fetches what an Ivy file names, for artifacts that have a classifier."""
    description = folder / "ivy.xml"
    description.write_text(ivy_xml)
    pattern = str(folder / "[artifact]-[revision].[ext]")
    _run_ivy([str(_ivy_jar()), "-ivy", str(description), "-retrieve", pattern], folder, "an Ivy file")


def _run_ivy(arguments: list[str], folder: Path, what: str) -> None:
    command = [_java(), "-jar", *arguments, "-cache", str(folder / "ivy-cache")]
    own_settings = Path.home() / ".ivy2" / "ivysettings.xml"
    if own_settings.is_file():
        command += ["-settings", str(own_settings)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_RESOLVE_TIMEOUT_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise ResolveError(f"{what}: no answer within {_RESOLVE_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise ResolveError(f"{what}: Ivy ended with {done.returncode}\n{_telling_lines(done)}")


def _ivy_arguments(artifact: Artifact, folder: Path, *, quote: bool = False) -> list[str]:
    pattern = str(folder / "[artifact]-[revision].[ext]")
    wanted = ["-dependency", artifact.organisation, artifact.name, artifact.version, "-notransitive"]
    kinds = ["-confs", "default", "-types", "jar", "bundle"]
    return [str(_ivy_jar()), *wanted, *kinds, "-retrieve", f'"{pattern}"' if quote else pattern]


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ResolveError("pyspark is not installed")
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise ResolveError("this pyspark ships no Ivy")
    return found[-1]


def _java() -> str:
    home = os.environ.get("JAVA_HOME", "")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    if java := found or shutil.which("java"):
        return java
    raise ResolveError("java was not found: set JAVA_HOME or put Java 17 or newer on the PATH")


def _telling_lines(done: subprocess.CompletedProcess[str]) -> str:
    """The lines of Ivy's output that name the trouble; the last few if none does."""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    telling = [line for line in lines if any(word in line for word in ("ERROR", "Exception", "not found", "FAILED"))]
    return "\n".join((telling or lines)[-8:])
