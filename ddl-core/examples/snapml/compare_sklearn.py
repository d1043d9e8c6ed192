"""Snap ML beside scikit-learn: the same models on the same data, how good they are and how long they take.

Run it:  python compare_sklearn.py            (pip install --no-deps snapml, in an overlay, comes first)

The data are those that scikit-learn brings: digits, breast_cancer, and diabetes for regression. They are
small. For times that mean something give --data ROWSxCOLUMNS, which makes rows by make_classification and
make_regression. `difference` is Snap ML's test score less scikit-learn's.
"""

import argparse
import importlib.metadata
import json
import sys
import time

import numpy as np
import snapml
from rich.console import Console
from rich.table import Table
from sklearn import datasets, ensemble, linear_model, svm, tree
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

#: By how much a test score may differ, either way. Linear models have one optimum, but Snap ML takes several
#: classes as one against the rest, scikit-learn all together. Trees are grown by other rules for ties and
#: bins, so they differ as with another seed.
MARGINS = {"linear": 0.02, "trees": 0.05}


def pairs(threads, seed):
    """Name, task, kind, Snap ML's model and scikit-learn's. Snap ML's `regularizer` is 1/C, or alpha."""
    many = {"n_jobs": threads, "random_state": seed}
    linear = {"fit_intercept": True, "max_iter": 5000, "tol": 1e-6, "n_jobs": threads}
    return [
        (
            "LogisticRegression",
            "classify",
            "linear",
            snapml.LogisticRegression(regularizer=1.0, **linear),
            linear_model.LogisticRegression(C=1.0, max_iter=5000),
        ),
        (
            "SupportVectorMachine",
            "classify",
            "linear",
            snapml.SupportVectorMachine(regularizer=1.0, **linear),
            svm.LinearSVC(C=1.0, loss="hinge", max_iter=100000, random_state=seed),
        ),
        (
            "LinearRegression (ridge)",
            "predict",
            "linear",
            snapml.LinearRegression(regularizer=1.0, **linear),
            linear_model.Ridge(alpha=1.0),
        ),
        (
            "DecisionTreeClassifier",
            "classify",
            "trees",
            snapml.DecisionTreeClassifier(**many),
            tree.DecisionTreeClassifier(random_state=seed),
        ),
        (
            "RandomForestClassifier",
            "classify",
            "trees",
            snapml.RandomForestClassifier(n_estimators=100, **many),
            ensemble.RandomForestClassifier(n_estimators=100, **many),
        ),
        (
            "RandomForestRegressor",
            "predict",
            "trees",
            snapml.RandomForestRegressor(n_estimators=100, max_features=1.0, **many),
            ensemble.RandomForestRegressor(n_estimators=100, **many),
        ),
        (
            "BoostingMachineClassifier",
            "classify",
            "trees",
            snapml.BoostingMachineClassifier(num_round=100, **many),
            ensemble.HistGradientBoostingClassifier(max_iter=100, random_state=seed),
        ),
        (
            "BoostingMachineRegressor",
            "predict",
            "trees",
            snapml.BoostingMachineRegressor(num_round=100, min_max_depth=3, max_max_depth=3, **many),
            ensemble.GradientBoostingRegressor(n_estimators=100, max_depth=3, random_state=seed),
        ),
    ]


def tables(options):
    """Name, task and data, in the order of the output."""
    if options.data:
        rows, columns = (int(part) for part in options.data.lower().split("x"))
        useful = max(2, columns // 2)
        data = datasets.make_classification(rows, columns, n_informative=useful, random_state=options.seed)
        yield options.data, "classify", *data
        data = datasets.make_regression(
            rows, columns, n_informative=useful, noise=10.0, random_state=options.seed
        )
        yield options.data, "predict", *data
        return
    yield "digits", "classify", *datasets.load_digits(return_X_y=True)
    yield "breast_cancer", "classify", *datasets.load_breast_cancer(return_X_y=True)
    yield "diabetes", "predict", *datasets.load_diabetes(return_X_y=True)


def measured(model, task, train, test, repeats):
    """Test score (accuracy, or R²), and the shortest time of training, in seconds."""
    seconds = []
    for _ in range(repeats):
        start_time = time.perf_counter()
        model.fit(*train)
        seconds.append(time.perf_counter() - start_time)
    predicted = np.asarray(model.predict(test[0]))
    truth = test[1]
    if task == "classify":
        return float(np.mean(predicted == truth)), min(seconds)
    return float(1 - np.sum((predicted - truth) ** 2) / np.sum((truth - truth.mean()) ** 2)), min(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", metavar="ROWSxCOLUMNS", help="made data of this size instead of the real data"
    )
    parser.add_argument("--threads", type=int, default=1, help="of each model; default 1")
    parser.add_argument(
        "--repeats", type=int, default=3, help="trainings of each model, of which the shortest counts"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON, without the table")
    options = parser.parse_args()
    rows = []
    for data, task, features, truth in tables(options):
        cut = train_test_split(features, truth, test_size=0.25, random_state=options.seed)
        scaler = StandardScaler().fit(cut[0])
        train = (np.ascontiguousarray(scaler.transform(cut[0])), cut[2])
        test = (np.ascontiguousarray(scaler.transform(cut[1])), cut[3])
        measure = "accuracy" if task == "classify" else "R2"
        for name, of_task, kind, ours, reference in pairs(options.threads, options.seed):
            if of_task != task:
                continue
            score, seconds = measured(ours, task, train, test, options.repeats)
            reference_score, reference_seconds = measured(reference, task, train, test, options.repeats)
            rows.append(
                {
                    "data": data,
                    "model": name,
                    "measure": measure,
                    "snapml": score,
                    "sklearn": reference_score,
                    "difference": score - reference_score,
                    "margin": MARGINS[kind],
                    "snapml_seconds": seconds,
                    "sklearn_seconds": reference_seconds,
                }
            )
    versions = {name: importlib.metadata.version(name) for name in ("snapml", "scikit-learn", "numpy")}
    if options.json:
        print(json.dumps({"versions": versions, "rows": rows}, indent=1))
    else:
        show(rows, versions)
    outside = [row for row in rows if abs(row["difference"]) > row["margin"]]
    for row in outside:
        print(f"{row['data']}, {row['model']}: differs by {row['difference']:+.3f}", file=sys.stderr)
    return 1 if outside else 0


def show(rows, versions):
    title = ", ".join(f"{name} {version}" for name, version in versions.items())
    table = Table(title=title)
    table.add_column("data")
    table.add_column("model", no_wrap=True, min_width=25)
    for heading in ("measure", "Snap ML", "scikit-learn", "difference", "Snap ML, s", "scikit-learn, s"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            *(row["data"], row["model"], row["measure"]),
            *(f"{row['snapml']:.3f}", f"{row['sklearn']:.3f}", f"{row['difference']:+.3f}"),
            *(f"{row['snapml_seconds']:.3f}", f"{row['sklearn_seconds']:.3f}"),
        )
    Console(width=130).print(table)


if __name__ == "__main__":
    sys.exit(main())
