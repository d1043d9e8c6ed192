"""Handwritten digits with scikit-learn under WML CE's name, and with Snap ML where that is installed.

Run it:  python digits.py
"""

import importlib.util

import pai4sk
from pai4sk.datasets import load_digits
from pai4sk.linear_model import LogisticRegression
from pai4sk.model_selection import train_test_split

images, labels = load_digits(return_X_y=True)
train_images, test_images, train_labels, test_labels = train_test_split(images / 16.0, labels, random_state=1)
models = {"scikit-learn": LogisticRegression(max_iter=1000)}
if importlib.util.find_spec("snapml") is not None:
    models["Snap ML"] = pai4sk.BoostingMachineClassifier(num_round=50)
for name, model in models.items():
    model.fit(train_images, train_labels)
    accuracy = (model.predict(test_images) == test_labels).mean()
    print(f"{name}  test accuracy {accuracy:.3f}")
    if accuracy < 0.8:
        raise SystemExit("the model did not learn")
