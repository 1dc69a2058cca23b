"""Building strings and taking them apart: formatting, joining, replacing, regular expressions."""

import re

from measure import measure

LINE = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d) \[(?P<level>[A-Z]+)\] (?P<who>\w+)@(?P<host>[\w.]+): (.*)"
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
LEVELS = ["INFO", "WARNING", "ERROR"]


def work(scale):
    lines = []
    for n in range(max(1, round(14_000 * scale))):
        day = f"2026-{n % 12 + 1:02d}-{n % 28 + 1:02d}"
        took = "took %d.%03d s of %s" % (n % 9, n % 1000, n * 37 % 101)
        lines.append(f"{day} [{LEVELS[n % 3]}] user{n % 50}@host{n % 7}.example.org: {took}")
    text = "\n".join(lines).replace("WARNING", "warning".upper()[:4])
    total = 0
    for line in text.splitlines():
        match = LINE.match(line)
        total += len(match["who"]) + len(match["host"]) + match["level"].count("R")
        total += sum(float(number) > 4 for number in NUMBER.findall(match[5]))
    masked = re.sub(r"(\w+)@[\w.]+", lambda match: match[1].upper(), text)
    return f"{total} {len(masked)} {masked.count('USER7')}"


measure(work)
