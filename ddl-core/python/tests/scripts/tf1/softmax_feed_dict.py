"""A softmax regression with feed_dict, as the first tutorial of TensorFlow had it."""

import ddl
import digits
import tensorflow as tf

images, labels = digits.load()

x = tf.placeholder(tf.float32, [None, 64])
y_ = tf.placeholder(tf.int64, [None])
W = tf.Variable(tf.random_normal([64, 10], stddev=0.1, seed=1), name="W")
b = tf.Variable(tf.zeros([10]), name="b")
y = tf.matmul(x, W) + b
cross_entropy = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y_, logits=y))
train_step = tf.train.GradientDescentOptimizer(0.5).minimize(cross_entropy)
correct = tf.equal(tf.argmax(y, 1), y_)
accuracy = tf.reduce_mean(tf.to_float(correct))

sess = tf.InteractiveSession()
tf.global_variables_initializer().run()
losses = []
for step in range(100):
    rows = digits.part(step, ddl.rank(), ddl.size())
    _, loss = sess.run([train_step, cross_entropy], feed_dict={x: images[rows], y_: labels[rows]})
    losses.append(loss)
assert accuracy.eval({x: images, y_: labels}) > 0.85
assert W.get_shape()[1].value == 10
digits.save(ddl.rank(), {"W": W.eval(), "b": b.eval()}, losses)
sess.close()
