//! When typed lines make a complete input, as the session says when the prompt asks it.

use serde_json::{Value, json};

use crate::{run_with_stdin, text};

/// Asks about each line after those before it, for each list of lines.
fn judged(inputs: &[&[&str]]) -> Vec<Vec<String>> {
    let literal = Value::from(json!(inputs).to_string());
    let input = format!(
        "import json\nask = __import__('hatchery_prompt').judge\n\
         for lines in json.loads({literal}):\n    \
             print(*[ask(''.join(one + '\\n' for one in lines[:at]), line)\n        \
             for at, line in enumerate(lines)])\n\n"
    );
    let output = run_with_stdin(&["repl"], &input);
    let said = text(&output.stdout);
    let answers: Vec<Vec<String>> =
        said.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
    assert_eq!(answers.len(), inputs.len(), "{output:?}");
    answers
}

/// Checks that exactly the last line completes each input.
fn check(inputs: &[&[&str]]) {
    for (input, answers) in inputs.iter().zip(judged(inputs)) {
        let (last, before) = answers.split_last().unwrap();
        assert!(
            before.iter().all(|answer| answer == "open" || answer == "block"),
            "{input:?} {answers:?}"
        );
        assert_eq!(last, "whole", "{input:?} {answers:?}");
    }
}

#[test]
fn simple_lines_are_whole_at_once() {
    let lines = [
        "",
        "   ",
        "x",
        "x = 1",
        "print('a:')",
        "x[1:2]",
        "f(lambda: 1)",
        "# def f():",
        "x = 1  # why:",
        "'#' ':'",
        "{1: 2}",
        "x: int = 1",
        "import a; b()",
        "iffy = 1",
        "format(x)",
        "classes",
        "match(x)",
        "_if",
        "été = 1",
        "\u{fc}: int",
        "pass;",
        "\tx",
        "  indented = 'Python says what is wrong'",
        "x = 1 ",
        "a if b else c",
        "[d for e in f]",
        "\\n",
        "await x",
        "''''a'''",
        "''",
        "'''''', ''",
        r"'\''",
        r"r'\''",
        r"'\\'",
        r#""\"(""#,
        r"'é\é'",
        "# \\",
        "x \\ ",
        "else: z",
        "f'{x}'",
        "f'{x:>{width}}'",
        "f'{{'",
        "f'{{{x}}}'",
        "f'{x[\"a\"]}'",
        "f'{x['a']}'",
        "f'{f'{f'{1}'}'}'",
        "f'{x!r:^10}' + '{'",
        "f'{d:%H:%M}'",
        "f'{(lambda: 1)()}'",
        "f'{ {1: 2}[1] }'",
        "rf'\\{x}'",
        r"f'\N{EM DASH} {x}'",
        "t'{x}'",
        "Rt'{x['('] }'",
        "'{'",
        "b'{'",
        "f'}'",
        "f'{x='{'}'",
        "rub'{'",
        "print(f'{x}', F\"{'a'}\")",
    ];
    check(&lines.iter().map(std::slice::from_ref).collect::<Vec<_>>());
}

#[test]
fn brackets_strings_and_backslashes_join_lines() {
    check(&[
        &["f(", ")"],
        &["x = [", "    1,", "", "# ]", "]"],
        &["{'a': (1, [", "2]),", "'b:'", "}"],
        &["print('(', \")\", '[')"],
        &["f(a,", "  b='''", ")", "''')"],
        &["x = (1,  # (((", ")"],
        &["f(lambda:", "1)"],
        &["x = (1 if y", "else 2)"],
        &["x = (1", "or 2", "if y else not", "z)"],
        &["[x", "for x in y", "if x", "is not", "None]"],
        &["('a'", "f'b'", "'c')"],
        &["(lambda", "x:", "x", "# why", "+ 1)"],
        &["(yield", "x)"],
        &["{'a': 1,", "b: 2}"],
        &["'''", "it's", "''", "'''"],
        &["x = \"\"\"a", "'''", "", "b\"\"\""],
        &["r'''\\", "'''"],
        &["'''\\'''", "'''"],
        &["'''a''' '''", "'''"],
        &["Rb\"\"\"", "\"\"\""],
        &["f'{", "x", "}'"],
        &["f'''{x}", "y {", "z}'''"],
        &["f'''a", "{x}", "'''"],
        &["x = 1 + \\", "2"],
        &["x = 'a\\", "b\\", "c'"],
        &["x = \\", ""],
        &["%time x = [", "0]"],
        &["%timeit -n 3 -r 2 [", "0]"],
    ]);
}

#[test]
fn blocks_go_on_until_an_empty_line() {
    check(&[
        &["def f():", "    return 1", ""],
        &["def f(): return 1", ""],
        &["if x:", "    y", "else:", "    z", "  "],
        &["try:", "    a", "except E:", "    b", "finally:", "    c", ""],
        &["for x in y:", "# why", "    z", "    # further", "\t"],
        &["while True:", "    if a:", "        b", "    c", ""],
        &["with a as b, \\", "        c as d:", "    e", ""],
        &["if a and \\", "b:", "    c", ""],
        &["async def f():", "    await g()", ""],
        &["async with a:", "    b", ""],
        &["class A:", "    '''doc", "", "    more'''", "    x = 1", ""],
        &["class A(B,", "        C):", "    pass", ""],
        &["match x:", "    case 1:", "        y", "    case {'a': [b]}: z", ""],
        &["if x:  # why", "    y", ""],
        &["if(x): y", ""],
        &["if'{'in x: y", ""],
        &["if x: y", "elif a: b", "else: z", ""],
        &["try: a", "except E: b", "finally: c", ""],
        &["def f():", "    return [", "", "    ]", ""],
        &["@a", "def f(): pass", ""],
        &["@a(1,", "2)", "@b", "class C:", "    d = 1", ""],
        &["@a", "# why", "def f():", "    @b", "    def g(): pass", "    return g", ""],
        &["%time for x in y:", "    z", ""],
        // Several lines at once are judged by the last.
        &["def f():\n    a = 1\n\n    return a", ""],
        &["def f():\n    return 1\n"],
        &["def f():\n    return 1\n\nf()"],
        &["x = 1\nfor i in y:\n    z", ""],
        &["a\nb"],
    ]);
}

/// So nothing wrong swallows what follows.
#[test]
fn errors_that_no_line_can_repair_complete_the_input() {
    check(&[
        &[")"],
        &["f(]"],
        &["x = 'open"],
        &["[1, 2)"],
        &["f'{x:>3'"],
        &["x = ')' + (", "]"],
        &["def f(:)"],
        &["def f():", "    x = 'broken"],
        &["%cd /"],
        &["print((2", "print(3)"],
        &["f(", "def g():"],
        &["x = [1", "2]"],
        &["f(x)[0", "  y"],
        &["('a'", "x"],
        &["(None", "x"],
        &["{1: (2)", "x: 3}"],
        &["f'{x", "y}'"],
        &["(1,", "return x"],
    ]);
}

#[test]
fn a_line_outside_of_the_block_that_is_open_is_another_input() {
    let apart: [&[&str]; 10] = [
        &["if 1: 1/0", "x"],
        &["if 1: 1/0", ":quit"],
        &["def f():", "    return (", ")", "def g():\n    pass"],
        &["@a", "def f(): pass", "@b"],
        &["if x:", "y"],
        &["if x:", "    y", "else: z", "elsewhere = 1"],
        &["while a:", "    if x:", ":quit"],
        &["x = 1\nfor a in b:\n    c", "d"],
        &["async with a:", "    b", "c"],
        &["%time for a in b: c", "d"],
    ];
    for (input, answers) in apart.iter().zip(judged(&apart)) {
        assert_eq!(answers.last().unwrap(), "apart", "{input:?}");
    }
    let within: [&[&str]; 14] = [
        &["x"],
        &["(1,", "x"],
        &["x = \\", "1"],
        &["if 1: x", ""],
        &["if 1: x", "  "],
        &["if 1: x", "# why"],
        &["if 1: x", "else: y"],
        &["try: x", "except: y"],
        &["if 1:", "    x"],
        &["if 1:", "    '''", "x"],
        &["if 1: f(", "x"],
        &["@a", "def f(): pass"],
        &["@a", "# why", "class C: pass"],
        &["x = 1\nif a: b", "else: c"],
    ];
    for (input, answers) in within.iter().zip(judged(&within)) {
        assert_ne!(answers.last().unwrap(), "apart", "{input:?}");
    }
}
