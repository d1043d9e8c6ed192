"""Values of flags that more than the flags' own table asks for."""

OPTIMIZERS = ("momentum", "sgd", "rmsprop", "adam")
VARIABLE_UPDATES = (
    "parameter_server",
    "replicated",
    "distributed_replicated",
    "independent",
    "distributed_all_reduce",
    "collective_all_reduce",
    "ddl",
    "horovod",
)
WITH_RANKS = ("ddl", "horovod")
"""Kinds whose processes a launcher of MPI starts."""
SERVED = ("parameter_server", "distributed_replicated")
"""Kinds whose variables are on parameter servers, where there are several processes."""
REPLICATED = ("replicated", "distributed_all_reduce", "collective_all_reduce")
"""Kinds that reduce the gradients of several devices as --all_reduce_spec says."""
JOBS = ("ps", "worker", "controller", "")
PROTOCOLS = ("grpc",)
RESIZE_METHODS = ("crop", "nearest", "bilinear", "bicubic", "area", "round_robin")
EVALUATIONS = (
    "eval_during_training_every_n_steps",
    "eval_during_training_every_n_epochs",
    "eval_during_training_at_specified_steps",
    "eval_during_training_at_specified_epochs",
)
"""Flags of which one may be given; the first two take a number, the others a list."""
CIFAR10_FILES = ("data_batch_1*", "cifar-10-batches-*")
"""By which a folder tells what it holds."""
