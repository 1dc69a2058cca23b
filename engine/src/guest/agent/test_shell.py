"""Tests the shell on this machine's CPython: what it can't read, what is hostile, and what it leaves as it was.

What its commands print is in `tests/all/shell/lines.ndjson`, of which each line also runs in a guest.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

from hatchery._shell_grammar import CommandSyntaxError, parse

TABLE = pathlib.Path(__file__).parents[4] / "tests/all/shell/lines.ndjson"
# Runs a command as a program of its own.
RUN = "import sys; from hatchery._shell import run_command; command = sys.argv.pop(1); run_command(command)"
PIECES = (
    "if then elif else fi for do done while until case esac in { } ! [[ ]] ( ) (( )) ; ;; & && | || |& < > << <<- <<< >> <& >&"
    " &> $ $( ) $(( )) ${ } ${x ` ' \" \\ # * ? [ ] ~ = x=1 a echo $x ${x:-y} 1 2> \n \t EOF <<EOF f() - :- // é \x00 \ud800"
).split(" ")


def run(command, folder=None, **options):
    folder = folder or tempfile.gettempdir()
    env = {"PYTHONPATH": os.path.dirname(os.path.abspath(__file__)), "PATH": "/bin", "HOME": "/home"}
    command = [sys.executable, "-B", "-c", RUN, command]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=300, **options)


class Grammar(unittest.TestCase):
    def test_any_text_is_a_command_or_a_syntax_error(self):
        chance = random.Random(7)
        lines = [json.loads(line)["line"] for line in TABLE.read_text().splitlines()[1:]] if TABLE.exists() else ["ls"]
        texts = [" " * (at % 2) + (" " * (at % 3 > 0)).join(chance.choices(PIECES, k=chance.randrange(1, 30))) for at in range(4000)]
        for line in lines:
            start, end = sorted(chance.randrange(len(line) + 1) for _ in range(2))
            texts += [line[:start], line[start:end], line[:start] + line[end:], line[:start] + chance.choice(PIECES) + line[start:]]
        read = 0
        for text in texts:
            try:
                parse(text)
                read += 1
            except CommandSyntaxError:
                pass
        self.assertGreater(read, 500)
        self.assertLess(read, len(texts) - 500)

    def test_what_is_nested_too_deep_is_a_syntax_error(self):
        for opening in ("(", "{ ", "$(", "${x:-", "$((", "((", "if ", "while ", "! ! (", "f() ", "case x in x) ", '"$('):
            with self.assertRaises(CommandSyntaxError, msg=opening):
                parse("echo a; " + opening * 5000)
        for text in ("(" * 30 + "ls" + ")" * 30, "$(" * 20 + "ls" + ")" * 20, "! " * 5000 + "ls", "a=1 " * 5000, "ls | " * 5000 + "ls"):
            parse(text)


class Hostile(unittest.TestCase):
    def test_hostile_commands_end_with_an_error(self):
        for command, status, told in (
            ("f() { f; }; f", 2, "too deep"),
            ("eval() { :; }; x='eval \"$x\"'; eval \"$x\"", 2, "too deep"),
            ("trap 'exit 9' EXIT; trap 'f() { f; }; f' EXIT", 2, "too deep"),
            ("echo 'sh s.sh' > s.sh; sh s.sh", 2, "too deep"),
            ("x=x; echo $((x))", 2, "syntax error"),
            ("echo $((" + "(" * 2000 + "1" + ")" * 2000 + "))", 2, "too deep"),
            ("echo $((" + "!" * 2000 + "1))", 2, "too deep"),
            ("echo $((" + "9" * 5000 + "))", 2, "too large"),
            ("echo {1..999999999}", 2, "more than"),
            ("echo " + "{a,b}" * 30, 2, "more than"),
            ("printf %99999999d 1", 1, "invalid format"),
            ("echo a | sed 's/\\(a/b/'", 1, "bad regex"),
            ("echo a | grep '" + "(" * 3000 + "'", 1, ""),
            ("echo a | grep -E '" + "(" * 3000 + "'", 2, ""),
            ("sort -k 99999999999 /dev/null", 2, "invalid key"),
            ("cut -f 0 /dev/null", 1, "invalid range"),
            ("head -n x /dev/null", 1, "invalid number"),
            ("$(printf '%s' '(')", 127, "not found"),
            ("break 999999999999; continue; return 3", 2, "Illegal number"),
            ("exit x", 2, "Illegal number"),
            ("shift 5", 2, "can't shift"),
            ("exec 99< x", 2, ""),
            ("cat <&7", 2, "Bad file descriptor"),
            ("echo >&-; echo $?", 0, "Bad file descriptor"),
            ("export 1x=2", 2, "bad variable name"),
            ("awk 'BEGIN { " + "(" * 500 + "1" + ")" * 500 + " }'", 1, "too deep"),
            ("awk 'BEGIN { " + "if (1) " * 500 + "x }'", 1, "too deep"),
            ("awk 'BEGIN { x = " + "- " * 5000 + "1; print x }'", 1, "too deep"),
            ("awk 'BEGIN { x = 1" + " + 1" * 5000 + " }'", 1, "too deep"),
            ("awk 'function f() { return f() } BEGIN { f() }'", 2, "too deep"),
            ("awk 'BEGIN { print $999999999 }'", 1, "no field"),
            ("awk 'BEGIN { printf \"%999999d\", 1 }'", 1, "too wide"),
            ("awk 'BEGIN { print 2 ^ 99999999, 1 / 0 }'", 1, "Division by zero"),
            ("awk 'BEGIN { print substr(\"a\", -2 ^ 5000), int(2 ^ 5000) }'", 0, ""),
            ("awk 'BEGIN { x[1]; x = 2 }'", 1, "is an array"),
            ("awk 'BEGIN { __import__(\"os\") }'", 1, "no function"),
            ("awk 'BEGIN { print lshift(1, 2 ^ 60) }'", 0, ""),
            ("awk \"/(/\" /dev/null; echo a | awk \"/(/\"", 1, "bad regex"),
            ("tar xf /dev/null", 1, "no archive"),
            ("echo x | tar x", 1, "no archive"),
            ("echo x | gunzip", 1, "invalid magic"),
            ("echo x > a.zip; unzip a.zip", 1, "no archive"),
        ):
            with self.subTest(command[:60]), tempfile.TemporaryDirectory() as folder:
                ended = run(command, folder)
                self.assertEqual(ended.returncode, status, ended)
                self.assertIn(told, ended.stderr.decode())
                self.assertNotIn("Traceback", ended.stderr.decode())

    def test_a_pipeline_ends_with_its_last_command(self):
        for command, out in (
            ("yes | head -n 1", "y\n"),
            ("while :; do echo a; done | head -n 2", "a\na\n"),
            ("seq 1000000000 | grep 7 | sed -n '2{p;q;}'", "17\n"),
            ("yes | tr y z | head -n 1", "z\n"),
            ("cat /dev/zero | head -c 3 | wc -c", "3\n"),
            ("yes | while read x; do echo $x; break; done", "y\n"),
            ("echo a | echo \"$(cat)\"", "a\n"),
        ):
            with self.subTest(command):
                self.assertEqual(run(command).stdout.decode(), out)


class Guide(unittest.TestCase):
    def test_the_guide_lists_every_command(self):
        from hatchery import _shell, _shell_archives, _shell_awk, _shell_builtins, _shell_commands, _shell_find, _shell_grep, _shell_sed, _shell_texts

        seldom = {name: table.__name__ for table in (_shell_archives, _shell_awk) for name in table.COMMANDS}
        self.assertEqual(seldom, _shell.SELDOM)
        page = (TABLE.parents[3] / "docs/guide/shell.md").read_text() if TABLE.exists() else None
        tables = _shell_archives, _shell_awk, _shell_commands, _shell_find, _shell_grep, _shell_sed, _shell_texts
        for label, names in (
            ("Builtins", sorted(_shell_builtins.BUILTINS)),
            ("Programs", sorted(name for table in tables for name in table.COMMANDS)),
        ):
            self.assertEqual(len(names), len(set(names)))
            if page is not None:
                self.assertIn(f"\n{label}: {' '.join(f'`{name}`' for name in names)}.\n", page)


class Surroundings(unittest.TestCase):
    def test_a_command_changes_neither_folder_nor_variables_nor_main(self):
        from hatchery import _shell

        main, folder, variables, argv = sys.modules["__main__"], os.getcwd(), dict(os.environ), sys.argv[:]
        with tempfile.TemporaryDirectory() as place:
            line = f"cd {place}; export NEW=1 HOME=/x; python3 -c 'import os; os.environ[\"Y\"] = \"1\"; os.chdir(\"/\"); x = 1' > out; cat out"
            _shell.run_command(line)
        found = sys.modules["__main__"], os.getcwd(), dict(os.environ), sys.argv
        self.assertEqual(found, (main, folder, variables, argv))
        self.assertFalse(hasattr(main, "NEW"))
        with self.assertRaises(SystemExit) as left:
            _shell.run_command("exit 7")
        self.assertEqual(left.exception.code, 7)

    def test_python_is_a_program_of_its_own(self):
        script = "import sys\\nprint(__name__, sys.argv[1:], sys.stdin.read().strip())\\nsys.exit(3)"
        with tempfile.TemporaryDirectory() as folder:
            ended = run(f"printf '{script}' > a.py; echo in | python a.py 1 'b c' | tr a-z A-Z; echo in | python a.py; echo $?", folder)
            self.assertEqual(ended.stdout.decode(), "__MAIN__ ['1', 'B C'] IN\n__main__ [] in\n3\n")
            for command, status, out, told in (
                ("python -c 'print(1); 1 / 0'", 1, "1\n", "ZeroDivisionError"),
                ("python3 -m json.tool <<< '[1]'", 0, "[\n    1\n]\n", ""),
                ("python - a <<'END'\nimport sys; print(sys.argv)\nEND", 0, "['-', 'a']\n", ""),
                ("echo 'print(2)' | python", 0, "2\n", ""),
                ("python none.py", 2, "", "can't open file"),
                ("python -c 'import sys; print(1); sys.stderr.write(\"e\")' > both 2>&1; cat both", 0, "1\ne", ""),
                ("python -c 'import os; print(os.environ[\"X\"], os.getcwd() == \"/\")' > o; cd /; X=5 python -c 'import os; print(os.environ[\"X\"], os.getcwd())'", 0, "5 /\n", "KeyError"),
                ("x=$(python -c 'print(6)'); echo $x; python --version | cut -c 1-8", 0, "6\nPython 3\n", ""),
            ):
                with self.subTest(command):
                    ended = run(command, folder)
                    self.assertEqual((ended.returncode, ended.stdout.decode()), (status, out), ended)
                    self.assertIn(told, ended.stderr.decode())


if __name__ == "__main__":
    unittest.main()
