//! Every built-in exception type, raised by a cause where there is one.

use hatchery::LimitKind;

use super::dsl::{Row, fails, raises};
use super::error::error;
use crate::needs::Need;

pub(super) fn rows() -> Vec<Row> {
    vec![
        raises("raise BaseException('b')", "BaseException", "b"),
        raises("raise Exception", "Exception", "").traceback(
            "
            Traceback (most recent call last):
              File \"<job>\", line 1, in <module>
                raise Exception
            Exception
            ",
        ),
        raises("raise ArithmeticError('a', 1)", "ArithmeticError", "('a', 1)"),
        raises("assert 1 == 2, 'no'", "AssertionError", "no").needs(Need::Since(13)).traceback(
            "
            Traceback (most recent call last):
              File \"<job>\", line 1, in <module>
                assert 1 == 2, 'no'
                       ^^^^^^
            AssertionError: no
            ",
        ),
        raises("assert []", "AssertionError", ""),
        raises("import math\nmath.pii", "AttributeError", "module 'math' has no attribute 'pii'")
            .needs(Need::Since(15))
            .ending(
                "AttributeError: module 'math' has no attribute 'pii'. Did you mean '.pi' \
             instead of '.pii'?\n",
            ),
        raises("None.x", "AttributeError", "'NoneType' object has no attribute 'x'"),
        raises("raise BlockingIOError(6, 'busy')", "BlockingIOError", "[Errno 6] busy"),
        raises(
            "import errno\nraise OSError(errno.EPIPE, 'gone')",
            "BrokenPipeError",
            "[Errno 64] gone",
        ),
        raises(
            "
            b = bytearray(1)
            m = memoryview(b)
            b.append(1)
            ",
            "BufferError",
            "Existing exports of data: object cannot be re-sized",
        ),
        raises(
            "import errno\nraise OSError(errno.ECHILD, 'c')",
            "ChildProcessError",
            "[Errno 12] c",
        ),
        raises(
            "import errno\nraise OSError(errno.ECONNABORTED, 'c')",
            "ConnectionAbortedError",
            "[Errno 13] c",
        ),
        raises("raise ConnectionError('c')", "ConnectionError", "c"),
        raises(
            "import errno\nraise OSError(errno.ECONNREFUSED, 'c')",
            "ConnectionRefusedError",
            "[Errno 14] c",
        ),
        raises(
            "import errno\nraise OSError(errno.ECONNRESET, 'c')",
            "ConnectionResetError",
            "[Errno 15] c",
        ),
        raises("input()", "EOFError", "EOF when reading a line").ending(
            "EOFError: EOF when reading a line\n\
             The program has no standard input: `Job::stdin` gives it some.\n",
        ),
        raises("import os\nos.mkdir('/tmp')", "FileExistsError", "[Errno 20] File exists: '/tmp'"),
        raises(
            "open('missing')",
            "FileNotFoundError",
            "[Errno 44] No such file or directory: 'missing'",
        )
        .ending(
            "FileNotFoundError: [Errno 44] No such file or directory: 'missing'\n\
             A program sees only the files that it gets. If `missing` is your file, \
             `Job::input` gives it a copy, ‹*›\n",
        ),
        raises("raise FloatingPointError('f')", "FloatingPointError", "f"),
        raises("raise GeneratorExit", "GeneratorExit", ""),
        raises("raise ImportCycleError('c')", "ImportCycleError", "c").needs(Need::Since(15)),
        raises(
            "from math import nope",
            "ImportError",
            "cannot import name 'nope' from 'math' (unknown location)",
        ),
        raises("import nope", "ModuleNotFoundError", "No module named 'nope'").ending(
            "ModuleNotFoundError: No module named 'nope'\n`nope` is not in this image. \
             ‹*›\n",
        ),
        raises("[][0]", "IndexError", "list index out of range"),
        raises("'abc'[3]", "IndexError", "string index out of range"),
        raises("raise InterruptedError(27, 'i')", "InterruptedError", "[Errno 27] i"),
        raises("open('/tmp')", "IsADirectoryError", "[Errno 31] Is a directory: '/tmp'"),
        raises("{}['k']", "KeyError", "'k'"),
        raises("{}[1, 2]", "KeyError", "(1, 2)"),
        raises("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
        raises("'a'.encode('nope')", "LookupError", "unknown encoding: nope"),
        raises("bytearray(1 << 30)", "MemoryError", "").meets(LimitKind::Memory),
        raises("absent", "NameError", "name 'absent' is not defined"),
        raises("value = 1\nvalu", "NameError", "name 'valu' is not defined")
            .ending("NameError: name 'valu' is not defined. Did you mean: 'value'?\n"),
        raises(
            "open('a', 'w').close()\nopen('a/b')",
            "NotADirectoryError",
            "[Errno 54] Not a directory: 'a/b'",
        ),
        raises("raise NotImplementedError('later')", "NotImplementedError", "later"),
        raises(
            "raise OSError(5, 'why', 'a.txt', None, 'b.txt')",
            "OSError",
            "[Errno 5] why: 'a.txt' -> 'b.txt'",
        ),
        raises("import math\nmath.exp(1000)", "OverflowError", "math range error"),
        raises("2.0 ** 10_000", "OverflowError", "(68, 'Result not representable')"),
        raises("int(float('inf'))", "OverflowError", "cannot convert float infinity to integer"),
        raises(
            "import errno\nraise OSError(errno.EACCES, 'no', 'f')",
            "PermissionError",
            "[Errno 2] no: 'f'",
        ),
        raises("open('/usr/x', 'w')", "OSError", "[Errno 69] Read-only file system: '/usr/x'")
            .needs(Need::Default),
        raises(
            "import errno\nraise OSError(errno.ESRCH, 'p')",
            "ProcessLookupError",
            "[Errno 71] p",
        ),
        raises("raise PythonFinalizationError('p')", "PythonFinalizationError", "p")
            .needs(Need::Since(13)),
        raises("raise RecursionError('r')", "RecursionError", "r"),
        raises(
            "
            import weakref
            class A:
                pass

            weakref.proxy(A()).x
            ",
            "ReferenceError",
            "weakly-referenced object no longer exists",
        ),
        fails(
            "
            d = {1: 1}
            for _ in d:
                d[len(d) + 1] = 1
            ",
            error("RuntimeError", "dictionary changed size during iteration")
                .at(&[("<module>", 2)]),
        ),
        raises("next(iter(()))", "StopIteration", ""),
        raises("raise StopAsyncIteration(1)", "StopAsyncIteration", "1"),
        raises("raise SystemError('s')", "SystemError", "s"),
        raises("raise TimeoutError('t')", "TimeoutError", "t"),
        raises("1 + 'a'", "TypeError", "unsupported operand type(s) for +: 'int' and 'str'"),
        raises("'a' + b'b'", "TypeError", "can only concatenate str (not \"bytes\") to str"),
        raises("len(1)", "TypeError", "object of type 'int' has no len()"),
        raises(
            "(lambda x: x)()",
            "TypeError",
            "<lambda>() missing 1 required positional argument: 'x'",
        ),
        raises("raise 'text'", "TypeError", "exceptions must derive from BaseException"),
        fails(
            "
            def f():
                x += 1

            f()
            ",
            error(
                "UnboundLocalError",
                "cannot access local variable 'x' where it is not associated with a value",
            )
            .at(&[("<module>", 4), ("f", 2)]),
        ),
        raises("raise UnicodeError('u')", "UnicodeError", "u"),
        raises(
            "b'a\\xff'.decode()",
            "UnicodeDecodeError",
            "'utf-8' codec can't decode byte 0xff in position 1: invalid start byte",
        ),
        raises(
            "'ä'.encode('ascii')",
            "UnicodeEncodeError",
            "'ascii' codec can't encode character '\\xe4' in position 0: ordinal not \
             in range(128)",
        ),
        raises(
            "raise UnicodeTranslateError('xy', 0, 2, 'r')",
            "UnicodeTranslateError",
            "can't translate characters in position 0-1: r",
        ),
        raises("int('x')", "ValueError", "invalid literal for int() with base 10: 'x'"),
        raises("raise ValueError(1, 'a')", "ValueError", "(1, 'a')"),
        raises("1 / 0", "ZeroDivisionError", "division by zero").needs(Need::Since(13)).traceback(
            "
            Traceback (most recent call last):
              File \"<job>\", line 1, in <module>
                1 / 0
                ~~^~~
            ZeroDivisionError: division by zero
            ",
        ),
        raises("1 % 0", "ZeroDivisionError", "division by zero").needs(Need::Since(15)),
        raises("raise BytesWarning('w')", "BytesWarning", "w"),
        raises("raise DeprecationWarning('w')", "DeprecationWarning", "w"),
        raises("raise EncodingWarning('w')", "EncodingWarning", "w"),
        raises("raise FutureWarning('w')", "FutureWarning", "w"),
        raises("raise ImportWarning('w')", "ImportWarning", "w"),
        raises("raise PendingDeprecationWarning('w')", "PendingDeprecationWarning", "w"),
        raises("raise ResourceWarning('w')", "ResourceWarning", "w"),
        raises("raise RuntimeWarning('w')", "RuntimeWarning", "w"),
        raises("raise SyntaxWarning('w')", "SyntaxWarning", "w"),
        raises("raise UnicodeWarning('w')", "UnicodeWarning", "w"),
        raises("raise UserWarning('w')", "UserWarning", "w"),
        raises("raise Warning(b'w')", "Warning", "b'w'"),
    ]
}
