"""Two ranks: an operator, and a gradient that `import ddl` alone averages."""

import ddl
import numpy as np
import tensorflow as tf

rank, size = ddl.rank(), ddl.size()
assert size == 2, size
total = ddl.allreduce_n([tf.fill([5], float(rank + 1)), tf.fill([2, 3], 10.0 * rank)], op="avg")
np.testing.assert_allclose(total[0], np.full(5, 1.5))
np.testing.assert_allclose(total[1], np.full((2, 3), 5.0))

x = tf.Variable(2.0)
optimizer = tf.keras.optimizers.SGD(1.0)
with tf.GradientTape() as tape:
    loss = x * (rank + 1.0)  # gradients 1 and 2, on average 1.5
optimizer.apply_gradients([(tape.gradient(loss, x), x)])
np.testing.assert_allclose(x.numpy(), 0.5)
print("averaged", flush=True)
