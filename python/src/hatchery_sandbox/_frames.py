"""Frames as bytes: a header in JSON, and what is attached to it.

A frame is the length of its header as a little-endian 32-bit number, the header, which is one JSON
object, and the attachments, one after the other, whose lengths are the header's `attachments`.
Nothing here knows what messages mean.
"""

from __future__ import annotations

import json
import os
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]
"""A header: one JSON object."""

Frame = tuple[Message, list[bytearray]]
"""A message and its attachments."""

MOST_HEADER_BYTES = 64 << 20
MOST_ATTACHED_BYTES = 1 << 30
MOST_DEPTH = 100
"""Arrays and objects within each other that a message may have; the server's parser ends at 128."""

_CHUNK_BYTES = 64 << 10
_PEEK_BYTES = 16 << 10
_length_at = struct.Struct("<I").unpack_from
_ATTACHMENTS = "attachments"

_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_from_json = json.JSONDecoder().decode


class FrameError(Exception):
    """The input isn't a frame, so the start of the next one is unknown."""


def to_json(value: object) -> bytes:
    """Returns a value as JSON that the server can read.

    Raises:
        TypeError: JSON can't hold it.
        ValueError: It has NaN or an infinity, a text that isn't Unicode, or is nested too deeply.
    """
    try:
        text = _to_json(value)
    except RecursionError:
        raise ValueError("the value is nested too deeply, or contains itself") from None
    if text.count("[") + text.count("{") > MOST_DEPTH and _depth(value) > MOST_DEPTH:
        raise ValueError(f"the value is nested more than {MOST_DEPTH} levels deep")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a text isn't Unicode: {error}") from None


def printable(text: object) -> str:
    """Returns a text that can be sent: surrogates become escapes."""
    return str(text).encode(errors="backslashreplace").decode()


def _depth(value: object) -> int:
    deepest, level = 0, [value]
    while level:
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, (list, tuple)):
                inner.extend(item)
        level = inner
        deepest += 1
    return deepest


def encode(message: Message, attachments: Sequence[bytes] = ()) -> bytes:
    """Returns a frame as bytes.

    Raises:
        TypeError, ValueError: As `to_json`; also if the frame is too long.
    """
    if attachments:
        lengths = [len(attachment) for attachment in attachments]
        if sum(lengths) > MOST_ATTACHED_BYTES:
            raise ValueError(
                f"the data and files of a job have {sum(lengths)} bytes; "
                f"at most {MOST_ATTACHED_BYTES} can be sent"
            )
        message = {**message, _ATTACHMENTS: lengths}
    header = to_json(message)
    if len(header) > MOST_HEADER_BYTES:
        raise ValueError(
            f"a job has {len(header)} bytes of code and variables; at most {MOST_HEADER_BYTES} "
            "can be sent: pass large data as bytes, arrays or files"
        )
    return b"".join((len(header).to_bytes(4, "little"), header, *attachments))


class FrameReader:
    """Reads frames from a file descriptor, as many at once as have arrived."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._peeked: deque[bytes] = deque()
        # Read into the same memory again and again: taking new memory costs as much as reading.
        self._chunk = memoryview(bytearray(_CHUNK_BYTES))

    def read(self) -> list[Frame]:
        """Waits for frames and returns all that have arrived; an empty list at the end.

        Raises:
            FrameError: The stream ends within a frame, or isn't one of frames.
            OSError: The stream fails.
        """
        while True:
            if self._peeked:
                self._buffer += self._peeked.popleft()
            else:
                count = os.readv(self._descriptor, (self._chunk,))
                if not count:
                    if self._buffer:
                        raise FrameError("the stream ends within a frame")
                    return []
                self._buffer += self._chunk[:count]
            if frames := self._parse():
                return frames

    def peek(self) -> Message | None:
        """Waits for something to arrive, and returns it if it is one message without attachments.
        Otherwise, `read` has it next. Nothing is lost if the handler of a signal raises meanwhile.

        Raises:
            FrameError, OSError: As `read`.
        """
        if not self._buffer and not self._peeked:
            # A single call, so that no handler comes between reading and keeping.
            self._peeked.extend(map(os.read, (self._descriptor,), (_PEEK_BYTES,)))
        if self._buffer or len(self._peeked) != 1:
            return None
        piece = self._peeked[0]
        if len(piece) < 4 or _length_at(piece)[0] != len(piece) - 4:
            return None
        message = _message(piece[4:])
        return None if message.get(_ATTACHMENTS) else message

    def take_peeked(self) -> None:
        """Takes the message that `peek` has returned."""
        self._peeked.clear()

    def _parse(self) -> list[Frame]:
        buffer, frames, position = self._buffer, list[Frame](), 0
        end = len(buffer)
        while end - position >= 4:
            header_end = position + 4 + _length_at(buffer, position)[0]
            if header_end - position - 4 > MOST_HEADER_BYTES:
                raise FrameError("the header of a frame is too long")
            if end < header_end:
                break
            message = _message(buffer[position + 4 : header_end])
            lengths = message.pop(_ATTACHMENTS, ())
            if not lengths:
                position = header_end
                frames.append((message, []))
                continue
            if header_end + sum(lengths) > end and frames:
                break  # the others needn't wait for its attachments
            position = header_end
            attachments = []
            for length in lengths:
                attachments.append(self._take(position, length))
                position = min(position + length, end)
            frames.append((message, attachments))
        del buffer[:position]
        return frames

    def _take(self, position: int, length: int) -> bytearray:
        """Returns the bytes from a position on; waits for those that haven't arrived."""
        taken = self._buffer[position : position + length]
        if len(taken) == length:
            return taken
        filled = len(taken)
        taken.extend(bytes(length - filled))
        with memoryview(taken) as view:
            while filled < length:
                count = os.readv(self._descriptor, [view[filled:]])
                if count == 0:
                    raise FrameError("the stream ends within a frame")
                filled += count
        return taken


def _message(header: bytes | bytearray) -> Message:
    try:
        message = _from_json(header.decode())
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the header of a frame isn't JSON: {error}") from None
    if not isinstance(message, dict):
        raise FrameError("the header of a frame isn't a JSON object")
    return message
