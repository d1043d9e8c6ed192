"""What the ranks agree on, by their functions alone."""

from ddl.bootstrap import find
from ddl.bootstrap.rendezvous import Exchange, group_by_host

TORCH = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "h1", "MASTER_PORT": "1"}
ELASTIC = {**TORCH, "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "2"}


class Memory(dict[str, bytes]):
    """A store that everybody has reached already."""

    largest = 0

    def set(self, key: str, value: bytes) -> None:
        self[key] = value
        self.largest = max(self.largest, len(value))

    def delete_key(self, key: str) -> bool:
        return self.pop(key, None) is not None

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key]


assert find({}) is None
assert find({**TORCH, "WORLD_SIZE": "1", "RANK": "0"}) is None
assert find({name: TORCH[name] for name in ("RANK", "WORLD_SIZE")}) is None
found = find(TORCH)
assert found and (found.rank, found.size, found.restart) == (1, 4, "0")
assert find({**TORCH, "PMIX_RANK": "0"}) is None, "MPI's launcher is the inner one"
found = find({**ELASTIC, "PMIX_RANK": "0", "OMPI_COMM_WORLD_RANK": "0"})
assert found and (found.rank, found.restart) == (1, "2"), "torchrun is the inner one"
for wrong in ({"RANK": "4"}, {"RANK": "-1"}, {"WORLD_SIZE": "four"}):
    try:
        find({**TORCH, **wrong})
    except RuntimeError as error:
        assert "[ERROR DDL-1-5] RANK=" in str(error)
    else:
        raise AssertionError(wrong)

assert group_by_host(["a/1", "b/2", "a/1"]) == [("a", (0, 2)), ("b", (1,))]
assert group_by_host(["a/1", "a/2", "a-2/3"]) == [("a", (0,)), ("a-2", (1,)), ("a-2-2", (2,))]

store = Memory()
parts = [bytes([host]) * size for host, size in enumerate((9 << 20, 0, 5))]
for number in range(3):
    for host in (1, 2):
        exchange = Exchange(store, host, 3)
        exchange._put(f"{number}/{host}", parts[host])
    assert Exchange(store, 0, 3).all_gather(number, parts[0]) == b"".join(parts)
    assert Exchange(store, 2, 3)._get(f"{number}/all") == b"".join(parts)
assert store.largest <= 4 << 20, "torch's store refuses more than 8 MiB"
assert {key.partition("/")[0] for key in store} == {"2"}, "what all have read is removed"
print("good")
