"""Calls a task's checker in an interpreter of its own, with what a candidate wrote as text."""


def run_checker():
    given = globals()
    scope = {"__name__": "checker"}
    exec(compile(given["hatchery_checker"], "<checker>", "exec"), scope)
    check = scope["check"]
    return [
        bool(check(stdin, stdout, expected))
        for stdin, stdout, expected in given["hatchery_cases"]
    ]
