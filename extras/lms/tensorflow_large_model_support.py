"""The module in which WML CE had TensorFlow's `LMS`: its import says what to write instead."""

raise ImportError(
    "tensorflow_large_model_support changed the graphs of WML CE's TensorFlow, and is not here. Write\n"
    "    import lms.tensorflow\n"
    "    lms.tensorflow.enable(model, offload=True)\n"
    "for a model of Keras, or lms.tensorflow.offload(function) for a function of tensors",
    name=__name__,
)
