"""`python -m nmt`, or from the tree `python -m nmt`."""

from .cli import run

if __name__ == "__main__":
    run()
