"""Snap ML on several hosts: each rank has its part of the rows, and DDL joins what the ranks find.

Run it:  ddlrun -np 2 python distributed.py

WML CE's snapml-spark and snapml-mpi are gone, and the package snapml works in one process. This is what can
be built from it:

ridge     exact, by consensus ADMM (Boyd et al., "Distributed optimization and statistical learning via the
          alternating direction method of multipliers", 2011, section 8): each rank solves ridge regression on
          what the common coefficients leave of its rows, by snapml.LinearRegression.
logistic  exact, by Newton's method: each of its steps is a weighted ridge regression, solved as above.
forest    not what one process would grow: each rank grows its share of the trees, on its rows alone, by
          snapml.RandomForestClassifier. The probabilities of all trees are averaged.

Rank 0 compares each with scikit-learn on all rows. With --data ROWSxCOLUMNS the data are made.
"""

import argparse
import os
import sys
import time

import ddl
import numpy as np
from sklearn import datasets, ensemble, linear_model
from sklearn.model_selection import train_test_split

# Where mpirun has set this, snapml asks for a part of it that its package does not have: libsnapmlmpi3.
_local_rank = os.environ.pop("OMPI_COMM_WORLD_LOCAL_RANK", None)
import snapml  # noqa: E402

if _local_rank is not None:
    os.environ["OMPI_COMM_WORLD_LOCAL_RANK"] = _local_rank


def norm(values):
    return float(np.sqrt(np.sum(values * values)))


class Ridge:
    """min ½ Σ (row·x - target)² + ½ Σ penalty·x², over the rows of all ranks."""

    def __init__(self, penalty, threads, tolerance=1e-7, limit=2000):
        self.penalty, self.threads = penalty, threads
        self.tolerance, self.limit = tolerance, limit
        self.common = np.zeros(len(penalty))
        self.iterations = 0

    def fit(self, rows, targets):
        """Goes on from the coefficients of an earlier call."""
        # How much the ranks are pulled together: of the size of their own curvature.
        pull = float(ddl.allreduce(np.array([np.mean(np.sum(rows * rows, axis=0))]), "avg")[0])
        local, dual = self.common.copy(), np.zeros_like(self.common)
        for _ in range(self.limit):
            self.iterations += 1
            start = self.common - dual
            residual = targets - rows @ start
            size = norm(residual) or 1.0  # Snap ML stops by an absolute tolerance
            solver = snapml.LinearRegression(
                regularizer=pull, fit_intercept=False, tol=1e-10, max_iter=1000, n_jobs=self.threads
            )
            local = start + size * np.ravel(solver.fit(rows, residual / size).coef_)
            before = self.common
            together = ddl.allreduce(local + dual, "sum")
            self.common = pull * together / (self.penalty + pull * ddl.size())
            dual += local - self.common
            apart, moved = local - self.common, self.common - before
            squares = np.array([apart @ apart, moved @ moved * ddl.size()])
            apart_norm, moved_norm = np.sqrt(ddl.allreduce(squares, "sum") / np.array([1, ddl.size()]))
            if max(apart_norm, moved_norm) <= self.tolerance * max(1.0, norm(self.common)):
                return self
            # Boyd et al., section 3.4.1: neither of the two may lag far behind.
            if apart_norm > 10 * moved_norm:
                pull, dual = pull * 2, dual / 2
            elif moved_norm > 10 * apart_norm:
                pull, dual = pull / 2, dual * 2
        raise SystemExit(f"ridge: not found in {self.limit} iterations; take a greater tolerance")


def with_ones(rows):
    return np.ascontiguousarray(np.hstack([rows, np.ones((len(rows), 1))]))


def standardized(train, test):
    """By mean and deviation over the rows of all ranks."""
    sums = np.array([len(train), *train.sum(axis=0)], dtype=float)
    count, *total = ddl.allreduce(sums, "sum")
    mean = np.array(total) / count
    spread = np.sqrt(ddl.allreduce(((train - mean) ** 2).sum(axis=0), "sum") / count)
    spread[spread == 0] = 1
    return (train - mean) / spread, (test - mean) / spread


def of_this_rank(data):
    """Its rows, the test rows, and all rows for the reference of rank 0."""
    train_x, test_x, train_y, test_y = train_test_split(*data, test_size=0.25, random_state=1)
    mine = slice(ddl.rank(), None, ddl.size())
    rows, test = standardized(train_x[mine], test_x)
    all_rows, _ = standardized_alone(train_x)
    return rows, train_y[mine], test, test_y, all_rows, train_y


def standardized_alone(rows):
    spread = rows.std(axis=0)
    spread[spread == 0] = 1
    return (rows - rows.mean(axis=0)) / spread, spread


def ridge(options):
    data = synthetic(options, regression=True) or datasets.load_diabetes(return_X_y=True)
    rows, targets, _, _, all_rows, all_targets = of_this_rank(data)
    penalty = np.append(np.full(rows.shape[1], options.penalty), 0.0)  # none for the constant
    start_time = time.perf_counter()
    solver = Ridge(penalty, options.threads).fit(with_ones(rows), targets.astype(float))
    seconds = time.perf_counter() - start_time
    if ddl.rank() == 0:
        reference = linear_model.Ridge(alpha=options.penalty).fit(all_rows, all_targets)
        expected = np.append(reference.coef_, reference.intercept_)
        report("ridge", solver.common, expected, solver.iterations, seconds)


def logistic(options):
    data = synthetic(options) or datasets.load_breast_cancer(return_X_y=True)
    rows, labels, _, _, all_rows, all_labels = of_this_rank(data)
    rows = with_ones(rows)
    solver = Ridge(np.append(np.full(rows.shape[1] - 1, options.penalty), 0.0), options.threads)
    start_time = time.perf_counter()
    steps = 0
    for _ in range(30):
        steps += 1
        before = solver.common
        scores = np.clip(rows @ before, -30, 30)
        likely = 1 / (1 + np.exp(-scores))
        weight = np.maximum(likely * (1 - likely), 1e-9)
        targets = scores + (labels - likely) / weight
        # Snap ML knows no weights of rows: the root of each goes into its row and target.
        root = np.sqrt(weight)
        solver.fit(np.ascontiguousarray(rows * root[:, None]), targets * root)
        if norm(solver.common - before) <= 1e-5 * max(1.0, norm(before)):
            break
    seconds = time.perf_counter() - start_time
    if ddl.rank() == 0:
        reference = linear_model.LogisticRegression(C=1 / options.penalty, tol=1e-10, max_iter=10000)
        reference.fit(all_rows, all_labels)
        expected = np.append(reference.coef_, reference.intercept_)
        report(
            "logistic", solver.common, expected, solver.iterations, seconds, f" in {steps} steps of Newton's"
        )


def report(name, computed, expected, iterations, seconds, more=""):
    difference = norm(computed - expected) / norm(expected)
    print(f"{name}: relative difference of coefficients {difference:.1e} from scikit-learn on all rows,")
    print(f"  {iterations} iterations{more}, {seconds:.2f} s", flush=True)


def forest(options):
    data = synthetic(options) or datasets.load_digits(return_X_y=True)
    rows, labels, test, test_labels, all_rows, all_labels = of_this_rank(data)
    # If a rank had no row of some class, its probabilities would have one column less.
    classes = np.unique(data[1])
    assert len(np.unique(labels)) == len(classes), "a rank has no row of some class: take fewer ranks"
    trees = options.trees // ddl.size() + (ddl.rank() < options.trees % ddl.size())
    grown = snapml.RandomForestClassifier(
        n_estimators=trees, random_state=1 + ddl.rank(), n_jobs=options.threads
    )
    ddl.barrier()
    start_time = time.perf_counter()
    grown.fit(np.ascontiguousarray(rows), labels)
    ddl.barrier()
    seconds = time.perf_counter() - start_time
    likely = ddl.allreduce(grown.predict_proba(np.ascontiguousarray(test)) * trees, "sum") / options.trees
    accuracy = np.mean(classes[np.argmax(likely, axis=1)] == test_labels)
    if ddl.rank() == 0:
        reference = ensemble.RandomForestClassifier(n_estimators=options.trees, random_state=1)
        expected = reference.fit(all_rows, all_labels).score(test, test_labels)
        print(
            f"forest: {options.trees} trees on {ddl.size()} rank(s); scikit-learn on all rows: {expected:.3f}"
        )
        print(f"images/sec: {len(all_labels) / seconds:.0f}")
        print(f"accuracy: {accuracy:.3f}", flush=True)


def synthetic(options, regression=False):
    """Data of the size that --data gives; None without it."""
    if not options.data:
        return None
    rows, columns = (int(part) for part in options.data.lower().split("x"))
    useful = max(2, columns // 2)
    if regression:
        return datasets.make_regression(rows, columns, n_informative=useful, noise=10.0, random_state=1)
    return datasets.make_classification(rows, columns, n_informative=useful, random_state=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "models", nargs="*", default=["ridge", "logistic", "forest"], help="ridge, logistic, forest"
    )
    parser.add_argument(
        "--data", metavar="ROWSxCOLUMNS", help="made data of this size instead of the real data"
    )
    parser.add_argument("--penalty", type=float, default=1.0, help="of ridge and logistic; default 1")
    parser.add_argument("--trees", type=int, default=100, help="of all ranks together; default 100")
    parser.add_argument("--threads", type=int, default=1, help="of each rank; default 1")
    options = parser.parse_args()
    trainers = {"ridge": ridge, "logistic": logistic, "forest": forest}
    for name in options.models:
        if name not in trainers:
            parser.error(f"{name} is none of {', '.join(trainers)}")
        trainers[name](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
