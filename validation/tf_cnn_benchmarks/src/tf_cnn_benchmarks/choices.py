"""Values of flags that more than the flags' own table asks for."""

OPTIMIZERS = ("momentum", "sgd", "rmsprop", "adam")
VARIABLE_UPDATES = ("parameter_server", "replicated", "independent", "ddl", "horovod")
WITH_RANKS = ("ddl", "horovod")
WITHOUT_SUPPORT = {
    "distributed_replicated": "parameter servers across processes are not provided",
    "distributed_all_reduce": "the gRPC all-reduce across processes is not provided",
    "collective_all_reduce": "the gRPC collectives across processes are not provided",
}
RESIZE_METHODS = ("crop", "nearest", "bilinear", "bicubic", "area", "round_robin")
EVALUATIONS = (
    "eval_during_training_every_n_steps",
    "eval_during_training_every_n_epochs",
    "eval_during_training_at_specified_steps",
    "eval_during_training_at_specified_epochs",
)
"""Of these one may be given; the first two take a number, the others a list."""
CIFAR10_FILES = ("data_batch_1*", "cifar-10-batches-*")
"""By which a folder tells what it holds."""
