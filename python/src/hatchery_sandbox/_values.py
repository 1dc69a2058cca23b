"""Values as they pass between programs and this process: JSON where that holds all of them, raw bytes,
arrays and frames, and the tagged form (`_tagged.py`) for everything else.

NumPy and pandas are never imported here unless a value needs them, and nothing is ever pickled or
unpickled.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hatchery_sandbox._errors import UnsupportedValueError
from hatchery_sandbox._frames import Message
from hatchery_sandbox._tagged import Decoder, Encoder, Unsupported, inline, is_plain


class Attachments:
    """Collects what is attached to a message."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def add(self, piece: bytes) -> int:
        """Appends bytes, and returns their place."""
        self.pieces.append(piece)
        return len(self.pieces) - 1


def split(
    variables: Mapping[str, object], attachments: Attachments
) -> tuple[dict[str, object], dict[str, Message]]:
    """Returns the variables that are JSON, and descriptions of those that are attached.

    Raises:
        UnsupportedValueError: A variable can't be passed.
    """
    plain: dict[str, object] = {}
    data: dict[str, Message] = {}
    for name, value in variables.items():
        value = _unwrapped(value)
        if is_plain(value):
            plain[name] = value
        else:
            data[name] = _describe(name, value, attachments)
    return plain, data


def _unwrapped(value: object) -> object:
    """Returns a number of NumPy as one of Python."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        item: object = value.item()
        return item if type(item) in (bool, int, float, str, bytes) else value
    return value


def _describe(name: str, value: object, attachments: Attachments) -> Message:
    pieces: list[bytes] = []

    def attach(_size: int, make: Any) -> int:
        pieces.append(make())
        return len(pieces) - 1

    tree = _tree(f"the variable `{name}`", value, Encoder(attach))
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False).encode()
    places = [attachments.add(piece) for piece in pieces]
    return {"kind": "tagged", "tree": attachments.add(text), "attachments": places}


def tagged(what: str, value: object) -> Any:
    """Returns a value in the tagged form, with bytes in base64.

    Raises:
        UnsupportedValueError: It can't be passed.
    """
    return _tree(what, value, Encoder(inline))


def _tree(what: str, value: object, encoder: Encoder) -> Any:
    try:
        return encoder.tree(value)
    except Unsupported as error:
        raise UnsupportedValueError(f"{what} can't be sent: {error}") from None


def untagged(tree: Any) -> Any:
    """Returns the value for the tagged form with bytes in base64.

    Raises:
        UnsupportedValueError: It isn't valid, or needs a library that can't be imported here.
    """
    return _decoded(tree, ())


def _decoded(tree: Any, attachments: Sequence[bytearray]) -> Any:
    try:
        return Decoder(attachments).value(tree)
    except (Exception, RecursionError) as error:
        # It comes from a program, and may be anything.
        raise UnsupportedValueError(f"the program's value can't be read here: {error}") from error


def load(description: Message, attachments: Sequence[bytearray]) -> Any:
    """Returns the object for a description and the attachments of its message.

    Raises:
        UnsupportedValueError: It isn't valid, or needs a library that can't be imported here.
    """
    kind = description.get("kind")
    if kind == "bytes":
        return bytes(attachments[description["attachment"]])
    if kind == "array":
        return _decoded({"$array": {**description, "data": description["attachment"]}}, attachments)
    if kind == "frame":
        return _decoded({"$frame": _frame(description)}, attachments)
    if kind == "tagged":
        try:
            tree = json.loads(attachments[description["tree"]])
        except (ValueError, RecursionError) as error:
            raise UnsupportedValueError(f"the program's value isn't JSON: {error}") from None
        return _decoded(tree, [attachments[place] for place in description.get("attachments", ())])
    raise UnsupportedValueError(f"the server sent data of the unknown kind `{kind}`")


def _frame(description: Message) -> Message:
    """Returns a plain frame in the tagged form."""
    columns, index = description["columns"], description.get("index")
    names: Message = {"range": [0, 0, 1]}
    if columns:
        names = {"dtype": "str", "strings": [column["name"] for column in columns]}
    if index is not None:
        index = {**_column(index), "name": description.get("index_name")}
    return {"columns": names, "index": index, "data": [_column(column) for column in columns]}


def _column(described: Message) -> Message:
    if "strings" in described:
        return {"dtype": "str", "strings": described["strings"]}
    return {"dtype": described["dtype"], "data": described["attachment"]}
