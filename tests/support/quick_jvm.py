"""Java options for Spark processes that live for seconds: classes come parsed and checked from an archive.

Half of the processor time of such a process is spent on loading some twenty thousand classes of Spark. Java keeps them
in an archive ("class data sharing"), which is made here once, by a small session that does what the tests do, and kept
in the folder of the jars. A Java that cannot use it, because something else is installed by now, starts without it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from sluice.conf.jars import jars_folder

SPARK_HOME = Path(pyspark.__file__).parent
PLAIN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
MADE_WITHIN_S = 120.0
DECIDED = "SLUICE_TEST_JAVA_OPTIONS"

# What drivers of the tests do: Delta tables, a stream with a function, a MERGE.
_SESSION = """
import sys
from sluice.conf.settings import SparkSettings
from sluice.conf.spark import spark_session

options, work = sys.argv[1:]
extra = {"spark.driver.extraJavaOptions": options, "spark.sql.warehouse.dir": f"{work}/warehouse"}
spark = spark_session(SparkSettings(driver_memory="1g"), "archive", extra | {"spark.local.dir": f"{work}/local"})
spark.range(9).write.format("delta").save(f"{work}/table")
spark.range(9).write.parquet(f"{work}/in")

def write(rows, number):
    rows.createOrReplaceTempView("rows")
    merge = f"MERGE INTO delta.`{work}/table` t USING rows s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    rows.sparkSession.sql(merge)

stream = spark.readStream.schema("id LONG").parquet(f"{work}/in").writeStream.foreachBatch(write)
stream.option("checkpointLocation", f"{work}/checkpoint").trigger(availableNow=True).start().awaitTermination()
assert spark.read.format("delta").load(f"{work}/table").count() == 9
spark.stop()
"""


def java_options() -> str:
    """For `spark.driver.extraJavaOptions` and the like, and for JAVA_TOOL_OPTIONS; found once for all processes."""
    if DECIDED not in os.environ:
        archive = _archive()
        more = "" if archive is None else f" -Xshare:auto -XX:SharedArchiveFile={archive} -Xlog:disable"
        os.environ[DECIDED] = PLAIN + more
    return os.environ[DECIDED]


def _archive() -> Path | None:
    """None if it cannot be made: tests are slower then, and nothing else."""
    java = java_command()
    version = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    name = hashlib.sha256(version + f"{SPARK_HOME} {pyspark.__version__}".encode()).hexdigest()[:16]
    archive = jars_folder("", os.environ) / f"spark-classes-{name}.jsa"
    if not archive.is_file():
        _make(archive)
    return archive if archive.is_file() else None


def _make(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        fresh = Path(work) / archive.name
        options = f"{PLAIN} -XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
        try:
            subprocess.run(
                [sys.executable, "-c", _SESSION, options, work],
                cwd=work,
                capture_output=True,
                timeout=MADE_WITHIN_S,
                check=True,
            )
            partial = archive.with_name(f".{archive.name}.{os.getpid()}")
            shutil.copy(fresh, partial)
            partial.replace(archive)
        except (OSError, subprocess.SubprocessError):
            return


def java_command() -> str:
    home = os.environ.get("JAVA_HOME", "")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    assert java is not None, "there is no java"
    return java
