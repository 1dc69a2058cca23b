"""Frames as bytes, and what can't be sent."""

import contextlib
import os
import signal
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


def test_a_peeked_frame_stays_until_it_is_taken():
    reader_end, writer_end = os.pipe()
    reader = FrameReader(reader_end)
    try:
        os.write(writer_end, encode({"a": 1}))
        assert reader.peek() == reader.peek() == {"a": 1}
        assert reader.read() == [({"a": 1}, [])]
        os.write(writer_end, encode({"b": 2}))
        assert reader.peek() == {"b": 2}
        reader.take_peeked()
        # Several frames, parts of one, attachments and the end are for `read`.
        both = encode({"c": 3}) + encode({"d": 4}, [b"xyz"])
        for some in (both, both[:2], both[:7]):
            os.write(writer_end, some)
            assert reader.peek() is None and reader.peek() is None
            os.write(writer_end, both[len(some) :])
            frames = reader.read()
            while len(frames) < 2:
                frames += reader.read()
            assert frames == [({"c": 3}, []), ({"d": 4}, [b"xyz"])]
        os.close(writer_end)
        assert reader.peek() is None
        assert reader.read() == []
    finally:
        os.close(reader_end)


@pytest.mark.parametrize("when", ["in reading", "between", "after"])
def test_a_signal_loses_nothing_of_a_peeked_frame(when):
    """Its handler raises while the thread waits, or at any later moment."""

    class Pressed(Exception):
        pass

    is_armed = []

    def press(_signal, _frame):
        if is_armed:
            is_armed.clear()
            raise Pressed

    reader_end, writer_end = os.pipe()
    reader, earlier = FrameReader(reader_end), signal.signal(signal.SIGALRM, press)
    delay = {"in reading": 0.05, "between": 2e-5, "after": 5e-4}[when]
    try:
        for number in range(100 if when == "between" else 5):
            frame = encode({"n": number})
            if when != "in reading":
                os.write(writer_end, frame)
            is_armed.append(True)
            with contextlib.suppress(Pressed):
                signal.setitimer(signal.ITIMER_REAL, delay + number * 5e-7)
                # A collector's callback may swallow what the handler raises.
                while is_armed:
                    reader.peek()
            if when == "in reading":
                os.write(writer_end, frame)
            assert reader.read() == [({"n": number}, [])]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
        os.close(reader_end)
        os.close(writer_end)
