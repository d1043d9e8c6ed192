"""The loop of TensorFlow's tutorial for experts, made distributed by `import ddl` alone."""

import ddl
import digits
import tensorflow as tf
from tensorflow.keras import Model
from tensorflow.keras.layers import Conv2D, Dense, Flatten

x_train, y_train = digits.shard(ddl.rank(), ddl.size())
x_test, y_test = digits.load()
x_train, x_test = (x.reshape(-1, 8, 8)[..., tf.newaxis] for x in (x_train, x_test))
train_ds = tf.data.Dataset.from_tensor_slices((x_train, y_train)).batch(ddl.per_rank_batch_size(digits.BATCH))
test_ds = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(256)
tf.keras.utils.set_random_seed(40 + ddl.rank())


class MyModel(Model):
    def __init__(self):
        super().__init__()
        self.conv1 = Conv2D(8, 3, activation="relu")
        self.flatten = Flatten()
        self.d1 = Dense(32, activation="relu")
        self.d2 = Dense(10)

    def call(self, x):
        return self.d2(self.d1(self.flatten(self.conv1(x))))


model = MyModel()
loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.Adam(epsilon=1e-4)
train_loss = tf.keras.metrics.Mean(name="train_loss")
train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = loss_object(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    train_loss(loss)
    train_accuracy(labels, predictions)


@tf.function
def test_step(images, labels):
    test_accuracy(labels, model(images, training=False))


losses = []
for epoch in range(2):
    for metric in (train_loss, train_accuracy, test_accuracy):
        metric.reset_state()
    for images, labels in train_ds:
        train_step(images, labels)
        losses.append(float(train_loss.result()))
    for test_images, test_labels in test_ds:
        test_step(test_images, test_labels)
    if ddl.rank() == 0:
        print(f"Epoch {epoch + 1}, Accuracy: {train_accuracy.result() * 100}")
assert test_accuracy.result() > 0.85, test_accuracy.result()
digits.save(ddl.rank(), {f"w{i}": value for i, value in enumerate(model.get_weights())}, losses)
