"""What passes through the door to the host; `engine/src/guest/agent/wire.rs` is the other side.

A request comes in the format of `marshal`. The request for a run is a tuple: the source, the
moment, the most bytes of a result and of its data; a list of the file's name, arguments,
environment and optional fields, or `None` if all are empty; the program's code, or `None` if it
wasn't compiled ahead; and the number of standard input's state, or 0. A reply is a header in JSON and buffers of raw bytes.
"""

import json
import marshal

# The first byte of each frame; `engine/src/guest/agent/wire.rs` has the same table.
FETCH = b"\x01"
REPLY = b"\x02"
HELLO = b"\x03"
PROGRAM_BEGINS = b"\x04"
PROGRAM_OVER = b"\x05"
SEEDED = b"\x06"
IMMORTAL = b"\x07"
CALL = b"\x10"
WAIT = b"\x11"
CANCEL = b"\x12"
FUNCTIONS = b"\x13"
WAKE = b"\x14"
ALARM = b"\x15"
DUPLICATE = b"\x16"
NET = b"\x17"
DISPLAY = b"\x08"

# The sources that the host sends instead of a program's: to run a program, to compile one for later
# runs, and to prepare an image.
TURN_WORD = b"turn"
COMPILE_WORD = b"compile"
PREPARE_WORD = b"prepare"

# What the text of a program can begin with, as that of any file.
BYTE_ORDER_MARK = "\ufeff"

# The flags of a run's moment; `engine/src/guest/agent.rs` has the same values.
LAST = 1
RESEED = 2
REHEARSE = 4
# Sent with them: the host takes integers of any size (`engine/src/run/value/number.rs`).
TAKES_ALL_INTEGERS = 8
# The program's standard input isn't empty.
HAS_STDIN = 16


def _refuse(value):
    raise TypeError(f"{type(value).__name__} is not a JSON type")


# What `json.JSONEncoder(ensure_ascii=False, allow_nan=False)` creates for each text.
_markers = {}
_encoder = json.encoder.c_make_encoder(
    _markers, _refuse, json.encoder.encode_basestring, None, ": ", ", ", False, False, False
)


def encode_json(value):
    """Returns the value as JSON, without escaping non-ASCII characters."""
    _markers.clear()
    return "".join(_encoder(value, 0))


# Held here, since programs can replace them in their modules.
encode_request = marshal.dumps
decode_request = marshal.loads


def reply_frame(reply, encode, buffers=(), kind=REPLY):
    """Returns the frame of a reply: the length of its header, the header, and any buffers."""
    if buffers:
        reply = {**reply, "buffers": [memoryview(buffer).nbytes for buffer in buffers]}
    header = encode(reply).encode("utf-8", "backslashreplace")
    # Not `len`, which a program may have replaced.
    length = header.__len__().to_bytes(4, "little")
    return b"".join((kind, length, header, *buffers))


def put_forms(forms, buffers):
    """Appends the data of forms to the buffers, and returns the header's list of the forms."""
    listed = []
    for mime, data in forms:
        listed.append([mime, "bytes" if type(data) is bytes else "text", buffers.__len__()])
        buffers.append(data if type(data) is bytes else data.encode())
    return listed


def display_frame(forms, encode):
    """Returns the frame of a display, which is built like a reply."""
    buffers = []
    return reply_frame({"bundle": put_forms(forms, buffers)}, encode, buffers, DISPLAY)


# The replies of most programs: of those that end in no expression, or in `None`.
NO_VALUE, VALUE_IS_NONE = (
    reply_frame({"kind": "completed", "has_value": has_value, "value": None, "repr": None}, encode_json)
    for has_value in (False, True)
)
# The reply when too little memory is left to take a request or to build another reply.
NO_ROOM = reply_frame(
    {
        "kind": "raised",
        "type": "MemoryError",
        "message": "out of memory: too little is left to describe the error",
        "traceback": "MemoryError: out of memory: too little is left to describe the error\n",
    },
    encode_json,
)
