"""The server of reservations: a node that comes again takes its own place, also in what others have kept of
it; another one takes a new place."""

from tensorflowonspark import reservation

server = reservation.Server(2)
address = server.start()


def register(host, executor_id, port):
    client = reservation.Client(address)
    client.register({"host": host, "executor_id": executor_id, "port": port})
    client.close()


register("a", 0, 1)
register("a", 1, 2)
held = server.reservations.get()
servers = held[:1]
register("a", 0, 3)
assert [node["port"] for node in held] == [3, 2], held
assert servers[0]["port"] == 3, servers
register("b", 0, 4)
assert [node["port"] for node in held] == [3, 2, 4], held
server.stop()
