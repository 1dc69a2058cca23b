"""Runs cells in a kernel that is recorded. Ends with `all as expected`."""

from jupyter_client.manager import start_new_kernel

CELLS = [
    ("import random\nx = random.random()", "ok"),
    ("print(x)", "ok"),
    ("1/0", "error"),
    ("%time open('left.txt', 'w').write('x')", "ok"),
    ("'the last cell'", "ok"),
]

manager, client = start_new_kernel(kernel_name="hatchery")
for code, status in CELLS:
    reply = client.execute_interactive(code, timeout=60, output_hook=lambda message: None)
    assert reply["content"]["status"] == status, reply
client.stop_channels()
manager.shutdown_kernel()
print("all as expected")
