"""Image-classification training benchmarks for TensorFlow whose gradients travel through DDL.

The program measures how many images a second a model trains on, alone or on many ranks. Flags and
output lines are those that users of the well-known benchmark of this name parse in their scripts.
"""

from importlib import metadata

try:
    __version__ = metadata.version("tf-cnn-benchmarks")
except metadata.PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0+checkout"
