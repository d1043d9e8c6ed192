"""The form of TensorFlow's DCGAN tutorial with Horovod: two tapes in one step, two optimizers."""

import digits
import horovod.tensorflow as hvd
import tensorflow as tf
from tensorflow.keras import layers

hvd.init()
tf.keras.utils.set_random_seed(110 + hvd.rank())
noise_dim = 6


def make_generator_model():
    model = tf.keras.Sequential()
    model.add(layers.Dense(4 * 4 * 4, use_bias=False, input_shape=(noise_dim,)))
    model.add(layers.LeakyReLU())
    model.add(layers.Reshape((4, 4, 4)))
    model.add(layers.Conv2DTranspose(1, (3, 3), strides=(2, 2), padding="same", activation="sigmoid"))
    return model


def make_discriminator_model():
    model = tf.keras.Sequential()
    model.add(layers.Conv2D(8, (3, 3), strides=(2, 2), padding="same", input_shape=[8, 8, 1]))
    model.add(layers.LeakyReLU())
    model.add(layers.Flatten())
    model.add(layers.Dense(1))
    return model


generator, discriminator = make_generator_model(), make_discriminator_model()
cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)
generator_optimizer = tf.keras.optimizers.Adam(2e-4, epsilon=1e-4)
discriminator_optimizer = tf.keras.optimizers.Adam(5e-3, epsilon=1e-4)


def discriminator_loss(real_output, fake_output):
    real_loss = cross_entropy(tf.ones_like(real_output), real_output)
    return real_loss + cross_entropy(tf.zeros_like(fake_output), fake_output)


def generator_loss(fake_output):
    return cross_entropy(tf.ones_like(fake_output), fake_output)


@tf.function
def train_step(images, noise):
    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        generated_images = generator(noise, training=True)
        real_output = discriminator(images, training=True)
        fake_output = discriminator(generated_images, training=True)
        gen_loss = generator_loss(fake_output)
        disc_loss = discriminator_loss(real_output, fake_output)
    gen_tape = hvd.DistributedGradientTape(gen_tape, num_groups=1)
    disc_tape = hvd.DistributedGradientTape(disc_tape, gradient_predivide_factor=2.0)
    gen_gradients = gen_tape.gradient(gen_loss, generator.trainable_variables)
    disc_gradients = disc_tape.gradient(disc_loss, discriminator.trainable_variables)
    generator_optimizer.apply_gradients(zip(gen_gradients, generator.trainable_variables, strict=True))
    discriminator_optimizer.apply_gradients(
        zip(disc_gradients, discriminator.trainable_variables, strict=True)
    )
    return disc_loss


images = digits.load()[0].reshape(-1, 8, 8, 1)
noises = tf.random.Generator.from_seed(3)
hvd.broadcast_variables(generator.variables + discriminator.variables, root_rank=0)
losses = []
for step in range(50):
    noise = noises.normal([digits.BATCH, noise_dim])[digits.part(0, hvd.rank(), hvd.size())]
    losses.append(float(train_step(images[digits.part(step, hvd.rank(), hvd.size())], noise)))
weights = {f"G{i}": value for i, value in enumerate(generator.get_weights())}
weights |= {f"D{i}": value for i, value in enumerate(discriminator.get_weights())}
digits.save(hvd.rank(), weights, losses)
