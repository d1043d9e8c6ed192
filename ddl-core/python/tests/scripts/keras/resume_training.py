"""Resume from the last checkpoint: rank 0 broadcasts its epoch, and hvd.load_model wraps again."""

import os

import digits
import horovod.keras as hvd
import keras

hvd.init()
checkpoint_format = os.path.join(os.environ["OUT"], "checkpoint-{epoch}.keras")
batch_size = digits.BATCH // hvd.size()
images, labels = digits.shard(hvd.rank(), hvd.size(), steps=7)
losses = []


def new_model():
    keras.utils.set_random_seed(3)
    inputs = keras.layers.Input(shape=(64,))
    x = keras.layers.Dense(20, activation="elu")(inputs)
    model = keras.models.Model(inputs, keras.layers.Dense(10, activation="softmax")(x))
    opt = keras.optimizers.SGD(learning_rate=0.2, momentum=0.9)
    model.compile(hvd.DistributedOptimizer(opt), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def train(epochs):
    """What the script of a job does that the queue may start again."""
    resume_from_epoch = 0
    for try_epoch in range(epochs, 0, -1):
        if os.path.exists(checkpoint_format.format(epoch=try_epoch)):
            resume_from_epoch = try_epoch
            break
    # Only rank 0 may see its files.
    resume_from_epoch = int(hvd.broadcast(resume_from_epoch, 0, name="resume_from_epoch"))
    if resume_from_epoch > 0 and hvd.rank() == 0:
        model = hvd.load_model(
            checkpoint_format.format(epoch=resume_from_epoch), compression=hvd.Compression.none
        )
    else:
        model = new_model()
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    if hvd.rank() == 0:
        callbacks.append(keras.callbacks.ModelCheckpoint(checkpoint_format))
    fitted = model.fit(
        images,
        labels,
        batch_size=batch_size,
        shuffle=False,
        initial_epoch=resume_from_epoch,
        epochs=epochs,
        callbacks=callbacks,
        verbose=0,
    )
    losses.extend(fitted.history["loss"])
    return resume_from_epoch, model


assert train(3)[0] == 0
keras.backend.clear_session()
resumed, model = train(8)
assert resumed == 3 and int(model.optimizer.iterations) == 56, int(model.optimizer.iterations)
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(hvd.rank(), weights, losses)
