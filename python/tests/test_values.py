"""What passes between programs and this process, in and out."""

import datetime
import decimal
import html
import json
import pathlib
import sys
import uuid

import pytest

from hatchery_sandbox import ProgramRaisedError, UnsupportedValueError
from hatchery_sandbox._values import load

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
        pandas.testing.assert_frame_equal(back, given)
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
    circular = []
    circular.append(circular)
    for value, text in [
        (numpy.array([1, object()]), r"`x` .*`\[1\]` is of the type object"),
        (numpy.ma.array([1]), "filled"),
        (numpy.zeros(1, "i4,f8"), "astype"),
        (pandas.DataFrame({"a": [object()]}), r"`\['a'\]\[0\]`"),
        (pandas.DataFrame({"a": pandas.arrays.SparseArray([1])}), "astype"),
        ({"inner": [{1, object()}]}, r"`\['inner'\]\[0\]\[\d\]`"),
        (circular, "nested"),
        (pool, "Pool"),
    ]:
        with pytest.raises(UnsupportedValueError, match=text):
            pool.run("x", variables={"x": value})


@pytest.mark.parametrize(
    "value",
    [
        (1, (2, [3])),
        {1, 2},
        frozenset("ab"),
        {1: 2, "1": 3, None: 4, (1, 2): 5},
        {"$set": [1], "a": (1,)},
        [float("inf"), -float("inf"), 1.5],
        2**100,
        [10**5000],
        1 + 2j,
        decimal.Decimal("1.10"),
        datetime.date(2026, 1, 2),
        datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
        datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
        datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
        datetime.time(1, 2, 3),
        datetime.timedelta(days=-1, microseconds=5),
        uuid.UUID(int=7),
        pathlib.Path("a/b"),
        range(1, 9, 2),
        [b"\xff", bytearray(b"a"), {"b": b""}],
        {"deep": [{"er": (None, True)}]},
    ],
)
def test_values_of_python_come_back_as_they_were(pool, value):
    outcome = pool.run("x", variables={"x": value})
    assert outcome.value_missing is None, outcome.value_missing
    assert outcome.get_value() == value and type(outcome.value) is type(value)
    in_program = f"type(x).__name__ == {type(value).__name__!r}"
    if isinstance(value, pathlib.Path):
        in_program = "isinstance(x, __import__('pathlib').Path)"
    assert pool.run(in_program, variables={"x": value}).value is True


def test_nan_comes_back(pool):
    value = pool.run("[float('nan'), {'a': (x,)}]", variables={"x": float("nan")}).get_value()
    assert value[0] != value[0] and value[1]["a"][0] != value[1]["a"][0]


FRAMES = {
    "pivot": "pandas.DataFrame({'a': [1, 1, 2], 'b': [1, 2, 3], 'v': [1., 2, 3]})"
    ".pivot_table(index='a', columns='b', values='v')",
    "crosstab": "pandas.crosstab(pandas.Series([1, 2]), pandas.Series(['x', 'y']))",
    "agg": "pandas.DataFrame({'a': [1, 1], 'b': [1, 2]}).groupby('a').agg(['mean', 'max'])",
    "transposed": "pandas.DataFrame({'a': [1, 2]}).T",
    "numbers as names": "pandas.DataFrame([[1, 2]])",
    "same names": "pandas.DataFrame([[1, 2]], columns=['a', 'a'])",
    "nullable": "pandas.DataFrame({'i': pandas.array([1, None], 'Int64'), 'f': pandas.array([.5, None], "
    "'Float32'), 'b': pandas.array([True, None], 'boolean'), 's': pandas.array(['a', None], 'string')})",
    "category": "pandas.DataFrame({'c': pandas.Categorical(['x', 'y', None], ['y', 'x'], ordered=True)})",
    "cut": "pandas.DataFrame({'c': pandas.cut([1, 5, 9], 3)})",
    "utc": "pandas.DataFrame({'t': pandas.date_range('2026', periods=2, tz='UTC')})",
    "offset": "pandas.DataFrame({'t': pandas.to_datetime(['2026-01-01T00:00:00+02:00'])})",
    "period": "pandas.DataFrame({'p': pandas.period_range('2026', periods=2, freq='M')})",
    "days": "pandas.DataFrame({'a': [1, 2]}, index=pandas.date_range('2026', periods=2, freq='D'))",
    "objects": "pandas.DataFrame({'o': [1, 'x', None, (1, 2)]})",
    "no texts": "pandas.DataFrame({'o': pandas.Series([], dtype=object)})",
    "several": "pandas.DataFrame({'a': [1, 2], 'b': ['x', 'y'], 'c': [3, 4]}).set_index(['a', 'b'])",
    "describe": "pandas.DataFrame({'a': [1, 2]}).describe()",
}


@pytest.mark.parametrize("made", FRAMES.values(), ids=FRAMES)
def test_all_frames_pass_both_ways(pool, made):
    frame = eval(made)
    pandas.testing.assert_frame_equal(pool.run(f"import pandas\n{made}").get_value(), frame)
    back = pool.run("[f, {'f': f}]", variables={"f": frame}).get_value()
    pandas.testing.assert_frame_equal(back[0], frame)
    pandas.testing.assert_frame_equal(back[1]["f"], frame)


def test_series_indexes_and_scalars_of_pandas_pass(pool):
    frame = pandas.DataFrame({"a": [1, 1], "b": ["x", "y"]})
    for series in (frame["a"], frame.value_counts(), frame.groupby(["a", "b"]).size(), frame["b"].rename(3)):
        back = pool.run("s", variables={"s": series}).get_value()
        pandas.testing.assert_series_equal(back, series)
    for index in (frame.columns, pandas.MultiIndex.from_frame(frame), pandas.RangeIndex(2, 8, 3)):
        back = pool.run("i", variables={"i": index}).get_value()
        pandas.testing.assert_index_equal(back, index, exact=True)
    scalars = [pandas.Timestamp("2026", tz="UTC"), pandas.Timedelta("1ns"), pandas.Period("2026-01", "M")]
    assert pool.run("x", variables={"x": scalars}).get_value() == scalars
    back = pool.run("import pandas; [pandas.NaT, pandas.NA]").get_value()
    assert back[0] is pandas.NaT and back[1] is pandas.NA


def test_arrays_pass_within_others(pool):
    array = numpy.arange(3.0)
    program = "[x['a'][0].sum(), (x['a'][0] * 2, {'b': x['o']}), x['n']]"
    given = {"a": (array,), "o": numpy.array([1, "x"], dtype=object), "n": [numpy.int64(3)]}
    total, (double, others), number = pool.run(program, variables={"x": given}).get_value()
    assert total == 3.0 and numpy.array_equal(double, array * 2) and number == [3]
    assert others["b"].dtype == object and others["b"].tolist() == [1, "x"]


def test_why_a_value_is_missing_is_said(pool):
    for program, reason in [
        ("class Point: pass\nPoint()", "type Point"),
        ("[1, {'a': object()}]", r"`\[1\]\['a'\]`"),
        ("'x' * (2 << 20)", "limit"),
        ("bytes(70 << 20)", "limit"),
        ("x = []; x.append(x); x", "nested"),
        ("import numpy; numpy.ma.array([1])", "masked"),
    ]:
        outcome = pool.run(program)
        assert outcome.value is None and not outcome.has_value and outcome.success
        with pytest.raises(UnsupportedValueError, match=reason):
            outcome.get_value()
        assert html.escape(outcome.value_missing) in outcome._repr_html_()
    with pytest.raises(ProgramRaisedError):
        pool.run("1/0").get_value()
    assert pool.run("None").get_value() is None and pool.run("None").value_missing is None
    # Readers of JSON alone learn what it holds in part.
    assert "set" in pool.run("{1}").to_dict()["value_missing"]


def test_what_a_program_forges_is_an_error_here(pool):
    """A program that has replaced parts of the agent can send any tree."""
    for tree in [
        {"$set": [[1]]},
        {"$array": {"dtype": "|O8", "shape": [1], "data": 0}},
        {"$array": {"dtype": "<f8", "shape": [9], "data": 0}},
        {"$array": {"dtype": "O", "shape": [1], "data": 0}},
        {"$nothing": 1},
        {"$frame": 5},
        {"$zone": "../../etc/passwd"},
        {"$bytes": 7},
        {"$int": "x"},
        {"$index": {"dtype": "category", "codes": {"dtype": "<i8", "data": 0}, "categories": {}}},
    ]:
        text = bytearray(json.dumps(tree).encode())
        with pytest.raises(UnsupportedValueError):
            load({"kind": "tagged", "tree": 0, "attachments": [1]}, [text, bytearray(8)])
    deep = bytearray(b"[" * 100_000)
    with pytest.raises(UnsupportedValueError):
        load({"kind": "tagged", "tree": 0}, [deep])


def test_both_sides_have_the_same_form():
    here = pathlib.Path(__file__).parents[2]
    other = here / "engine/src/guest/agent/hatchery/_tagged.py"
    if not other.exists():
        pytest.skip("this isn't the repository")
    assert other.read_bytes() == (here / "python/src/hatchery_sandbox/_tagged.py").read_bytes()


def test_nothing_is_unpickled(pool, monkeypatch):
    import pickle

    def refuse(*_args, **_keywords):
        raise AssertionError("something is unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    program = "import pickle; pickle.dumps(print)"
    assert isinstance(pool.run(program).value, bytes)
    arrays = pool.run("import numpy; numpy.array([1, 'x'], dtype=object)")
    assert arrays.value.tolist() == [1, "x"]
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
    assert repr(pool.run("1/0")) == "<Outcome raised ZeroDivisionError('division by zero')>"
    assert repr(pool.run("raise KeyError")) == "<Outcome raised KeyError()>"
