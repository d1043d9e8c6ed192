"""Spark ML's LogisticRegression on a Spark cluster, beside scikit-learn's on the same rows.

Run it:  python -m ddl_spark --workers 2 -- python logistic_regression.py

For those who used snapml-spark: the data are a table of Spark, and all executors work on one model. Features
are scaled with the training rows' mean and deviation. Spark's regParam is 1 / (C · rows) of scikit-learn's.
"""

import argparse
import time

import numpy as np


def tables(options):
    """Features and labels: digits, or --data ROWSxCOLUMNS by make_classification; a quarter is the test."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    if options.data:
        rows, columns = (int(part) for part in options.data.lower().split("x"))
        useful = max(2, columns // 2)
        data = datasets.make_classification(rows, columns, n_informative=useful, random_state=1)
    else:
        data = datasets.load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(*data, test_size=0.25, random_state=1)
    scaler = StandardScaler().fit(train_x)
    return scaler.transform(train_x), train_y, scaler.transform(test_x), test_y


def main():
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import SparkSession
    from sklearn import linear_model

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="ROWSxCOLUMNS", help="made data of this size instead of digits")
    parser.add_argument("--inverse-penalty", type=float, default=0.1, help="scikit-learn's C; default 0.1")
    options = parser.parse_args()
    spark = (
        SparkSession.builder.appName("logistic_regression")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    train_x, train_y, test_x, test_y = tables(options)

    def table(features, labels):
        rows = ((row.tolist(), float(label)) for row, label in zip(features, labels, strict=True))
        frame = spark.createDataFrame(list(rows), "features array<double>, label double")
        return frame.withColumn("features", array_to_vector("features"))

    train = table(train_x, train_y).repartition(2 * spark.sparkContext.defaultParallelism).cache()
    train.count()
    penalty = 1 / (options.inverse_penalty * len(train_y))
    estimator = LogisticRegression(regParam=penalty, standardization=False, maxIter=1000, tol=1e-9)
    start_time = time.perf_counter()
    model = estimator.fit(train)
    seconds = time.perf_counter() - start_time
    predictions = model.transform(table(test_x, test_y)).select("prediction", "label").collect()
    accuracy = np.mean([row["prediction"] == row["label"] for row in predictions])
    coefficients = model.coefficientMatrix.toArray()
    spark.stop()

    reference = linear_model.LogisticRegression(C=options.inverse_penalty, max_iter=10000, tol=1e-9)
    reference.fit(train_x, train_y)
    difference = np.abs(coefficients - reference.coef_).max() / np.abs(reference.coef_).max()
    print(f"scikit-learn's accuracy: {reference.score(test_x, test_y):.3f}")
    print(f"relative difference of coefficients: {difference:.1e}")
    print(f"images/sec: {len(train_y) / seconds:.0f}")
    print(f"accuracy: {accuracy:.3f}")


if __name__ == "__main__":
    main()
