"""What TensorFlow records of one step, as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.client import timeline

from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.params import Params

v1 = tf.compat.v1


class StepRecorder:
    """The files that the flags ask for: a trace, a profile, the graphs that ran."""

    FLAGS = ("trace_file", "tfprof_file", "partitioned_graph_file_prefix")

    def __init__(self, params: Params, printer: Callable[..., None]) -> None:
        self._params = params
        self._print = printer

    @classmethod
    def flags_given(cls, params: Params) -> list[str]:
        """The flags that ask for a file."""
        return [name for name in cls.FLAGS if getattr(params, name)]

    def run(self, session: Any, fetches: Any, feed: Any = None, graph_key: int = 0) -> Any:
        """Runs `fetches` with every operator's start and end recorded, and writes the files. `graph_key` is
        the one of the collectives in it."""
        params = self._params
        metadata = v1.RunMetadata()
        options = v1.RunOptions(
            trace_level=v1.RunOptions.FULL_TRACE,
            output_partition_graphs=bool(params.partitioned_graph_file_prefix),
        )
        options.experimental.collective_graph_key = graph_key
        result = session.run(fetches, feed, options=options, run_metadata=metadata)
        if params.trace_file:
            self._print(f"Dumping trace to {params.trace_file}")
            content = str(metadata.step_stats)
            if params.use_chrome_trace_format:
                trace = timeline.Timeline(metadata.step_stats)
                content = trace.generate_chrome_trace_format(show_dataflow=True, show_memory=True)
            write_file("trace_file", params.trace_file, content)
        if params.tfprof_file:
            profiler = v1.profiler.Profiler(session.graph)
            profiler.add_step(1, metadata)
            self._print(f"Dumping ProfileProto to {params.tfprof_file}")
            write_file("tfprof_file", params.tfprof_file, profiler.serialize_to_string())
        if prefix := params.partitioned_graph_file_prefix:
            for graph in metadata.partition_graphs:
                path = partition_path(prefix, graph.node[0].device)
                self._print(f"Writing partitioned GraphDef as {_form(path)} to {path}")
                write_file("partitioned_graph_file_prefix", path, _content(graph, path))
        return result


def write_graph(path: str, graph: Any, printer: Callable[..., None]) -> None:
    """The graph as it was built, for --graph_file."""
    printer(f"Writing GraphDef as {_form(path)} to {path}")
    write_file("graph_file", path, _content(graph.as_graph_def(add_shapes=True), path))


def partition_path(prefix: str, device: str) -> str:
    """The file of the part that runs on `device`, whose name comes before the prefix's ending."""
    folder, slash, name = prefix.rpartition("/")
    stem, dot, ending = name.rpartition(".") if "." in name else (name, "", "")
    return f"{folder}{slash}{stem}{device.replace('/', '_').replace(':', '_')}{dot}{ending}"


def _form(path: str) -> str:
    return "text" if path.endswith("txt") else "binary"


def _content(definition: Any, path: str) -> str | bytes:
    text = _form(path) == "text"
    return text_format.MessageToString(definition) if text else bytes(definition.SerializeToString())


def write_file(flag: str, path: str, content: str | bytes) -> None:
    """BenchmarkError names the flag when the file cannot be written."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            Path(path).write_text(content, encoding="utf-8")
        else:
            Path(path).write_bytes(content)
    except OSError as error:
        raise BenchmarkError(f"cannot write --{flag}={path}: {error.strerror}; name another") from None
