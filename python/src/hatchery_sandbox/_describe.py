"""An outcome in words, for a model."""

from __future__ import annotations

from hatchery_sandbox._outcome import Outcome

TOOL_DESCRIPTION = (
    "Runs a Python program in a sandbox and returns what it prints and the value of its last "
    "expression. There is no network, and there are no files of the host."
)
"""What a model reads of a tool that runs programs."""
_LEAST = 100
"""Characters in which an outcome can be told at all."""


def describe(outcome: Outcome, limit: int | None = 10_000) -> str:
    """Returns what a model should read of an outcome: what the program wrote, the value of its last
    expression, and why it ended if it failed. All adapters use it.

    ```
    describe(pool.run("print('hello'); 6 * 7"))  # hello\\n42
    ```

    If it is longer than the limit, the middle of the output is left out, and the text says how much.
    The end of an error always stays.

    Args:
        outcome: How a job ended.
        limit: The most characters, at least 100. `None`: everything.

    Raises:
        ValueError: The limit is below 100.
    """
    if limit is not None and limit < _LEAST:
        raise ValueError(f"limit must be at least {_LEAST} characters, not {limit}")
    parts = [outcome.stdout, outcome.stderr, outcome.repr or ""]
    output = "\n".join(part.rstrip("\n") for part in parts if part)
    ending = "\n".join(_ending(outcome))
    if not (output or ending):
        return "(no output)"
    if limit is not None:
        room = limit - len(output) - 1 if output else limit
        ending = _cut(ending, max(room, limit // 2))
        output = _cut(output, limit - len(ending) - 1 if ending else limit)
    return "\n".join(part for part in (output, ending) if part)


def _ending(outcome: Outcome) -> list[str]:
    told = []
    if figures := len(outcome.figures):
        told.append("(1 figure was shown)" if figures == 1 else f"({figures} figures were shown)")
    if outcome.truncated:
        told.append("(output beyond the limit was dropped)")
    if not outcome.success:
        exception = outcome.exception
        told.append(exception.traceback.rstrip() if exception else _reason(outcome))
    if outcome.session_restored:
        told.append("(the program was ended by force; variables and files are as they were before it)")
    return told


def _reason(outcome: Outcome) -> str:
    if outcome.status == "exited":
        return outcome.message or f"the program left with the code {outcome.exit_code}"
    return outcome.message or outcome.status


def _cut(text: str, most: int) -> str:
    """Returns a text without its middle, if it is too long: at most so many characters."""
    if len(text) <= most:
        return text
    mark = f"\n… {len(text) - most:,} characters left out …\n"
    # The number can grow by the mark itself, which only makes it smaller than it is.
    kept = max(most - len(mark), 0)
    start = kept // 3
    return f"{text[:start]}{mark}{text[len(text) - (kept - start) :]}"[:most]
