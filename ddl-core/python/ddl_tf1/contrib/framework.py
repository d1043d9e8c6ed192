"""tf.contrib.framework: variables, global step, arg_scope, checkpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ddl_tf1._facade import getattr_of
from ddl_tf1.contrib.arg_scope import add_arg_scope, arg_scope, current_arg_scope, has_arg_scope

argsort = tf.argsort
assert_same_float_dtype = tf.debugging.assert_same_float_dtype
create_global_step = tf.train.create_global_step
get_global_step = tf.train.get_global_step
get_or_create_global_step = tf.train.get_or_create_global_step
init_from_checkpoint = tf.train.init_from_checkpoint
is_tensor = tf.is_tensor
list_variables = tf.train.list_variables
load_checkpoint = tf.train.load_checkpoint
load_variable = tf.train.load_variable
nest = tf.nest
sort = tf.sort

__all__ = [
    "add_arg_scope",
    "arg_scope",
    "current_arg_scope",
    "has_arg_scope",
]


@add_arg_scope
def variable(
    name: str,
    shape: Any = None,
    dtype: Any = tf.float32,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    device: Any = None,
    use_resource: bool | None = None,
) -> Any:
    """Gets or makes a variable, on a device."""
    with tf.device(device or ""):
        return tf.get_variable(
            name,
            shape,
            dtype,
            initializer,
            regularizer,
            trainable,
            list(collections or [tf.GraphKeys.GLOBAL_VARIABLES]),
            caching_device,
            use_resource=use_resource,
        )


@add_arg_scope
def model_variable(name: str, shape: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Gets or makes a variable that is in the collection MODEL_VARIABLES, too."""
    collections = [*(kwargs.pop("collections", None) or [])]
    collections += [tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.MODEL_VARIABLES]
    return variable(name, shape, *args, collections=list(dict.fromkeys(collections)), **kwargs)


def local_variable(initial_value: Any, validate_shape: bool = True, name: str | None = None) -> Any:
    """Makes a variable that checkpoints leave out."""
    return tf.Variable(
        initial_value,
        trainable=False,
        collections=[tf.GraphKeys.LOCAL_VARIABLES],
        validate_shape=validate_shape,
        name=name,
    )


def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = tf.GraphKeys.GLOBAL_VARIABLES
) -> list[Any]:
    """Returns the variables of a collection, of a scope and with an ending if these are given."""
    name = scope.name if isinstance(scope, tf.VariableScope) else scope
    if suffix is not None:
        name = f"{name or ''}.*{suffix if ':' in suffix else f'{suffix}:'}"
    return list(tf.get_collection(collection, name))


def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Returns the variables of layers."""
    return get_variables(scope, suffix, tf.GraphKeys.MODEL_VARIABLES)


def get_local_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Returns the local variables."""
    return get_variables(scope, suffix, tf.GraphKeys.LOCAL_VARIABLES)


def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Returns the trainable variables."""
    return get_variables(scope, suffix, tf.GraphKeys.TRAINABLE_VARIABLES)


def get_variables_by_suffix(suffix: str, scope: Any = None) -> list[Any]:
    """Returns the variables whose name has this ending."""
    return get_variables(scope, suffix)


def get_variables_by_name(given_name: str, scope: Any = None) -> list[Any]:
    """Returns the variables of a name, in whatever scope."""
    return get_variables(scope, rf"/{given_name}:|^{given_name}:")


def get_unique_variable(var_op_name: str) -> Any:
    """Returns the one variable of a full name."""
    matches = [each for each in get_variables() if each.op.name == var_op_name]
    if len(matches) != 1:
        raise ValueError(f"{len(matches)} variables have the name {var_op_name!r}")
    return matches[0]


def get_variables_to_restore(
    include: Sequence[str] | None = None, exclude: Sequence[str] | None = None
) -> list[Any]:
    """Returns the variables of the scopes in include (None: all) without those of the scopes in exclude."""
    scopes = [None] if include is None else include
    listed = {each.op.name: each for scope in scopes for each in get_variables(scope)}
    excluded = [each.op.name for scope in exclude or () for each in get_variables(scope)]
    return [variable for name, variable in listed.items() if name not in excluded]


def filter_variables(
    var_list: Sequence[Any],
    include_patterns: Sequence[str] | None = None,
    exclude_patterns: Sequence[str] | None = None,
    reg_search: bool = True,
) -> list[Any]:
    """Returns the variables whose names match an include pattern (None: all), and no exclude pattern."""
    match = re.search if reg_search else re.match

    def matches(variable: Any, patterns: Sequence[str]) -> bool:
        return any(match(pattern, variable.op.name) for pattern in patterns)

    chosen = [each for each in var_list if include_patterns is None or matches(each, include_patterns)]
    return [each for each in chosen if not matches(each, exclude_patterns or ())]


def assign_from_values_fn(values: dict[str, Any]) -> Callable[[Any], None]:
    """Returns a function of a session that sets variables, which are given by their full names."""
    variables = [(get_unique_variable(name), value) for name, value in values.items()]

    def assign(session: Any) -> None:
        for variable, value in variables:
            variable.load(value, session)

    return assign


def assign_from_checkpoint_fn(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False, reshape_variables: bool = False
) -> Callable[[Any], None]:
    """Returns a function of a session that restores variables from a checkpoint.

    Args:
        model_path: The checkpoint.
        var_list: Variables, or a dictionary from names in the checkpoint to variables.
        ignore_missing_vars: Leaves out what the checkpoint does not have.
        reshape_variables: Restores a value of another shape and as many elements.
    """
    variables = dict(var_list) if isinstance(var_list, dict) else {each.op.name: each for each in var_list}
    if ignore_missing_vars:
        stored = {name for name, _ in tf.train.list_variables(model_path)}
        variables = {name: each for name, each in variables.items() if name in stored}
    saver = tf.train.Saver(variables, reshape=reshape_variables) if variables else None

    def restore(session: Any) -> None:
        if saver is not None:
            saver.restore(session, model_path)

    return restore


__getattr__ = getattr_of(
    "tensorflow.contrib.framework",
    {"deprecated": "use warnings.warn", "assign_from_checkpoint": "use assign_from_checkpoint_fn"},
)
