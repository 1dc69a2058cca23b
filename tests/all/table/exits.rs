//! How programs exit: `sys.exit` of every kind, `os._exit`, aborts, and what still runs then.

use super::dsl::{Row, completes, ends, exits, exits_saying, gives_none, raises};
use crate::needs::Need;

pub(super) fn rows() -> Vec<Row> {
    vec![
        exits("import sys\nsys.exit()", 0),
        exits("import sys\nsys.exit(None)", 0),
        exits("import sys\nsys.exit(0)", 0),
        exits("import sys\nsys.exit(3)", 3),
        exits("import sys\nsys.exit(-1)", 255),
        exits("import sys\nsys.exit(256)", 0),
        exits("import sys\nsys.exit(2 ** 32 + 5)", 5),
        exits("import sys\nsys.exit(2 ** 64)", 255),
        exits("import sys\nsys.exit(-(2 ** 70))", 255),
        exits("import sys\nsys.exit(True)", 1),
        exits("import sys\nsys.exit(False)", 0),
        exits_saying("import sys\nsys.exit('why')", "why"),
        exits_saying("import sys\nsys.exit('')", ""),
        exits_saying("import sys\nsys.exit(1.5)", "1.5"),
        exits_saying("import sys\nsys.exit([1, 'a'])", "[1, 'a']"),
        exits_saying("import sys\nsys.exit((1, 2))", "(1, 2)"),
        exits_saying("import sys\nsys.exit(ValueError('v'))", "v"),
        exits_saying("import sys\nsys.exit('ä\\n\\udcff')", "ä\n\\udcff"),
        exits_saying("import sys\nsys.exit(b'x')", "b'x'"),
        exits("raise SystemExit", 0),
        exits_saying("raise SystemExit(1, 2)", "(1, 2)"),
        exits_saying("raise SystemExit(SystemExit(3))", "3"),
        exits(
            "
            class Leave(SystemExit):
                pass

            raise Leave(4)
            ",
            4,
        ),
        exits(
            "
            import enum
            class Code(enum.IntEnum):
                BAD = 6

            raise SystemExit(Code.BAD)
            ",
            6,
        ),
        exits_saying(
            "
            import sys
            class Odd:
                def __str__(self):
                    raise OSError

            sys.exit(Odd())
            ",
            "<unprintable Odd: OSError>",
        ),
        exits("exit()", 0),
        exits("quit(7)", 7),
        exits(
            "
            import sys
            def leave():
                try:
                    sys.exit(8)
                finally:
                    print('tidied up')

            leave()
            ",
            8,
        )
        .stdout("tidied up\n"),
        exits(
            "
            import sys
            try:
                1 / 0
            except ZeroDivisionError:
                sys.exit(5)
            ",
            5,
        ),
        exits(
            "
            import atexit, sys
            atexit.register(print, 'first')
            atexit.register(print, 'last')
            sys.exit(2)
            ",
            2,
        )
        .stdout("last\nfirst\n"),
        exits(
            "
            import asyncio, sys
            async def main():
                sys.exit(9)

            asyncio.run(main())
            ",
            9,
        ),
        exits("import sys\nlist(map(sys.exit, [11]))", 11),
        exits(
            "
            import os
            print('out')
            os._exit(9)
            ",
            9,
        )
        .stdout("out\n"),
        exits("import os\nos._exit(0)", 0),
        exits("import os\nos._exit(-1)", 255),
        exits("import os\nos._exit(256 + 7)", 7),
        exits(
            "
            import atexit, os
            atexit.register(print, 'never')
            try:
                os._exit(3)
            finally:
                print('never')
            ",
            3,
        ),
        exits("import os\nos.abort()", 134)
            .needs(Need::Default)
            .message("the program aborted its interpreter"),
        exits("import signal\nsignal.raise_signal(signal.SIGABRT)", 134).needs(Need::Default),
        gives_none(
            "
            import atexit
            atexit.register(print, 'bye')
            print('hello')
            ",
        )
        .stdout("hello\nbye\n"),
        ends(
            "
            import atexit
            @atexit.register
            def leave():
                1 / 0
            ",
        )
        .needs(Need::Since(15))
        .stderr(
            "
            Exception ignored in atexit callback <function leave at 0x‹*›>:
            Traceback (most recent call last):
              File \"<job>\", line 4, in leave
                1 / 0
                ~~^~~
            ZeroDivisionError: division by zero
            ",
        ),
        ends(
            "
            class A:
                def __del__(self):
                    print('gone')

            a = A()
            ",
        )
        .stdout("gone\n"),
        completes(
            "
            class A:
                def __del__(self):
                    1 / 0

            a = A()
            del a
            1
            ",
            1,
            "1",
        )
        .needs(Need::Since(15))
        .stderr(
            "
            Exception ignored while calling deallocator <function A.__del__ at 0x‹*›>:
            Traceback (most recent call last):
              File \"<job>\", line 3, in __del__
                1 / 0
                ~~^~~
            ZeroDivisionError: division by zero
            ",
        ),
        raises(
            "import sys\nsys.exit(1, 2)",
            "TypeError",
            "exit expected at most 1 argument, got 2",
        ),
    ]
}
