"""Functions with the arguments that they had in TensorFlow 1, and names that TensorFlow 2 has dropped."""

import tensorflow as tf

x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
im = tf.zeros([1, 8, 8, 3])
STATEMENTS = """
tf.reduce_sum(x, reduction_indices=[1], keep_dims=True)
tf.argmax(x, dimension=1)
tf.expand_dims(x, dim=0)
tf.squeeze(tf.expand_dims(x, 0), squeeze_dims=[0])
tf.nn.softmax(x, dim=1)
tf.nn.dropout(x, 0.5)
tf.nn.dropout(x, keep_prob=0.9)
tf.nn.softmax_cross_entropy_with_logits(logits=x, labels=x)
tf.nn.softmax_cross_entropy_with_logits_v2(logits=x, labels=x)
tf.nn.max_pool(im, ksize=[1,2,2,1], strides=[1,2,2,1], padding='SAME')
tf.nn.conv2d(im, tf.zeros([3,3,3,2]), strides=[1,1,1,1], padding='SAME')
tf.nn.lrn(im, 4, bias=1.0, alpha=0.001/9.0, beta=0.75)
tf.image.resize_images(im, [4, 4])
tf.image.resize_image_with_crop_or_pad(im, 4, 4)
tf.image.resize_bilinear(im, [4,4])
tf.image.per_image_standardization(im[0])
tf.random_crop(im[0], [4,4,3])
tf.image.random_brightness(im[0], 0.5)
tf.py_func(lambda a: a, [x], tf.float32)
tf.Print(x, [x], message='x')
tf.cond(tf.constant(True), lambda: x, lambda: -x)
tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)])
tf.scan(lambda a, b: a + b, x)
tf.map_fn(lambda a: a, x)
tf.where(x > 0, x, -x)
tf.to_int32(x)
tf.cast(x, tf.int32)
tf.div(x, 2.0)
tf.mod(5, 3)
tf.log(tf.exp(x))
tf.matrix_band_part(x, 0, -1)
tf.sparse_tensor_to_dense(tf.SparseTensor([[0,0]],[1.0],[2,2]))
tf.string_split(['a b'])
tf.random_normal([2])
tf.truncated_normal([2])
tf.multinomial(x, 1)
tf.nn.embedding_lookup(tf.get_variable('e', [4, 2]), [1])
tf.nn.static_rnn(tf.nn.rnn_cell.BasicRNNCell(3), [x], dtype=tf.float32)
cells = [tf.nn.rnn_cell.LSTMCell(3) for _ in range(2)]
tf.nn.bidirectional_dynamic_rnn(*cells, tf.expand_dims(x, 0), dtype=tf.float32)
tf.nn.raw_rnn
tf.nn.batch_normalization(x, 0., 1., None, None, 1e-3)
tf.nn.moments(x, axes=[0])
tf.layers.batch_normalization(x, training=True)
tf.layers.conv1d(tf.expand_dims(x,0), 3, 2)
tf.layers.Dense(3)(x)
tf.losses.mean_squared_error(x, x)
tf.metrics.accuracy([1],[1])
tf.summary.image('i', im); tf.summary.histogram('h', x)
tf.train.polynomial_decay(0.1, tf.train.get_or_create_global_step(), 10)
tf.train.piecewise_constant(tf.train.get_or_create_global_step(), [3], [0.1, 0.2])
tf.train.cosine_decay(0.1, 0, 10)
tf.train.shuffle_batch([x], 2, 10, 2)
tf.train.slice_input_producer([x, x])
tf.train.batch([x], 2)
tf.clip_by_global_norm([x], 1.0)
tf.gradients(tf.reduce_sum(x*x), x)
tf.get_collection(tf.GraphKeys.UPDATE_OPS)
tf.assign(tf.Variable(1.0), 2.0); tf.assign_add(tf.Variable(1.0), 2.0)
tf.scatter_update(tf.Variable([1.0]), [0], [2.0])
tf.gfile.Exists('/tmp'), tf.gfile.ListDirectory('/'), tf.gfile.GFile
tf.device('/cpu:0')
tf.trainable_variables(), tf.global_variables()
tf.nn.sparse_softmax_cross_entropy_with_logits(logits=x, labels=[0,1])
tf.nn.in_top_k(x, [0,1], 1)
tf.nn.ctc_loss; tf.nn.ctc_greedy_decoder
tf.nn.sampled_softmax_loss; tf.nn.nce_loss
tf.distributions.Normal(0., 1.).sample()
tf.contrib.distributions.Normal(0., 1.).sample()
tf.feature_column.numeric_column('a')
tf.app.flags.FLAGS
tf.test.is_gpu_available()
tf.test.TestCase
tf.saved_model.simple_save
tf.saved_model.builder.SavedModelBuilder
tf.saved_model.loader.load
tf.profiler.profile
tf.python_io.TFRecordWriter; tf.python_io.tf_record_iterator
tf.FixedLenFeature([], tf.string)
tf.make_template('t', lambda a: a)
tf.import_graph_def; tf.graph_util.remove_training_nodes
tf.train.ClusterSpec({'a': ['b:1']}); tf.train.Server; tf.train.replica_device_setter(1)
tf.train.SyncReplicasOptimizer
tf.logging.info('x'); tf.logging.set_verbosity(tf.logging.ERROR)
tf.contrib.util.make_tensor_proto(1)
tf.keras.utils.to_categorical([1])
tf.keras.backend.clear_session
tf.initializers.he_normal(); tf.keras.initializers.he_normal()
tf.contrib.keras.layers.Dense
"""
failed = []
for statement in filter(None, STATEMENTS.splitlines()):
    try:
        exec(statement)
    except Exception as error:
        failed.append(f"{statement}: {type(error).__name__}: {error}")
assert not failed, "\n".join(failed)
print(len(STATEMENTS.splitlines()), "statements")
