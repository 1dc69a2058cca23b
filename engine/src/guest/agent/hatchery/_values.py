"""Values that pass between the host and a program, with arrays and frames as raw bytes.

`engine/src/run/value.rs` is the other side. numpy and pandas are loaded only for values that need
them, and `_tagged.py` only for what is neither JSON nor an array, a plain frame or bytes.
"""

import json
import sys

# The units of dates and durations that are supported; others have no data.
UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
# The sizes of an item in bytes for each kind of numbers.
SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16), "M": (8,), "m": (8,)}
# What a string in a column costs besides its bytes: the host holds that much for it.
TEXT_BYTES = 24
# The most dimensions of an array; NumPy allows more since version 2 (`MOST_DIMENSIONS` in
# `value.rs`).
MOST_DIMENSIONS = 32
# The longest description of data, in bytes: several thousand columns.
MOST_DESCRIPTION_BYTES = 256 << 10


def to_object(value):
    """Returns the program's object for a value of the host."""
    kind, *parts = value
    if kind == "plain":
        return parts[0]
    if kind == "array":
        return to_array(*parts)
    if kind == "tagged":
        return to_tagged(*parts)
    return to_frame(*parts)


def to_tagged(tree, attachments):
    from hatchery._tagged import Decoder

    return Decoder(attachments).value(json.loads(tree))


def to_array(dtype, shape, data):
    """Returns an array with memory of its own."""
    numpy = library("numpy")
    return numpy.ndarray(shape, dtype, data).copy()


def to_frame(index_name, index, columns):
    pandas = library("pandas")
    if index is not None:
        index = pandas.Index(to_column(*index), name=index_name)
    return pandas.DataFrame({name: to_column(*column) for name, column in columns}, index=index)


def to_column(kind, *parts):
    return to_array(*parts) if kind == "array" else to_texts(*parts)


def to_texts(lengths, texts):
    """Returns strings from their lengths, 4 bytes each, and their bytes; -1 stands for `None`."""
    column, begin = [], 0
    for length in memoryview(lengths).cast("i"):
        column.append(None if length < 0 else texts[begin : begin + length].decode())
        begin += max(length, 0)
    return column


def library(name):
    try:
        return __import__(name)
    except ImportError as error:
        raise ImportError(f"an input of the job needs {name}, which can't be imported: {error}") from None


class Raw:
    """Collects raw bytes while there is room for them, and counts all of them."""

    def __init__(self, room):
        self.room = room
        self.size = 0
        self.buffers = []

    def add(self, size, make):
        self.size += size
        if self.size <= self.room:
            self.buffers.append(make())


def data_fields(value, plain, room, encode):
    """Returns the reply's fields for a value of which JSON loses something, and its raw bytes.
    `plain` is what JSON holds of it, if anything. Without a form, `missing` says why."""
    raw = Raw(room)
    try:
        description = describe(value, raw)
        if description is None:
            return tagged_fields(value, plain, room, encode)
        if raw.size <= room and len(encode(description).encode()) <= MOST_DESCRIPTION_BYTES:
            return {"data": description}, raw.buffers
    except KeyboardInterrupt:
        raise
    except MemoryError:
        pass  # too large for the guest
    except BaseException as error:
        return {"missing": f"it can't be described: {type(error).__name__}"}, ()
    # Reported as an exceeded limit, even if the description or the guest is full.
    return {"data_left_out": max(raw.size, room + 1)}, ()


def tagged_fields(value, plain, room, encode):
    """Returns the same for a value in the tagged form."""
    from hatchery._tagged import Encoder, Unsupported

    raw, count = Raw(room), 0

    def attach(size, make):
        nonlocal count
        raw.add(size, make)
        count += 1
        return count - 1

    try:
        tree = Encoder(attach).tree(value)
    except Unsupported as error:
        return {"missing": str(error)}, ()
    if plain is not None and tree == plain:
        return {}, ()
    text = encode(tree).encode()
    size = raw.size + len(text)
    if size > room:
        return {"data_left_out": size}, ()
    return {"data": {"kind": "tagged"}}, (text, *raw.buffers)


def missing(value, fields):
    """Returns why a reply with these fields has no JSON of the value."""
    if "result_left_out" in fields:
        return f"its JSON has {fields['result_left_out']} bytes, more than the limit `result` allows"
    if "data_left_out" in fields:
        return f"it has {fields['data_left_out']} bytes, more than the limit `result_data` allows"
    if type(value) in (list, tuple, dict):
        return f"it is a {type(value).__name__} with items that JSON can't hold"
    return f"it is of the type {type(value).__name__}, which JSON can't hold"


def describe(value, raw):
    """Describes the raw bytes to the host; returns `None` if the value has no such form."""
    kind = type(value)
    if kind is bytes or kind is bytearray:
        raw.add(len(value), lambda: bytes(value))
        return {"kind": "bytes"}
    if kind is memoryview:
        raw.add(value.nbytes, value.tobytes)
        return {"kind": "bytes"}
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if kind is numpy.ndarray:
        return describe_array(numpy, value, raw)
    if issubclass(kind, numpy.generic):
        return describe_array(numpy, numpy.asarray(value), raw)
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return None
    if kind is pandas.DataFrame and is_plain_frame(pandas, value):
        columns = [(name, value.iloc[:, at]) for at, name in enumerate(value.columns)]
        return describe_frame(numpy, pandas, value.index, columns, raw)
    return None


def describe_array(numpy, array, raw):
    dtype = array.dtype
    if not is_told(numpy, dtype) or array.ndim > MOST_DIMENSIONS:
        return None
    shape = [int(length) for length in array.shape]
    if dtype.str[0] == ">":
        dtype = dtype.newbyteorder("<")
    raw.add(array.nbytes, lambda: array.astype(dtype, copy=False).tobytes())
    return {"kind": "array", "dtype": dtype.str, "shape": shape}


def is_told(numpy, dtype):
    """Whether the host supports items of this type."""
    if dtype.kind in "US":
        return dtype.itemsize > 0
    if dtype.itemsize not in SIZES.get(dtype.kind, ()):
        return False
    if dtype.kind not in "Mm":
        return True
    unit, count = numpy.datetime_data(dtype)
    return count == 1 and unit in UNITS


def is_plain_frame(pandas, frame):
    """Whether nothing is lost of it but the types of texts, which pandas then finds again."""
    texts = object if int(pandas.__version__.partition(".")[0]) < 3 else "str"
    index = frame.index
    parts = [frame.iloc[:, at] for at in range(len(frame.columns))]
    return (
        not frame.attrs
        and (frame.columns.dtype == texts or not parts)
        and frame.columns.name is None
        and getattr(index, "freq", None) is None
        and all(part.dtype.kind != "O" or part.dtype == texts for part in (index, *parts))
    )


def describe_frame(numpy, pandas, index, columns, raw):
    names = [name for name, _ in columns]
    if not all(is_text(name) for name in names) or len(set(names)) < len(names):
        return None
    told = {"kind": "frame", "rows": len(index), "index_name": None, "index": None, "columns": []}
    is_plain = type(index) is pandas.RangeIndex and index.start == 0 and index.step == 1
    # Without columns, only the index says how many rows there are.
    has_columns = bool(columns) or len(index) == 0
    if not is_plain or index.name is not None or not has_columns:
        if index.name is not None and not is_text(index.name):
            return None
        told["index_name"] = index.name
        told["index"] = describe_column(numpy, pandas, index, raw)
        if told["index"] is None:
            return None
    for name, column in columns:
        column = describe_column(numpy, pandas, column, raw)
        if column is None:
            return None
        told["columns"].append([name, column])
    return told


def describe_column(numpy, pandas, column, raw):
    dtype = column.dtype
    if issubclass(type(dtype), numpy.dtype) and dtype.kind != "O":
        array = describe_array(numpy, column.to_numpy(), raw)
        return array and {"kind": "array", "dtype": array["dtype"]}
    if dtype != object and type(dtype) is not pandas.StringDtype:
        return None
    texts = []
    for item in column.tolist():
        if type(item) is str:
            texts.append(item.encode())
        elif item is None or item is pandas.NA or type(item) is float and item != item:
            texts.append(None)
        else:
            return None
    lengths = [-1 if text is None else len(text) for text in texts]
    raw.add(TEXT_BYTES * len(texts), lambda: b"".join(n.to_bytes(4, "little", signed=True) for n in lengths))
    raw.add(sum(length for length in lengths if length > 0), lambda: b"".join(filter(None, texts)))
    return {"kind": "strings"}


def is_text(name):
    """Whether it is a string that UTF-8 can hold."""
    return type(name) is str and name.isascii() or type(name) is str and bool(name.encode())
