//! Containers, classes and how they print; structures that contain themselves.

use serde_json::json;

use super::dsl::{Row, completes, ends, fails, gives_none, raises, shows};
use super::error::error;
use crate::needs::Need;

pub(super) fn rows() -> Vec<Row> {
    vec![
        completes(
            "[1, 'a', None, True, 1.5, {'k': [2]}]",
            json!([1, "a", null, true, 1.5, {"k": [2]}]),
            "[1, 'a', None, True, 1.5, {'k': [2]}]",
        ),
        completes("(1, (2, ()))", json!([1, [2, []]]), "(1, (2, ()))"),
        completes("{'b': 1, 'a': {}}", json!({"b": 1, "a": {}}), "{'b': 1, 'a': {}}"),
        gives_none("None"),
        gives_none("x = [1]\nx.append(2)"),
        ends(""),
        ends("# nothing\n\n"),
        ends("def f():\n    return 1"),
        gives_none("print()").stdout("\n"),
        shows("{1: 'a', (2, 3): 'b'}", "{1: 'a', (2, 3): 'b'}"),
        shows("{1: 'a', '1': 'b'}", "{1: 'a', '1': 'b'}"),
        completes(
            "{1: 'a', None: {True: 'b', 2.5: 'c'}}",
            json!({"1": "a", "null": {"true": "b", "2.5": "c"}}),
            "{1: 'a', None: {True: 'b', 2.5: 'c'}}",
        ),
        shows(
            "{3}, frozenset(), range(3), slice(1, None)",
            "({3}, frozenset(), range(0, 3), slice(1, None, None))",
        ),
        shows("...", "Ellipsis"),
        shows("int", "<class 'int'>"),
        shows("print", "<built-in function print>"),
        shows("lambda: 1", "<function <lambda> at 0x‹*›>"),
        shows(
            "
            class A:
                pass
            A()
            ",
            "<__main__.A object at 0x‹*›>",
        ),
        shows(
            "
            class A:
                class B:
                    pass
            A.B
            ",
            "<class '__main__.A.B'>",
        ),
        shows("[object()]", "[<object object at 0x‹*›>]"),
        shows(
            "
            class A:
                def __repr__(self):
                    return 'ä\\udc80'
            A()
            ",
            "ä\\udc80",
        ),
        shows(
            "
            class A:
                def __repr__(self):
                    return 1
            A()
            ",
            "<unprintable A: TypeError>",
        ),
        shows(
            "
            class A:
                def __repr__(self):
                    return repr(self)
            A()
            ",
            "<unprintable A: RecursionError>",
        ).needs(Need::Since(13)),
        shows(
            "
            x = []
            x.append(x)
            x
            ",
            "[[...]]",
        ).needs(Need::Since(13)),
        shows(
            "
            d = {}
            d['d'] = (d,)
            d
            ",
            "{'d': ({...},)}",
        ).needs(Need::Since(13)),
        shows(
            "
            from collections import deque
            q = deque([1], maxlen=2)
            q.append(q)
            q
            ",
            "deque([1, [...]], maxlen=2)",
        ),
        shows(
            "
            x = 0
            for _ in range(101):
                x = [x]

            x
            ",
            "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[0]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
        ).needs(Need::Since(13)),
        completes(
            "from collections import Counter\nCounter('abca')",
            json!({"a": 2, "b": 1, "c": 1}),
            "Counter({'a': 2, 'b': 1, 'c': 1})",
        ),
        completes(
            "
            from collections import OrderedDict, defaultdict
            OrderedDict(a=1), defaultdict(int, b=2)
            ",
            json!([{"a": 1}, {"b": 2}]),
            "(OrderedDict({'a': 1}), defaultdict(<class 'int'>, {'b': 2}))",
        ),
        completes(
            "from collections import namedtuple\nnamedtuple('P', 'x y')(1, y=2)",
            json!([1, 2]),
            "P(x=1, y=2)",
        ),
        shows(
            "
            import enum
            class Color(enum.Enum):
                RED = 1

            list(Color)
            ",
            "[<Color.RED: 1>]",
        ),
        completes(
            "
            import enum
            class Level(enum.IntEnum):
                LOW = 1

            Level.LOW
            ",
            1,
            "<Level.LOW: 1>",
        ),
        completes(
            "
            class Text(str):
                pass

            Text('x')
            ",
            "x",
            "'x'",
        ),
        shows("from types import SimpleNamespace\nSimpleNamespace(a=1)", "namespace(a=1)"),
        shows(
            "
            class A:
                def __getattr__(self, name):
                    raise ZeroDivisionError
                def __repr__(self):
                    return 'A'

            A()
            ",
            "A",
        ),
        shows(
            "
            from dataclasses import asdict, dataclass, field
            @dataclass(order=True)
            class P:
                x: int
                y: list = field(default_factory=list)

            P(1), P(2, [P(3)])
            ",
            "(P(x=1, y=[]), P(x=2, y=[P(x=3, y=[])]))",
        ),
        completes(
            "
            from dataclasses import asdict, dataclass, field
            @dataclass(order=True)
            class P:
                x: int
                y: list = field(default_factory=list)

            asdict(P(1, [P(2)])), P(1) < P(2), P(1) == P(1)
            ",
            json!([{"x": 1, "y": [{"x": 2, "y": []}]}, true, true]),
            "({'x': 1, 'y': [{'x': 2, 'y': []}]}, True, True)",
        ),
        raises(
            "
            from dataclasses import asdict, dataclass, field
            @dataclass(order=True)
            class P:
                x: int
                y: list = field(default_factory=list)

            P()
            ",
            "TypeError",
            "P.__init__() missing 1 required positional argument: 'x'",
        ),
        fails(
            "
            from dataclasses import dataclass
            @dataclass(frozen=True)
            class P:
                x: int

            P(1).x = 2
            ",
            error("dataclasses.FrozenInstanceError", "cannot assign to field 'x'").anywhere(),
        ),
    ]
}
