"""`python -m tf_cnn_benchmarks`."""

from tf_cnn_benchmarks.cli import run

if __name__ == "__main__":
    run()
