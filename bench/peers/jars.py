"""Kafka's jars and those of Spark's Kafka source, fetched once into a folder of their own.

Never into the user's own Maven folder: one that is half filled breaks Spark's own resolution.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sluice.conf.jars import Artifact, ResolveError, Resolver, jars_folder, resolve_with_ivy, resolve_with_ivy_file

KAFKA_VERSION = "4.2.0"
SPARK_VERSION = "4.2.0"
"""Of pyspark in pyproject.toml."""

# slf4j-simple lets a broker that does not start say why; Kafka's own artifacts bring no logger.
_KAFKA_IVY = f"""<ivy-module version="2.0">
  <info organisation="sluice" module="peers"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}" conf="default->default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{KAFKA_VERSION}" conf="default->default"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="{KAFKA_VERSION}" conf="default->default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default->default"/>
  </dependencies>
</ivy-module>
"""
_SOURCE = Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION)
# What the source's own description asks for. The registries do not have the token provider in every version: what is
# behind the first is the newest that they have.
_TOKEN_PROVIDER = ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", (SPARK_VERSION, "4.0.0"))
_TROUBLE = ("ERROR", "Exception", "Host ", "no answer")
"""What Ivy says when a registry could not be asked; of an artifact that is not there it only says "not found"."""
_CLIENTS = Artifact("org.apache.kafka", "kafka-clients", "3.9.2")
_POOL = Artifact("org.apache.commons", "commons-pool2", "2.13.1")


@dataclass(frozen=True, slots=True)
class SparkKafka:
    jars: tuple[Path, ...]

    @property
    def names(self) -> list[str]:
        """Which versions were taken."""
        return [jar.stem for jar in self.jars]


def peers_folder() -> Path:
    return jars_folder("", os.environ).parent / "peers"


def kafka_jars() -> Path:
    """The folder with the broker, its tools and all that they need."""
    folder = peers_folder() / f"kafka-{KAFKA_VERSION}"
    filled(folder, "a Kafka broker", lambda scratch: resolve_with_ivy_file(_KAFKA_IVY, scratch))
    return folder


def spark_kafka_jars() -> SparkKafka:
    folder = peers_folder() / f"spark-kafka-{SPARK_VERSION}"
    filled(folder, "Spark's Kafka source", _resolve_source)
    return SparkKafka(tuple(sorted(folder.glob("*.jar"))))


def _resolve_source(folder: Path) -> None:
    for artifact in (_SOURCE, _CLIENTS, _POOL):
        resolve_with_ivy(artifact, folder)
    organisation, name, versions = _TOKEN_PROVIDER
    first_of([Artifact(organisation, name, version) for version in versions], folder, resolve_with_ivy)


def first_of(artifacts: Sequence[Artifact], folder: Path, resolve: Resolver) -> None:
    """The first that the registries have. That one could not be asked for is no reason to take another: it would be
    kept."""
    for artifact in artifacts:
        try:
            resolve(artifact, folder)
        except ResolveError as error:
            if artifact == artifacts[-1] or not is_missing(str(error)):
                raise
        else:
            return


def is_missing(told: str) -> bool:
    """Whether the registries answered that they have no such artifact."""
    return "not found" in told and not any(word in told for word in _TROUBLE)


def taken_instead(names: Sequence[str]) -> str | None:
    """Of the jars that were taken, in a sentence: the one that is not of the version that was asked for."""
    _, artifact, (wanted, *_) = _TOKEN_PROVIDER
    for name in names:
        version = name.removeprefix(f"{artifact}-")
        if version not in (name, wanted):
            return (
                f"{artifact} {wanted}, which that source asks for, is in no registry that was asked: {version} was"
                " taken instead. It is for tokens of secured brokers, of which there are none here"
            )
    return None


def filled(folder: Path, what: str, resolve: Callable[[Path], None]) -> None:
    """A folder is there whole or not at all."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.write(f"fetching {what} into {folder}, once\n")
    with tempfile.TemporaryDirectory(prefix=".resolving-", dir=folder.parent) as scratch:
        resolve(Path(scratch))
        jars = Path(scratch) / "jars"
        jars.mkdir()
        for jar in Path(scratch).glob("*.jar"):
            shutil.move(jar, jars)
        jars.rename(folder)
