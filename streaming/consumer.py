"""The consumer job: reads topics with Spark, alone or as a member of a consumer group, and writes them somewhere.

::

    spark-submit streaming/consumer.py --group billing --topics orders --to delta:/lake/orders --server http://host:8080
    python -m sluice.streaming.consumer --topics orders --to console --path /data/sluice

docs/spark-submit.md says what each option means, and what is written exactly once.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    # Not at the top: importing this module must not import Spark.
    from sluice.streaming.spark.job_run import main as run

    return run(sys.argv[1:])


if __name__ == "__main__":
    # Python puts the folder of a script in front of its path, where our modules would be taken for a user's own.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    sys.exit(main())
