//! Syntax errors, with their line, column and text.

use super::dsl::{Row, fails, refuses};
use super::error::error;
use crate::needs::Need;

pub(super) fn rows() -> Vec<Row> {
    vec![
        refuses("x = = 1", "SyntaxError", "invalid syntax", (1, 5, "x = = 1\n")).traceback(
            "
              File \"<job>\", line 1
                x = = 1
                    ^
            SyntaxError: invalid syntax
            ",
        ),
        refuses("x = 1\ny = (\n", "SyntaxError", "'(' was never closed", (2, 5, "y = (\n")),
        refuses(
            "x = [1, 2)",
            "SyntaxError",
            "closing parenthesis ')' does not match opening parenthesis '['",
            (1, 10, "x = [1, 2)"),
        ),
        refuses("x = 1)", "SyntaxError", "unmatched ')'", (1, 6, "x = 1)")),
        refuses(
            "x = 'abc",
            "SyntaxError",
            "unterminated string literal (detected at line 1)",
            (1, 5, "x = 'abc"),
        ),
        refuses(
            "x = '''abc\ny = 1",
            "SyntaxError",
            "unterminated triple-quoted string literal (detected at line 2)",
            (1, 5, "x = '''abc"),
        ),
        refuses("äöü = = 1", "SyntaxError", "invalid syntax", (1, 7, "äöü = = 1\n")),
        refuses("x = 1\n  y = 2", "IndentationError", "unexpected indent", (2, 2, "  y = 2\n"))
            .traceback(
                "
              File \"<job>\", line 2
                y = 2
            IndentationError: unexpected indent
            ",
            ),
        refuses(
            "def f():\npass",
            "IndentationError",
            "expected an indented block after function definition on line 1",
            (2, 1, "pass\n"),
        ),
        refuses(
            "
            if True:
                    x = 1
                y = 2
            ",
            "IndentationError",
            "unindent does not match any outer indentation level",
            (3, 10, "    y = 2\n"),
        ),
        refuses(
            "
            if True:
                    x = 1
            \ty = 2
            ",
            "TabError",
            "inconsistent use of tabs and spaces in indentation",
            (3, 1, "\ty = 2\n"),
        ),
        refuses(
            "for x in range(3)\n    pass",
            "SyntaxError",
            "expected ':'",
            (1, 18, "for x in range(3)\n"),
        ),
        refuses("class A\n    pass", "SyntaxError", "expected ':'", (1, 8, "class A\n")),
        refuses(
            "if x = 1:\n    pass",
            "SyntaxError",
            "invalid syntax. Maybe you meant '==' or ':=' instead of '='?",
            (1, 4, "if x = 1:\n"),
        ),
        refuses(
            "1 = x",
            "SyntaxError",
            "cannot assign to literal here. Maybe you meant '==' instead of '='?",
            (1, 1, "1 = x\n"),
        ),
        refuses(
            "f() = 1",
            "SyntaxError",
            "cannot assign to function call here. Maybe you meant '==' instead of '='?",
            (1, 1, "f() = 1\n"),
        ),
        refuses("None = 1", "SyntaxError", "cannot assign to None", (1, 1, "None = 1\n")),
        refuses(
            "print 'x'",
            "SyntaxError",
            "Missing parentheses in call to 'print'. Did you mean print(...)?",
            (1, 1, "print 'x'\n"),
        ),
        refuses(
            "f(a=1, a=2)",
            "SyntaxError",
            "keyword argument repeated: a",
            (1, 8, "f(a=1, a=2)"),
        ),
        refuses(
            "f(a=1, 2)",
            "SyntaxError",
            "positional argument follows keyword argument",
            (1, 9, "f(a=1, 2)\n"),
        ),
        refuses(
            "def f(a, a):\n    pass",
            "SyntaxError",
            "duplicate parameter 'a' in function definition",
            (1, 10, "def f(a, a):\n"),
        )
        .needs(Need::Since(15)),
        refuses(
            "def f(a=1, b):\n    pass",
            "SyntaxError",
            "parameter without a default follows parameter with a default",
            (1, 12, "def f(a=1, b):\n"),
        ),
        refuses("x = 1\nreturn x", "SyntaxError", "'return' outside function", (2, 1, "return x")),
        refuses("yield 1", "SyntaxError", "'yield' outside function", (1, 1, "yield 1")),
        refuses("break", "SyntaxError", "'break' outside loop", (1, 1, "break")).traceback(
            "
              File \"<job>\", line 1
                break
                ^^^^^
            SyntaxError: 'break' outside loop
            ",
        ),
        refuses("continue", "SyntaxError", "'continue' not properly in loop", (1, 1, "continue")),
        refuses(
            "nonlocal x",
            "SyntaxError",
            "nonlocal declaration not allowed at module level",
            (1, 1, "nonlocal x"),
        ),
        refuses(
            "
            def f():
                x = 1
                global x
            ",
            "SyntaxError",
            "name 'x' is assigned to before global declaration",
            (3, 5, "    global x"),
        ),
        refuses(
            "def f():\n    await g()",
            "SyntaxError",
            "'await' outside async function",
            (2, 5, "    await g()"),
        ),
        refuses(
            "x = 010",
            "SyntaxError",
            "leading zeros in decimal integer literals are not permitted; use an 0o \
             prefix for octal integers",
            (1, 5, "x = 010"),
        ),
        refuses("x = 1__0", "SyntaxError", "invalid decimal literal", (1, 6, "x = 1__0")),
        refuses("x = 5a", "SyntaxError", "invalid decimal literal", (1, 5, "x = 5a")),
        refuses("f'{x'", "SyntaxError", "f-string: expecting '}'", (1, 5, "f'{x'")),
        refuses(
            "f'{}'",
            "SyntaxError",
            "f-string: valid expression required before '}'",
            (1, 4, "f'{}'\n"),
        ),
        refuses(
            "'\\N{nope}'",
            "SyntaxError",
            "(unicode error) 'unicodeescape' codec can't decode bytes in position 0-7: \
             unknown Unicode character name",
            (1, 1, "'\\N{nope}'\n"),
        ),
        refuses(
            "b'ä'",
            "SyntaxError",
            "bytes can only contain ASCII literal characters",
            (1, 1, "b'ä'\n"),
        ),
        refuses(
            "x = 1\u{a0}+ 2",
            "SyntaxError",
            "invalid non-printable character U+00A0",
            (1, 6, "x = 1\u{a0}+ 2"),
        )
        .needs(Need::Since(13)),
        refuses("x = “a”", "SyntaxError", "invalid character '“' (U+201C)", (1, 5, "x = “a”")),
        refuses("x = 1 $ 2", "SyntaxError", "invalid syntax", (1, 7, "x = 1 $ 2\n")),
        refuses(
            "from __future__ import nope",
            "SyntaxError",
            "future feature nope is not defined",
            (1, 24, "from __future__ import nope"),
        )
        .needs(Need::Since(13)),
        refuses(
            "x = 1\nfrom __future__ import annotations",
            "SyntaxError",
            "from __future__ imports must occur at the beginning of the file",
            (2, 1, "from __future__ import annotations"),
        ),
        refuses("whle True:\n    pass", "SyntaxError", "invalid syntax", (1, 1, "whle True:"))
            .needs(Need::Since(15))
            .ending("\nSyntaxError: invalid syntax. Did you mean 'while'?\n"),
        refuses(
            "
            try:
                pass
            x = 1
            ",
            "SyntaxError",
            "expected 'except' or 'finally' block",
            (3, 1, "x = 1\n"),
        ),
        refuses("else:\n    pass", "SyntaxError", "invalid syntax", (1, 1, "else:\n")),
        refuses("a b", "SyntaxError", "invalid syntax", (1, 3, "a b\n")),
        refuses(
            "(x := 1) = 2",
            "SyntaxError",
            "cannot assign to named expression here. Maybe you meant '==' instead of \
             '='?",
            (1, 2, "(x := 1) = 2\n"),
        ),
        refuses(
            "x, y += 1",
            "SyntaxError",
            "'tuple' is an illegal expression for augmented assignment",
            (1, 1, "x, y += 1\n"),
        ),
        refuses(
            "[x async for x in y for z in (yield)]",
            "SyntaxError",
            "'yield' inside list comprehension",
            (1, 31, "[x async for x in y for z in (yield)]"),
        ),
        fails(
            "eval('1 +')",
            error("SyntaxError", "invalid syntax (<string>, line 1)")
                .syntax("<string>", 1, 0, "1 +"),
        ),
        fails(
            "compile('x = (', 'my.py', 'exec')",
            error("SyntaxError", "'(' was never closed (my.py, line 1)")
                .syntax("my.py", 1, 5, "x = (\n"),
        ),
        fails(
            "open('bad.py', 'w').write('x = 1\\ny ==\\n')\nimport bad",
            error("SyntaxError", "invalid syntax (bad.py, line 2)").syntax(
                "/workspace/bad.py",
                2,
                5,
                "y ==\n",
            ),
        ),
        fails(
            "import ast\nast.literal_eval('f()')",
            error(
                "ValueError",
                "malformed node or string on line 1: Call(func=Name(id='f', ctx=Load()), \
             args=[], keywords=[])",
            )
            .anywhere(),
        )
        .needs(Need::Since(14)),
    ]
}
