//! Exceptions with causes, contexts, notes and members, and programs' own exception classes.

use super::dsl::{Row, ends, fails, raises};
use super::error::error;
use crate::needs::Need;

pub(super) fn rows() -> Vec<Row> {
    vec![
        fails(
            "
            try:
                {}['k']
            except KeyError as error:
                raise ValueError('v') from error
            ",
            error("ValueError", "v").cause(error("KeyError", "'k'").at(&[("<module>", 2)])),
        )
        .traceback(
            "
            Traceback (most recent call last):
              File \"<job>\", line 2, in <module>
                {}['k']
                ~~^^^^^
            KeyError: 'k'

            The above exception was the direct cause of the following exception:

            Traceback (most recent call last):
              File \"<job>\", line 4, in <module>
                raise ValueError('v') from error
            ValueError: v
            ",
        ),
        fails(
            "
            try:
                1 / 0
            except ZeroDivisionError:
                absent
            ",
            error("NameError", "name 'absent' is not defined")
                .context(error("ZeroDivisionError", "division by zero").at(&[("<module>", 2)])),
        )
        .traceback(
            "
            Traceback (most recent call last):
              File \"<job>\", line 2, in <module>
                1 / 0
                ~~^~~
            ZeroDivisionError: division by zero

            During handling of the above exception, another exception occurred:

            Traceback (most recent call last):
              File \"<job>\", line 4, in <module>
                absent
            NameError: name 'absent' is not defined
            ",
        ),
        raises(
            "
            try:
                1 / 0
            except ZeroDivisionError:
                raise ValueError('v') from None
            ",
            "ValueError",
            "v",
        ),
        fails(
            "raise ValueError('v') from OSError('o')",
            error("ValueError", "v").cause(error("OSError", "o")),
        ),
        raises(
            "raise ValueError from 1",
            "TypeError",
            "exception causes must derive from BaseException",
        ),
        fails(
            "
            def f(n):
                try:
                    if n:
                        f(n - 1)
                    else:
                        raise KeyError(n)
                except Exception as error:
                    raise ValueError(n) from error

            f(2)
            ",
            error("ValueError", "2").at(&[("<module>", 10), ("f", 8)]).cause(
                error("ValueError", "1").at(&[("f", 4), ("f", 8)]).cause(
                    error("ValueError", "0")
                        .at(&[("f", 4), ("f", 8)])
                        .cause(error("KeyError", "0").at(&[("f", 6)])),
                ),
            ),
        ),
        fails(
            "
            try:
                raise OSError('a')
            finally:
                raise ValueError('b')
            ",
            error("ValueError", "b").context(error("OSError", "a").at(&[("<module>", 2)])),
        ),
        fails(
            "
            try:
                1 / 0
            except ZeroDivisionError as error:
                raise
            ",
            error("ZeroDivisionError", "division by zero").at(&[("<module>", 2)]),
        ),
        fails(
            "
            a, b = ValueError('a'), ValueError('b')
            a.__cause__, b.__cause__ = b, a
            raise a
            ",
            error("ValueError", "a").cause(error("ValueError", "b")),
        ),
        fails(
            "
            error = ValueError('v')
            error.add_note('a note')
            error.add_note('two\\nlines')
            raise error
            ",
            error("ValueError", "v").note("a note").note("two\nlines"),
        )
        .traceback(
            "
            Traceback (most recent call last):
              File \"<job>\", line 4, in <module>
                raise error
            ValueError: v
            a note
            two
            lines
            ",
        ),
        fails(
            "
            error = ValueError('v')
            error.__notes__ = [1]
            raise error
            ",
            error("ValueError", "v").note("1"),
        ),
        raises("raise ValueError('a\\nb')", "ValueError", "a\nb"),
        raises("raise ValueError('\\ud800')", "ValueError", "\\ud800"),
        raises(
            "
            class E(Exception):
                pass

            raise E('x')
            ",
            "E",
            "x",
        )
        .ending("\nE: x\n"),
        fails(
            "
            def f():
                class Local(Exception):
                    pass
                raise Local

            f()
            ",
            error("f.<locals>.Local", "").at(&[("<module>", 6), ("f", 4)]),
        )
        .ending("\nf.<locals>.Local\n"),
        raises(
            "
            class E(Exception):
                def __str__(self):
                    raise OSError

            raise E
            ",
            "E",
            "<unprintable E: OSError>",
        )
        .ending("\nE: <exception str() failed>\n"),
        raises(
            "
            class E(KeyError):
                def __str__(self):
                    return 'mine'

            raise E
            ",
            "E",
            "mine",
        )
        .ending("\nE: mine\n"),
        fails(
            "import json\njson.loads('[1,')",
            error("json.decoder.JSONDecodeError", "Expecting value: line 1 column 4 (char 3)")
                .anywhere(),
        ),
        fails(
            "
            def outer():
                inner(1)
            def inner(x):
                return x / 0

            outer()
            ",
            error("ZeroDivisionError", "division by zero").at(&[
                ("<module>", 6),
                ("outer", 2),
                ("inner", 4),
            ]),
        )
        .needs(Need::Since(13))
        .traceback(
            "
            Traceback (most recent call last):
              File \"<job>\", line 6, in <module>
                outer()
                ~~~~~^^
              File \"<job>\", line 2, in outer
                inner(1)
                ~~~~~^^^
              File \"<job>\", line 4, in inner
                return x / 0
                       ~~^~~
            ZeroDivisionError: division by zero
            ",
        ),
        fails(
            "exec('1 / 0')",
            error("ZeroDivisionError", "division by zero").at(&[("<module>", 1), ("<module>", 1)]),
        ),
        fails(
            "
            class A:
                def method(self):
                    return [1 / x for x in (1, 0)]

            A().method()
            ",
            error("ZeroDivisionError", "division by zero").at(&[("<module>", 5), ("method", 3)]),
        ),
        fails(
            "raise ExceptionGroup('g', [ValueError('a'), TypeError('b')])",
            error("ExceptionGroup", "g (2 sub-exceptions)")
                .member(error("ValueError", "a"))
                .member(error("TypeError", "b")),
        )
        .traceback(
            "  + Exception Group Traceback (most recent call last):\n  |   File \
             \"<job>\", line 1, in <module>\n  |     raise ExceptionGroup('g', \
             [ValueError('a'), TypeError('b')])\n  | ExceptionGroup: g (2 \
             sub-exceptions)\n  +-+---------------- 1 ----------------\n    | \
             ValueError: a\n    +---------------- 2 ----------------\n    | TypeError: \
             b\n    +------------------------------------\n",
        ),
        fails(
            "raise BaseExceptionGroup('g', [SystemExit(2), KeyboardInterrupt()])",
            error("BaseExceptionGroup", "g (2 sub-exceptions)")
                .member(error("SystemExit", "2"))
                .member(error("KeyboardInterrupt", "")),
        ),
        fails(
            "raise ExceptionGroup('g', [ExceptionGroup('h', [OSError(1)]), \
             KeyError('k')])",
            error("ExceptionGroup", "g (2 sub-exceptions)")
                .member(
                    error("ExceptionGroup", "h (1 sub-exception)").member(error("OSError", "1")),
                )
                .member(error("KeyError", "'k'")),
        ),
        fails(
            "
            error = OSError('o')
            error.add_note('n')
            group = ExceptionGroup('g', [error])
            group.add_note('m')
            raise group from KeyError(1)
            ",
            error("ExceptionGroup", "g (1 sub-exception)")
                .note("m")
                .cause(error("KeyError", "1"))
                .member(error("OSError", "o").note("n")),
        ),
        fails(
            "
            try:
                raise ExceptionGroup('g', [ValueError('a'), OSError('b')])
            except* ValueError:
                print('handled')
            ",
            error("ExceptionGroup", "g (1 sub-exception)")
                .at(&[("<module>", 2)])
                .member(error("OSError", "b")),
        )
        .stdout("handled\n"),
        fails(
            "
            try:
                raise ExceptionGroup('g', [ValueError('a')])
            except* ValueError as group:
                raise KeyError('new')
            ",
            error("KeyError", "'new'").context(
                error("ExceptionGroup", "g (1 sub-exception)")
                    .at(&[("<module>", 2)])
                    .member(error("ValueError", "a")),
            ),
        ),
        ends(
            "
            try:
                raise ExceptionGroup('g', [ValueError('a')])
            except* ValueError as group:
                print(repr(group))
            ",
        )
        .stdout("ExceptionGroup('g', [ValueError('a')])\n"),
        raises(
            "raise ExceptionGroup('g', [])",
            "ValueError",
            "second argument (exceptions) must be a non-empty sequence",
        ),
        raises(
            "raise ExceptionGroup('g', [KeyboardInterrupt()])",
            "TypeError",
            "Cannot nest BaseExceptions in an ExceptionGroup",
        ),
    ]
}
