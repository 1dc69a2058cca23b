//! Generators, coroutines, contexts and recursion.

use serde_json::json;

use super::dsl::{Row, completes, fails, gives_none, raises, shows};
use super::error::error;
use crate::needs::Need;

pub(super) fn rows() -> Vec<Row> {
    vec![
        completes(
            "[x * y for x in range(3) for y in 'ab' if x]",
            json!(["a", "b", "aa", "bb"]),
            "['a', 'b', 'aa', 'bb']",
        ),
        completes(
            "
            def fib():
                a, b = 0, 1
                while True:
                    yield a
                    a, b = b, a + b

            import itertools
            list(itertools.islice(fib(), 8))
            ",
            json!([0, 1, 1, 2, 3, 5, 8, 13]),
            "[0, 1, 1, 2, 3, 5, 8, 13]",
        ),
        shows("(x for x in ())", "<generator object <genexpr> at 0x‹*›>"),
        completes(
            "
            def inner():
                got = yield 1
                return got * 2
            def outer():
                result = yield from inner()
                yield result

            g = outer()
            [next(g), g.send(21), next(g, 'over')]
            ",
            json!([1, 42, "over"]),
            "[1, 42, 'over']",
        ),
        completes(
            "
            def g():
                try:
                    yield 1
                finally:
                    print('closed')

            next(g())
            ",
            1,
            "1",
        )
        .stdout("closed\n"),
        fails(
            "
            def g():
                yield next(iter(()))

            list(g())
            ",
            error("RuntimeError", "generator raised StopIteration")
                .cause(error("StopIteration", "").at(&[("g", 2)])),
        ),
        raises(
            "
            def g():
                try:
                    yield
                except GeneratorExit:
                    yield

            g = g()
            next(g)
            g.close()
            ",
            "RuntimeError",
            "generator ignored GeneratorExit",
        ),
        fails(
            "g = (1 / x for x in [0])\nnext(g)",
            error("ZeroDivisionError", "division by zero").at(&[("<module>", 2), ("<genexpr>", 1)]),
        ),
        fails(
            "
            def g():
                yield g.send(1)

            g = g()
            next(g)
            ",
            error("ValueError", "generator already executing").at(&[("<module>", 5), ("g", 2)]),
        ),
        raises("a, b = [1]", "ValueError", "not enough values to unpack (expected 2, got 1)"),
        completes(
            "
            match {'kind': 'point', 'at': [1, 2]}:
                case {'kind': 'point', 'at': [x, y]}:
                    found = x + y
                case _:
                    found = None

            found
            ",
            3,
            "3",
        ),
        completes(
            "
            import asyncio
            async def double(x):
                await asyncio.sleep(0)
                return x * 2
            async def main():
                return await asyncio.gather(*(double(x) for x in range(3)))

            asyncio.run(main())
            ",
            json!([0, 2, 4]),
            "[0, 2, 4]",
        ),
        completes("import asyncio\nawait asyncio.sleep(0, 'top')", "top", "'top'"),
        completes(
            "
            async def numbers():
                for x in range(3):
                    yield x

            [x * 2 async for x in numbers()]
            ",
            json!([0, 2, 4]),
            "[0, 2, 4]",
        ),
        gives_none(
            "
            async def f():
                pass

            f()
            None
            ",
        )
        .stderr(
            "
            <job>:4: RuntimeWarning: coroutine 'f' was never awaited
              f()
            RuntimeWarning: Enable tracemalloc to get the object allocation traceback
            ",
        ),
        fails(
            "
            import asyncio
            async def main():
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(10)

            asyncio.run(main())
            ",
            error("TimeoutError", "")
                .anywhere()
                .cause(error("asyncio.exceptions.CancelledError", "").anywhere()),
        ),
        fails(
            "
            import asyncio
            async def fail(n):
                raise ValueError(n)
            async def main():
                async with asyncio.TaskGroup() as group:
                    group.create_task(fail(1))
                    group.create_task(fail(2))

            asyncio.run(main())
            ",
            error("ExceptionGroup", "unhandled errors in a TaskGroup (2 sub-exceptions)")
                .anywhere()
                .member(error("ValueError", "1").at(&[("fail", 3)]))
                .member(error("ValueError", "2").at(&[("fail", 3)])),
        ),
        fails(
            "
            async def main():
                raise asyncio.CancelledError('gone')

            import asyncio
            await main()
            ",
            error("asyncio.exceptions.CancelledError", "gone").at(&[("<module>", 5), ("main", 2)]),
        ),
        raises("await 1", "TypeError", "'int' object can't be awaited").needs(Need::Since(15)),
        raises(
            "
            async def empty():
                return
                yield

            await anext(empty())
            ",
            "StopAsyncIteration",
            "",
        ),
        completes(
            "
            from contextlib import contextmanager, suppress
            @contextmanager
            def tag(name):
                print('<', name)
                yield name
                print('>', name)

            with tag('a') as a, suppress(KeyError):
                {}['x']

            a
            ",
            "a",
            "'a'",
        )
        .stdout("< a\n> a\n"),
        fails(
            "
            class Broken:
                def __enter__(self):
                    return self
                def __exit__(self, *error):
                    raise OSError('exit')

            with Broken():
                1 / 0
            ",
            error("OSError", "exit")
                .at(&[("<module>", 7), ("__exit__", 5)])
                .context(error("ZeroDivisionError", "division by zero").at(&[("<module>", 8)])),
        ),
        completes(
            "
            def depth(n):
                return n and 1 + depth(n - 1)

            depth(900)
            ",
            900,
            "900",
        ),
        fails(
            "
            def down(n):
                return down(n + 1)

            down(0)
            ",
            error("RecursionError", "maximum recursion depth exceeded").frame_count(200),
        ),
        fails(
            "
            def even(n):
                return odd(n)
            def odd(n):
                return even(n)

            even(1)
            ",
            error("RecursionError", "maximum recursion depth exceeded").frame_count(200),
        ),
        completes(
            "
            import sys
            def down():
                down()

            try:
                down()
            except RecursionError:
                caught = True

            caught
            ",
            true,
            "True",
        ),
        raises(
            "
            x = []
            for _ in range(100_000):
                x = [x]

            repr(x)
            ",
            "RecursionError",
            "‹*›",
        ),
        completes(
            "
            import functools
            @functools.cache
            def f(n):
                return n if n < 2 else f(n - 1) + f(n - 2)

            f(80), f.cache_info().hits
            ",
            json!([23416728348467685_i64, 78]),
            "(23416728348467685, 78)",
        )
        .needs(Need::Since(13)),
        completes(
            "
            import sys
            try:
                sys.exit(3)
            except SystemExit as error:
                code = error.code

            code
            ",
            3,
            "3",
        ),
        completes(
            "
            def f():
                for x in range(3):
                    try:
                        continue
                    finally:
                        print(x)

            f()
            [1, 2][-1]
            ",
            2,
            "2",
        )
        .stdout("0\n1\n2\n"),
        completes(
            "
            import weakref
            class A:
                pass

            a = A()
            r = weakref.ref(a)
            a = None
            r() is None
            ",
            true,
            "True",
        ),
        completes(
            "
            import sys, textwrap
            sys.version_info[:2] >= (3, 15), __name__, sys.argv, sys.getrecursionlimit()
            ",
            json!([true, "__main__", [""], 1000]),
            "(True, '__main__', [''], 1000)",
        )
        .needs(Need::Since(15)),
    ]
}
