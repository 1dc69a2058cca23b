"""JSON there and back: a list of nested records, with the C accelerator where there is one."""

import json

from measure import measure

RECORDS = [
    {
        "id": n,
        "name": f"record {n}",
        "tags": [f"t{n % 7}", f"t{n % 11}", "größe"],
        "values": [n / 8, n * 1.5, -n, None, n % 2 == 0],
        "inner": {"x": {"y": {"z": n}}, "text": 'a "quoted" line\n' * 2},
    }
    for n in range(500)
]


def work(scale):
    total = 0
    for _ in range(max(1, round(36 * scale))):
        text = json.dumps(RECORDS, sort_keys=True)
        again = json.loads(text)
        total += len(text) + again[-1]["inner"]["x"]["y"]["z"]
    assert again == RECORDS
    return total


measure(work)
