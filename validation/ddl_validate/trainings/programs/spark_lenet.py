"""LeNet by TensorFlowOnSpark: each of Spark's executors is a worker of MultiWorkerMirroredStrategy.

Started by: python -m ddl_spark --workers 2 -- python spark_lenet.py --executors 2
or on hosts: ddlrun -H h1,h2 python -m ddl_spark --workers 1 -- python spark_lenet.py --executors 2
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import digits

_PAUSE_SECONDS = 0.05


def train(job: dict[str, Any], ctx: Any) -> None:
    """Runs in each executor; TF_CONFIG, set by TensorFlowOnSpark, says who the others are."""
    sys.path.insert(0, job["programs"])
    import strategy_lenet
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    output = Path(job["said"])

    def tell(line: str) -> None:
        # an executor's own output goes into a log of its host
        with output.open("a") as file:
            print(line, file=file)

    strategy_lenet.multi_worker(strategy_lenet.digits.Schedule(*job["schedule"]), tell)


def repeat(output: Path, over: threading.Event) -> None:
    """Print what the executors say as they say it."""
    with output.open() as file:
        while True:
            ended = over.is_set()
            sys.stdout.write(file.read())
            sys.stdout.flush()
            if ended:
                return
            over.wait(_PAUSE_SECONDS)


def main() -> None:
    from pyspark.sql import SparkSession
    from tensorflowonspark import TFCluster

    parser = digits.parser(__doc__)
    parser.add_argument("--executors", type=int, default=2, help="of Spark, each a worker (2)")
    options = parser.parse_args()
    schedule = digits.schedule_of(options)
    spark = SparkSession.builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    # in the current folder, which all hosts share
    with tempfile.NamedTemporaryFile(prefix="spark-lenet.", dir=Path.cwd()) as file:
        output = Path(file.name)
        over = threading.Event()
        repeater = threading.Thread(target=repeat, args=(output, over))
        repeater.start()
        try:
            job = {
                "programs": str(Path(__file__).resolve().parent),
                "said": str(output),
                "schedule": (schedule.batch, schedule.epochs, schedule.rate),
            }
            cluster = TFCluster.run(
                spark.sparkContext,
                train,
                job,
                num_executors=options.executors,
                num_ps=0,
                input_mode=TFCluster.InputMode.TENSORFLOW,
                # without one it sets no TF_CONFIG
                master_node="chief",
            )
            cluster.shutdown()
        finally:
            over.set()
            repeater.join()
    spark.stop()


if __name__ == "__main__":
    main()
