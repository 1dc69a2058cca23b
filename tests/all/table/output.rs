//! The output of programs: both streams, warnings, logging, displays.

use serde_json::json;

use super::dsl::{Row, completes, ends, gives_none, raises, shows};
use crate::needs::Need;

pub(super) fn rows() -> Vec<Row> {
    vec![
        gives_none("print('hello')").stdout("hello\n"),
        gives_none("print('a', 1, None, sep='-', end='!')").stdout("a-1-None!"),
        completes("print('x')\n42", 42, "42").stdout("x\n"),
        ends(
            "
            import sys
            for i in range(3):
                print(i)
                print(-i, file=sys.stderr)
            ",
        )
        .stdout("0\n1\n2\n")
        .stderr(
            "
            0
            -1
            -2
            ",
        )
        .interleaved("0\n0\n1\n-1\n2\n-2\n"),
        gives_none(
            "
            import sys
            print('a', end='')
            print('b', end='', file=sys.stderr)
            sys.stdout.write('c')
            sys.stderr.write('d\\n')
            print('e', flush=True)
            ",
        )
        .stdout("ace\n")
        .stderr("bd\n")
        .interleaved("abcd\ne\n"),
        gives_none(
            "
            import os, sys
            print('1')
            os.write(2, b'2\\n')
            sys.stdout.buffer.write(b'3\\n')
            os.write(1, b'4\\n')
            None
            ",
        )
        .stdout("1\n3\n4\n")
        .stderr("2\n")
        .interleaved("1\n2\n3\n4\n"),
        raises(
            "
            import sys
            print('before')
            print('and', file=sys.stderr)
            raise OSError('after')
            ",
            "OSError",
            "after",
        )
        .stdout("before\n")
        .stderr("and\n")
        .interleaved("before\nand\n"),
        gives_none("print('ä😀\\0\\r\\x1b[1m')").stdout("ä😀\0\r\u{1b}[1m\n"),
        gives_none("print('\\udcff')").stdout(b"\xff\n"),
        raises(
            "print('a\\ud800')",
            "UnicodeEncodeError",
            "'utf-8' codec can't encode character '\\ud800' in position 1: surrogates \
             not allowed",
        ),
        gives_none("import sys\nprint('\\ud800\\udcff', file=sys.stderr)")
            .stderr("\\ud800\\udcff\n"),
        gives_none(
            "
            import os
            os.write(1, bytes([0, 128, 255]))
            None
            ",
        )
        .stdout(b"\x00\x80\xff"),
        gives_none("print(f'{1 / 3!r}', [1.0], {'a': None})")
            .stdout("0.3333333333333333 [1.0] {'a': None}\n"),
        gives_none("import pprint\npprint.pprint({'b': [1, 2], 'a': 'x'})")
            .stdout("{'a': 'x', 'b': [1, 2]}\n"),
        gives_none(
            "
            import io, contextlib
            with contextlib.redirect_stdout(io.StringIO()) as kept:
                print('inside')

            print(repr(kept.getvalue()))
            ",
        )
        .stdout("'inside\\n'\n"),
        raises(
            "
            import sys
            sys.stdout.close()
            print('x')
            ",
            "ValueError",
            "I/O operation on closed file.",
        ),
        gives_none(
            "
            import sys
            sys.stdout = None
            print('nowhere')
            ",
        ),
        ends(
            "
            import traceback
            try:
                [][1]
            except IndexError:
                traceback.print_exc()
            ",
        )
        .stderr(
            "
            Traceback (most recent call last):
              File \"<job>\", line 3, in <module>
                [][1]
                ~~^^^
            IndexError: list index out of range
            ",
        ),
        gives_none("import warnings\nwarnings.warn('careful')")
            .stderr("<job>:2: UserWarning: careful\n  warnings.warn('careful')\n"),
        gives_none(
            "
            import warnings
            def old():
                warnings.warn('old is old', DeprecationWarning, stacklevel=2)

            old()
            ",
        )
        .stderr("<job>:5: DeprecationWarning: old is old\n  old()\n"),
        ends(
            "
            import warnings
            for _ in range(3):
                warnings.warn('once')
            ",
        )
        .stderr("<job>:3: UserWarning: once\n  warnings.warn('once')\n"),
        ends(
            "
            import warnings
            for kind in PendingDeprecationWarning, ImportWarning, ResourceWarning:
                warnings.warn('hidden', kind)
            ",
        ),
        raises(
            "
            import warnings
            warnings.simplefilter('error')
            warnings.warn('strict', FutureWarning)
            ",
            "FutureWarning",
            "strict",
        ),
        completes(
            "
            import warnings
            with warnings.catch_warnings(record=True) as caught:
                warnings.warn('a')

            [str(one.message) for one in caught]
            ",
            json!(["a"]),
            "['a']",
        ),
        completes("x = 'a'\nx is 'a'", true, "True").stderr(
            "
            <job>:2: SyntaxWarning: \"is\" with 'str' literal. Did you mean \"==\"?
              x is 'a'
            ",
        ),
        completes("len('\\d')", 2, "2").needs(Need::Since(15)).stderr(
            "<job>:1: SyntaxWarning: \"\\d\" is an invalid escape sequence. Such \
             sequences will not work in the future. Did you mean \"\\\\d\"? A raw \
             string is also an option.\n  len('\\d')\n",
        ),
        ends(
            "
            def f():
                try:
                    1 / 0
                finally:
                    return 1
            ",
        )
        .needs(Need::Since(14))
        .stderr("<job>:5: SyntaxWarning: 'return' in a 'finally' block\n  return 1\n"),
        gives_none(
            "
            import logging
            logging.warning('w %d', 1)
            logging.info('hidden')
            logging.getLogger('a.b').error('e')
            ",
        )
        .stderr("WARNING:root:w 1\nERROR:a.b:e\n"),
        gives_none(
            "
            import logging
            logging.getLogger('x').warning('plain')
            logging.getLogger('x').info('hidden')
            ",
        )
        .stderr("plain\n"),
        gives_none(
            "
            import logging, sys
            logging.basicConfig(stream=sys.stdout, level='DEBUG', format='%(message)s!')
            logging.debug('d')
            ",
        )
        .stdout("d!\n"),
        ends(
            "
            import logging
            try:
                1 / 0
            except ZeroDivisionError:
                logging.exception('oops')
            ",
        )
        .stderr(
            "
            ERROR:root:oops
            Traceback (most recent call last):
              File \"<job>\", line 3, in <module>
                1 / 0
                ~~^~~
            ZeroDivisionError: division by zero
            ",
        ),
        completes("display('a', 2)\n3", 3, "3")
            .display(&[("text/plain", "'a'")])
            .display(&[("text/plain", "2")]),
        gives_none("display({'text/html': '<b>', 'image/png': b'\\x89'}, raw=True)")
            .display(&[("text/html", "<b>"), ("image/png", "\u{fffd}")]),
        shows(
            "
            class A:
                def _repr_html_(self):
                    return '<b>ä</b>'
                def _repr_markdown_(self):
                    return '**ä**'
                def __repr__(self):
                    return 'A'

            A()
            ",
            "A",
        )
        .forms(&[("text/html", "<b>ä</b>"), ("text/markdown", "**ä**")]),
        shows(
            "
            class A:
                def _repr_html_(self):
                    raise OSError
                def _repr_json_(self):
                    return {'a': 1}
                def __repr__(self):
                    return 'A'

            A()
            ",
            "A",
        )
        .forms(&[("application/json", "{\"a\": 1}")]),
        raises("display(1)\n1 / 0", "ZeroDivisionError", "division by zero")
            .display(&[("text/plain", "1")]),
        completes("import sys\nsys.stdin.read(), input if False else 0", json!(["", 0]), "('', 0)"),
        raises("input('name? ')", "EOFError", "EOF when reading a line").stdout("name? ").ending(
            "EOFError: EOF when reading a line\n\
             The program has no standard input: `Job::stdin` gives it some.\n",
        ),
    ]
}
