"""A grid by an engine: prints the rows as JSON.  grid_by.py ENGINE FOLDER"""

import json
import sys

import ddl_sweep as sweep


def train(rate: float, width: int, kind: str) -> dict[str, float]:
    return {"score": width - 100 * (rate - 0.25) ** 2 + (kind == "b"), "cost": rate * width}


if __name__ == "__main__":
    engine, folder = sys.argv[1:]
    space = {"rate": [0.125, 0.25, 0.5], "width": (1, 2), "kind": ["a", "b"]}
    result = sweep.run(train, space, engine=engine, maximize="score", folder=folder, at_once=2)
    print(json.dumps({"rows": result.rows, "best": result.best.number}))
