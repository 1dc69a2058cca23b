"""Applies a file of patterns, as nbval reads it, to texts.

Runs in a fresh interpreter of the pool; `check.rs` calls `answer`.
"""

import json
import re

# A pattern and its replacement, on two lines.
PAIR = re.compile(r"^regex: (.*)$\n^replace: (.*)$", re.MULTILINE)


def answer(request):
    """Returns the texts with each pattern replaced, as JSON."""
    patterns, texts = json.loads(request)
    pairs = PAIR.findall(patterns)
    if not pairs:
        return unusable("the file of patterns has no `regex: …` with a `replace: …` on the next line")
    for pattern, replacement in pairs:
        try:
            compiled = re.compile(pattern)  # even if there is no text
            texts = [compiled.sub(replacement, text) for text in texts]
        except (re.error, IndexError) as error:
            return unusable(f"the pattern `{pattern}` can't be used: {error}")
    return json.dumps({"ok": texts})


def unusable(why):
    return json.dumps({"unusable": why})
