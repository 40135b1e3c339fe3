"""All tests with two processors: what needs Spark, the longest part, beside everything else, fast tests first.

`python -m tests.at_once`, which is what `make test` runs. Each part is an ordinary pytest run; the output of the Spark
part is shown when the other one has ended.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

PYTEST = [sys.executable, "-m", "pytest"]


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen([*PYTEST, "tests/spark", *arguments], stdout=output, stderr=subprocess.STDOUT) as spark:
            try:
                rest = subprocess.run([*PYTEST, "--ignore=tests/spark", *arguments], check=False).returncode
                code = spark.wait()
            except BaseException:
                spark.terminate()
                raise
        output.seek(0)
        sys.stdout.write(f"\n--- tests/spark ---\n{output.read()}")
    return rest or code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
