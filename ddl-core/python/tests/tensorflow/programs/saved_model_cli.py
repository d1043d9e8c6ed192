"""Asks SavedModels by TensorFlow's saved_model_cli, in a process that has no DDL.

saved_model_cli.py FOLDER NAME...    FOLDER/NAME is a SavedModel, FOLDER/NAME.npz has its input x
"""

import json
import os
import sys

sys.modules["ddl"] = None  # an import of it fails from here on
for variable in [name for name in os.environ if name.startswith(("DDL_", "OMPI_", "PMIX_"))]:
    del os.environ[variable]

from tensorflow.core.protobuf import saved_model_pb2  # noqa: E402
from tensorflow.python.tools import saved_model_cli  # noqa: E402


def first_input(folder):
    """The name of the only input of a SavedModel's signature."""
    saved = saved_model_pb2.SavedModel()
    with open(f"{folder}/saved_model.pb", "rb") as file:
        saved.ParseFromString(file.read())
    return next(iter(saved.meta_graphs[0].signature_def["serving_default"].inputs))


folder, names = sys.argv[1], sys.argv[2:]
outcome = {}
for name in names:
    arguments = ["--dir", f"{folder}/{name}", "--tag_set", "serve", "--signature_def", "serving_default"]
    arguments += ["--inputs", f"{first_input(f'{folder}/{name}')}={folder}/{name}.npz[x]"]
    sys.argv = ["saved_model_cli", "run", *arguments, "--outdir", f"{folder}/{name}.answers"]
    try:
        saved_model_cli.main()
        outcome[name] = "no exit"
    except SystemExit as end:
        outcome[name] = "answered" if not end.code else f"exit {end.code}"
    except Exception as error:
        outcome[name] = f"{type(error).__name__}: {error}"
with open("/proc/self/maps") as file:
    outcome["libddl is loaded"] = "libddl" in file.read()
with open(f"{folder}/outcome.json", "w") as file:
    json.dump(outcome, file)
