"""Frames as bytes, and what can't be sent."""

import os
import threading

import pytest

from hatchery_sandbox import _frames
from hatchery_sandbox._frames import FrameError, FrameReader, encode


def read_all(data: bytes, piece: int) -> list[_frames.Frame]:
    reader_end, writer_end = os.pipe()

    def write() -> None:
        for at in range(0, len(data), piece):
            os.write(writer_end, data[at : at + piece])
        os.close(writer_end)

    threading.Thread(target=write).start()
    reader, frames = FrameReader(reader_end), []
    try:
        while some := reader.read():
            frames += some
        return frames
    finally:
        os.close(reader_end)


@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
def test_frames_come_back_as_they_were(piece):
    large = os.urandom(700_000 if piece > 3 else 7_000)
    data = b"".join((encode({"a": 1}), encode({"b": "ä"}, [b"xyz", b"", large]), encode({"c": []})))
    frames = read_all(data, piece)
    assert [message for message, _ in frames] == [{"a": 1}, {"b": "ä"}, {"c": []}]
    assert frames[1][1] == [b"xyz", b"", large]


@pytest.mark.parametrize(
    "data",
    [
        b"\x01",
        b"\x02\0\0\0{",
        b"\xff\xff\xff\xff",
        b"\x02\0\0\0[]",
        b"\x01\0\0\0{",
        b'\x15\0\0\0{"attachments": [10]}',
    ],
)
def test_what_is_no_frame_is_an_error(data):
    with pytest.raises(FrameError):
        read_all(data, 100)


def test_what_the_server_could_not_read_is_not_sent():
    deep = []
    for _ in range(200):
        deep = [deep]
    circular = []
    circular.append(circular)
    for value, error in [
        (deep, "nested"),
        (circular, "ircular|nested"),
        (float("nan"), "JSON"),
        ("\ud800", "Unicode"),
    ]:
        with pytest.raises(ValueError, match=error):
            encode({"value": value})
    with pytest.raises(TypeError):
        encode({"value": object()})
    encode({"value": [[]] * 1000})
