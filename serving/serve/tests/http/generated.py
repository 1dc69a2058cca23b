"""A client that openapi-python-client made: every module imports, and jobs and sessions work."""

import importlib
import pkgutil
import sys

import hatchery_client
from hatchery_client import Client
from hatchery_client.api.default import (
    delete_v1_sessions_name,
    get_v1_sessions,
    get_v1_status,
    post_v1_run,
    post_v1_sessions,
    post_v1_sessions_name_run,
)
from hatchery_client.models import Job, PostV1SessionsBody

for module in pkgutil.walk_packages(hatchery_client.__path__, "hatchery_client."):
    importlib.import_module(module.name)

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)
result = post_v1_run.sync(client=client, body=Job(code="6 * 7", timeout=20))
assert (result.value, result.success) == (42, True), result
call = Job.from_dict({"call": {"function": "math:sqrt", "args": [16]}})
assert post_v1_run.sync(client=client, body=call).value == 4
raised = post_v1_run.sync(client=client, body=Job(code="1 / 0"))
assert raised.status == "raised" and "ZeroDivisionError" in raised.exception, raised
refused = post_v1_run.sync(client=client, body=Job())
assert refused.error.kind == "usage", refused

name = "generated"
post_v1_sessions.sync(client=client, body=PostV1SessionsBody(name=name))
for code, expected in [("x = 1", None), ("x + 1", 2)]:
    turn = post_v1_sessions_name_run.sync(name, client=client, body=Job(code=code))
    assert turn.value == expected, turn
assert {"name": name} in get_v1_sessions.sync(client=client).to_dict()["sessions"]
delete_v1_sessions_name.sync(name, client=client)
assert get_v1_status.sync(client=client).to_dict()["phase"] == "open"
