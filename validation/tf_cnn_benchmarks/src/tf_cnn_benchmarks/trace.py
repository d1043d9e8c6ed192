"""The Chrome trace of one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.client import timeline

from tf_cnn_benchmarks.errors import BenchmarkError

v1 = tf.compat.v1


def traced_run(session: Any, fetches: Any, path: Path) -> Any:
    """Runs `fetches` with every operator's start and end recorded, for chrome://tracing or Perfetto."""
    metadata = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    result = session.run(fetches, options=options, run_metadata=metadata)
    text = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format(show_dataflow=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BenchmarkError(f"cannot write --trace_file={path}: {error.strerror}; name another") from None
    return result
