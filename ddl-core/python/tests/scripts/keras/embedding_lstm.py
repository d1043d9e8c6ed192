"""The form of the IMDB example: sequences of words of different lengths, Embedding, Bidirectional LSTM."""

import ddl
import digits
import numpy as np
from tensorflow.keras import initializers
from tensorflow.keras.layers import LSTM, Bidirectional, Dense, Embedding
from tensorflow.keras.models import Sequential
from tensorflow.keras.optimizers import RMSprop
from tensorflow.keras.preprocessing.sequence import pad_sequences

max_features = 40
maxlen = 8

print("Loading data...")
images, labels = digits.shard(ddl.rank(), ddl.size(), steps=7)
sums = (images.reshape(-1, 8, 8).sum(axis=2) * 4).astype(int)
x_train = [[1 + word for word in row if word > 0] for row in sums]
print(len(x_train), "train sequences, the shortest of", min(map(len, x_train)))
x_train = pad_sequences(x_train, maxlen=maxlen, padding="post")
y_train = np.eye(10, dtype="float32")[labels]


def uniform(seed):
    return initializers.RandomUniform(-0.3, 0.3, seed=seed)


model = Sequential()
model.add(Embedding(max_features, 12, mask_zero=True, embeddings_initializer=uniform(1)))
model.add(
    Bidirectional(
        LSTM(
            16,
            dropout=0.0,
            kernel_initializer=uniform(2),
            recurrent_initializer=initializers.Orthogonal(seed=3),
        )
    )
)
model.add(Dense(10, activation="softmax", kernel_initializer=uniform(4)))
model.compile(
    loss="categorical_crossentropy",
    optimizer=RMSprop(0.02, momentum=0.2),
    metrics=["accuracy"],
)
print("Train...")
fitted = model.fit(
    x_train,
    y_train,
    batch_size=digits.BATCH // ddl.size(),
    epochs=8,
    shuffle=False,
    verbose=0,
)
model.summary()
digits.save(ddl.rank(), {f"w{i}": v for i, v in enumerate(model.get_weights())}, fitted.history["loss"])
