"""A client of `hatchery serve` in frames: starts a pool of its own and shares it among its jobs."""

import json
import struct
import subprocess


class Client:
    """Speaks with a server over its standard streams."""

    def __init__(self, *options):
        command = ["hatchery", "serve", "--stdio", "--quiet", *options]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.send({"type": "hello", "version": 1})
        self.receive()

    def send(self, message, *attachments):
        if attachments:
            message = {**message, "attachments": [len(data) for data in attachments]}
        header = json.dumps(message).encode()
        frame = struct.pack("<I", len(header)) + header + b"".join(attachments)
        self.child.stdin.write(frame)
        self.child.stdin.flush()

    def receive(self):
        (length,) = struct.unpack("<I", self.child.stdout.read(4))
        message = json.loads(self.child.stdout.read(length))
        attachments = [self.child.stdout.read(size) for size in message.pop("attachments", [])]
        return message, attachments

    def close(self):
        self.child.stdin.close()
        self.child.wait()


client = Client("--workers", "2")

# Jobs run side by side; their outcomes come as they end.
for number in range(3):
    client.send({"type": "run", "id": number, "job": {"code": f"{number} ** 2"}})
outcomes = sorted(client.receive()[0]["id"] for _ in range(3))
print("ended:", outcomes)

# A session keeps its variables, and an array travels as bytes.
client.send({"type": "session", "id": "open", "session": "s", "action": "open"})
client.receive()
array = {"kind": "array", "dtype": "<f8", "shape": [3], "attachment": 0}
run = {"type": "run", "id": "sum", "session": "s", "data": {"x": array}, "job": {"code": "x.sum()"}}
client.send(run, struct.pack("<3d", 1.0, 2.5, 4.0))
print("sum:", client.receive()[0]["result"]["value"])

# A program calls a function of this process.
run = {
    "type": "run",
    "id": "price",
    "functions": [{"name": "price", "parameters": [{"name": "item", "hint": "str"}]}],
    "job": {"code": "from hatchery import host; 2 * host.price(item='chair')"},
}
client.send(run)
call = client.receive()[0]
print("asked for:", call["name"], call["arguments"])
client.send({"type": "answer", "call": call["call"], "value": 87.5})
print("two chairs:", client.receive()[0]["result"]["value"])

client.close()
