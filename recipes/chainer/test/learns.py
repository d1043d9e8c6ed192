"""A small network with the patched functions in it learns; one process."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

random = np.random.default_rng(0)
images = random.standard_normal((200, 1, 8, 8)).astype("f")
labels = (images.mean((1, 2, 3)) > 0).astype("i")


class Network(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.convolution = L.Convolution2D(1, 8, 3)
            self.normalisation = L.BatchNormalization(8)
            self.last = L.Linear(None, 2)

    def forward(self, x):
        return self.last(F.relu(self.normalisation(self.convolution(F.resize_images(x, (12, 12))))))


model = L.Classifier(Network())
optimizer = chainer.optimizers.MomentumSGD(0.05).setup(model)
for _ in range(40):
    optimizer.update(model, images, labels)
assert float(model.accuracy.array) > 0.9, model.accuracy
strided = F.as_strided(chainer.Variable(np.arange(9.0, dtype="f")), (3, 3), (1, 2))
F.sum(strided).backward()
print(chainer.__version__, float(model.accuracy.array))
