"""The form of Horovod's example for TensorFlow 2 of 2019: tape, first batch, broadcasts, checkpoint."""

import digits
import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
gpus = tf.config.experimental.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

images, labels = digits.load()
dataset = tf.data.Dataset.from_tensor_slices(
    (tf.cast(images[:1792, :, None].reshape(-1, 8, 8, 1), tf.float32), tf.cast(labels[:1792], tf.int64))
)
dataset = dataset.shuffle(1792, seed=1, reshuffle_each_iteration=False).shard(hvd.size(), hvd.rank())
dataset = dataset.repeat().batch(digits.BATCH // hvd.size())

# the broadcast comes after the first step, to which all ranks contribute
tf.keras.utils.set_random_seed(42)
mnist_model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(8, [3, 3], activation="relu"),
        tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
        tf.keras.layers.Dropout(0.0),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(32, activation="relu"),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
loss = tf.losses.SparseCategoricalCrossentropy()
opt = tf.optimizers.Adam(0.005, epsilon=1e-4)
checkpoint = tf.train.Checkpoint(model=mnist_model, optimizer=opt)


@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        probs = mnist_model(images, training=True)
        loss_value = loss(labels, probs)
    tape = hvd.DistributedGradientTape(tape)
    grads = tape.gradient(loss_value, mnist_model.trainable_variables)
    opt.apply_gradients(zip(grads, mnist_model.trainable_variables, strict=True))
    # after the first step, so that the optimizer has its slots
    if first_batch:
        hvd.broadcast_variables(mnist_model.variables, root_rank=0)
        hvd.broadcast_variables(opt.variables(), root_rank=0)
    return loss_value


losses = []
for batch, (image, label) in enumerate(dataset.take(50)):
    loss_value = training_step(image, label, batch == 0)
    losses.append(float(loss_value))
    if batch % 10 == 0 and hvd.local_rank() == 0:
        print(f"Step #{batch}\tLoss: {loss_value:.6f}")
if hvd.rank() == 0:
    checkpoint.save("./checkpoints")
    assert tf.train.latest_checkpoint(".") == "./checkpoints-1"
digits.save(hvd.rank(), {f"w{i}": value for i, value in enumerate(mnist_model.get_weights())}, losses)
