"""Values that travel as raw bytes: `bytes`, arrays of NumPy and frames of pandas.

Neither library is imported before a value needs it, and nothing is pickled or unpickled.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hatchery_sandbox._errors import UnsupportedValueError
from hatchery_sandbox._frames import Message

_KINDS = "biufcMmSU"
"""The kinds of NumPy's types of items that can be passed: no objects, no records."""


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
        if type(value) in (str, int, float, bool, list, dict, tuple, type(None)):
            plain[name] = value
        elif (described := _describe(name, value, attachments)) is not None:
            data[name] = described
        else:
            plain[name] = _plain(value)
    return plain, data


def _plain(value: object) -> object:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    return value


def _describe(name: str, value: object, attachments: Attachments) -> Message | None:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"kind": "bytes", "attachment": attachments.add(bytes(value))}
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if numpy is not None and isinstance(value, numpy.ndarray):
        array = _describe_array(numpy, name, value, attachments)
        return {"kind": "array", "shape": list(value.shape), **array}
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return _describe_frame(name, value, attachments)
    if pandas is not None and isinstance(value, (pandas.Series, pandas.Index)):
        raise UnsupportedValueError(
            f"the variable `{name}` is a {type(value).__name__} of pandas; pass `.to_frame()` or "
            "`.to_numpy()`"
        )
    return None


def _describe_array(numpy: Any, name: str, array: Any, attachments: Attachments) -> Message:
    dtype = array.dtype
    if dtype.kind not in _KINDS or isinstance(array, numpy.ma.MaskedArray):
        raise UnsupportedValueError(
            f"the items of `{name}` are of type {dtype}; numbers, dates and texts of a fixed length "
            "can be passed"
        )
    if dtype.byteorder == ">" or (dtype.byteorder == "=" and sys.byteorder == "big"):
        dtype = dtype.newbyteorder("<")
        array = array.astype(dtype)
    return {"dtype": dtype.str, "attachment": attachments.add(array.tobytes())}


def _describe_frame(name: str, frame: Any, attachments: Attachments) -> Message:
    pandas = sys.modules["pandas"]
    names = list(frame.columns)
    if not all(isinstance(column, str) for column in names) or len(set(names)) < len(names):
        raise UnsupportedValueError(f"the columns of `{name}` need different names that are texts")
    columns = [
        {"name": column, **_describe_column(f"{name}[{column!r}]", frame.iloc[:, at], attachments)}
        for at, column in enumerate(names)
    ]
    described: Message = {"kind": "frame", "columns": columns}
    index = frame.index
    is_counted = isinstance(index, pandas.RangeIndex) and index.start == 0 and index.step == 1
    if not is_counted or index.name is not None or not names:
        if not isinstance(index.name, (str, type(None))):
            raise UnsupportedValueError(f"the name of the index of `{name}` must be a text")
        if isinstance(index, pandas.MultiIndex):
            raise UnsupportedValueError(f"`{name}` has several indexes; pass `.reset_index()`")
        described["index"] = _describe_column(f"{name}.index", index, attachments)
        described["index_name"] = index.name
    return described


def _describe_column(name: str, column: Any, attachments: Attachments) -> Message:
    numpy, pandas = sys.modules["numpy"], sys.modules["pandas"]
    dtype = column.dtype
    if isinstance(dtype, numpy.dtype) and dtype.kind != "O":
        return _describe_array(numpy, name, column.to_numpy(), attachments)
    if dtype == object or isinstance(dtype, pandas.StringDtype):
        texts = [_text(pandas, name, item) for item in column.tolist()]
        return {"strings": texts}
    raise UnsupportedValueError(
        f"the items of `{name}` are of type {dtype}; numbers, dates without a time zone and texts "
        "can be passed: convert them with `.astype(…)`"
    )


def _text(pandas: Any, name: str, item: object) -> str | None:
    if isinstance(item, str):
        return item
    if item is None or item is pandas.NA or (isinstance(item, float) and item != item):
        return None
    raise UnsupportedValueError(
        f"`{name}` has objects other than texts, such as a {type(item).__name__}: convert them "
        "with `.astype(…)`"
    )


def load(description: Message, attachments: Sequence[bytearray]) -> Any:
    """Returns the object for a description and the attachments of its message.

    Raises:
        UnsupportedValueError: It needs a library that can't be imported here.
    """
    kind = description.get("kind")
    if kind == "bytes":
        return bytes(attachments[description["attachment"]])
    if kind == "array":
        return _array(description, attachments).reshape(description["shape"])
    if kind == "frame":
        return _frame(description, attachments)
    raise UnsupportedValueError(f"the server sent data of the unknown kind `{kind}`")


def _array(description: Message, attachments: Sequence[bytearray]) -> Any:
    numpy = _library("numpy")
    dtype = numpy.dtype(description["dtype"])
    if dtype.kind not in _KINDS:
        raise UnsupportedValueError(f"the server sent an array of the type {dtype}")
    return numpy.frombuffer(attachments[description["attachment"]], dtype)


def _frame(description: Message, attachments: Sequence[bytearray]) -> Any:
    pandas = _library("pandas")

    def column(described: Message) -> Any:
        if "strings" in described:
            return described["strings"]
        return _array(described, attachments)

    index = None
    if description.get("index") is not None:
        index = pandas.Index(column(description["index"]), name=description.get("index_name"))
    columns = {described["name"]: column(described) for described in description["columns"]}
    return pandas.DataFrame(columns, index=index)


def _library(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise UnsupportedValueError(
            f"the program's value needs {name} here, which can't be imported: {error}"
        ) from None
