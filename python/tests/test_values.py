"""Arrays, frames and bytes, in and out."""

import sys

import pytest

from hatchery_sandbox import UnsupportedValueError

numpy = pytest.importorskip("numpy")
pandas = pytest.importorskip("pandas")


@pytest.mark.parametrize(
    "array",
    [
        numpy.arange(6.0).reshape(2, 3),
        numpy.array([1, 2], ">i4"),
        numpy.array([True, False]),
        numpy.array([1 + 2j]),
        numpy.array(["a", "bcd"]),
        numpy.array([b"x"]),
        numpy.array(["2026-01-01"], "M8[ns]"),
        numpy.zeros((0, 3), "f2"),
        numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
        numpy.arange(20)[::2],
        numpy.array(1.5),
    ],
)
def test_arrays_come_back_as_they_were(pool, array):
    outcome = pool.run("x", variables={"x": array})
    value = numpy.asarray(outcome.value)
    assert numpy.array_equal(value, array) and value.dtype == array.dtype.newbyteorder("<")
    assert value.shape == array.shape
    if value.ndim:
        value[...] = value  # it can be written


def test_frames_come_back_as_they_were(pool):
    frame = pandas.DataFrame(
        {"n": [1, 2], "x": [0.5, float("nan")], "s": ["ä", None], "t": pandas.to_datetime(["2026-01-01"] * 2)}
    )
    for given in (frame, frame.set_index("s"), frame[["n"]].iloc[::-1], frame.iloc[:0]):
        back = pool.run("f", variables={"f": given}).value
        pandas.testing.assert_frame_equal(back, given, check_dtype=False, check_index_type=False)
    mean = pool.run("f['n'].mean()", variables={"f": frame}).value
    assert mean == 1.5


def test_bytes_and_scalars_pass(pool):
    raw = bytes(range(256))
    assert pool.run("x", variables={"x": raw}).value == raw
    assert pool.run("bytes(x)", variables={"x": memoryview(raw)}).value == raw
    assert pool.run("type(x).__name__", variables={"x": numpy.float64(1.5)}).value == "float"
    assert pool.run("import numpy; numpy.int64(3)").value == 3
    assert numpy.isnan(pool.run("import numpy; numpy.float64('nan')").value)
    several = {"a": raw, "b": numpy.ones(3), "c": 1, "d": None}
    assert pool.run("[len(a), b.sum(), c, d]", variables=several).value == [256, 3.0, 1, None]


def test_what_cannot_pass_is_refused_with_what_to_do(pool):
    for value, text in [
        (numpy.array([object()]), "numbers, dates"),
        (pandas.Series([1]), "to_frame"),
        (pandas.DataFrame([[1]]), "columns"),
        (pandas.DataFrame({"a": [object()]}), "astype"),
        (pandas.DataFrame({"a": pandas.Categorical(["x"])}), "astype"),
    ]:
        with pytest.raises(UnsupportedValueError, match=text):
            pool.run("x", variables={"x": value})
    with pytest.raises(TypeError):
        pool.run("x", variables={"x": {"inner": numpy.ones(2)}})
    with pytest.raises(ValueError):
        pool.run("x", variables={"x": float("nan")})


def test_what_has_no_form_is_known_by_its_repr(pool):
    outcome = pool.run("{1, 2}")
    assert outcome.value is None and not outcome.has_value and outcome.repr == "{1, 2}"
    assert pool.run("None").has_value


def test_nothing_is_unpickled(pool, monkeypatch):
    import pickle

    def refuse(*_args, **_keywords):
        raise AssertionError("something is unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    program = "import pickle; pickle.dumps(print)"
    assert isinstance(pool.run(program).value, bytes)
    arrays = pool.run("import numpy; numpy.array([1, 'x'], dtype=object)")
    assert arrays.value is None
    assert "pickle" in sys.modules


def test_an_outcome_shows_itself_without_trusting_the_program(pool):
    program = """
class Evil:
    def _repr_html_(self): return "<script>alert('x')</script><b>bold</b>"
    def __repr__(self): return "<i>evil</i>"
print("<script>1</script>")
Evil()
"""
    outcome = pool.run(program)
    bundle = outcome._repr_mimebundle_()
    assert "Outcome completed" in bundle["text/plain"]
    html = bundle["text/html"]
    assert "<script" not in html and 'sandbox=""' in html and "&lt;b&gt;bold" in html
    failed = pool.run("1/0")._repr_html_()
    assert "ZeroDivisionError" in failed
    assert "<Outcome raised" in repr(pool.run("1/0"))
