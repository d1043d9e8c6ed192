"""pai4sk's names are scikit-learn's, and Snap ML's where there is one."""

import pickle
import sys
import types

import pai4sk.linear_model
import sklearn.linear_model
from pai4sk import datasets, metrics
from pai4sk.linear_model import Ridge
from pai4sk.model_selection import train_test_split
from pai4sk.preprocessing import normalize
from pai4sk.svm import LinearSVC

assert pai4sk.linear_model is sklearn.linear_model and Ridge is sklearn.linear_model.Ridge
assert sklearn.linear_model.__spec__.name == "sklearn.linear_model"
x, y = datasets.load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(normalize(x), y, random_state=0)
model = pickle.loads(pickle.dumps(LinearSVC(random_state=0).fit(train_x, train_y)))
assert metrics.accuracy_score(test_y, model.predict(test_x)) > 0.9

for name in ("pai4sk.no_such_module", "pai4sk.linear_model.no_such_module"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        pass
    else:
        raise SystemExit(f"{name} was imported")
try:
    from pai4sk import BoostingMachine
except ImportError as error:
    assert "pip install --no-deps snapml" in str(error), error
else:
    raise SystemExit("there is no Snap ML here")
stand_in = types.ModuleType("snapml")
stand_in.BoostingMachine = object()
sys.modules["snapml"] = stand_in
from pai4sk import BoostingMachine  # noqa: E402

assert BoostingMachine is stand_in.BoostingMachine
