"""A random forest of Snap ML's: each rank grows its share of the trees on its part of the images, and DDL
averages what all trees say. Another model than LeNet, on the same images.

Started as ranks: ddlrun -np 2 python snapml_forest.py
"""

from __future__ import annotations

import os

import ddl
import digits
import numpy as np

# Where mpirun has set this, snapml asks for a part of it that its package does not have.
_local_rank = os.environ.pop("OMPI_COMM_WORLD_LOCAL_RANK", None)
import snapml  # noqa: E402

if _local_rank is not None:
    os.environ["OMPI_COMM_WORLD_LOCAL_RANK"] = _local_rank


def rows_of(images: np.ndarray) -> np.ndarray:
    """The images as they were before they were enlarged, a row each."""
    factor = digits.PIXELS // 8
    return np.ascontiguousarray(images[:, ::factor, ::factor, 0].reshape(len(images), -1))


def main() -> None:
    parser = digits.parser(__doc__)
    parser.add_argument("--trees", type=int, default=100, help="of all ranks together (100)")
    options = parser.parse_args()
    rank, size = ddl.rank(), ddl.size()
    images, labels = digits.load(training=True)
    share, own_labels = rows_of(images)[rank::size], labels[rank::size]
    trees = options.trees // size + (rank < options.trees % size)
    grown = snapml.RandomForestClassifier(n_estimators=trees, random_state=1 + rank, n_jobs=1)
    ddl.barrier()
    clock = digits.Clock(rank == 0)

    def steps() -> int:
        grown.fit(share, own_labels)
        ddl.barrier()
        return len(labels)

    clock.train(steps)
    held_out, answers = digits.load(training=False)
    likely = ddl.allreduce(grown.predict_proba(rows_of(held_out)) * trees, "sum")
    clock.accuracy(float((likely.argmax(1) == answers).mean()))
    clock.end()


if __name__ == "__main__":
    main()
