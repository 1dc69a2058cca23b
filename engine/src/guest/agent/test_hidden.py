"""Tests of modules that are imported and hidden, each in a process of its own."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

AGENT = os.path.dirname(os.path.abspath(__file__))
BEGIN = """
import atexit, os, sys, warnings
import hatchery._late as late
late.install({})
from hatchery._hidden import hide
os.environ.pop("LEFT", None)
before = dict(sys.modules), list(warnings.filters), list(sys.meta_path), dict(os.environ), atexit._ncallbacks()
late.LateFinder.hidden = hide(["csv", "statistics", "xml.dom.minidom", "decimal", "nothing_here", "made", "pack"], int, ())
after = dict(sys.modules), list(warnings.filters), list(sys.meta_path), dict(os.environ), atexit._ncallbacks()
for one, other in zip(before, after):
    assert one == other, (one, other)
"""
MADE = """
import atexit, os, warnings
from xml import dom
warnings.filterwarnings("ignore", "made")
os.environ.setdefault("LEFT", "here")
atexit.register(print, "exited")
ran = print("ran")
def __getattr__(name):
    raise AttributeError(name)
"""


class TestHidden(unittest.TestCase):
    def run_after_hiding(self, source):
        with self.subTest(source):
            with tempfile.TemporaryDirectory() as folder:
                with open(f"{folder}/made.py", "w") as file:
                    file.write(MADE)
                os.mkdir(f"{folder}/pack")
                for name, code in (("__init__", "from . import part\ndel part\nimport colorsys"), ("part", "")):
                    with open(f"{folder}/pack/{name}.py", "w") as file:
                        file.write(code)
                os.mkdir(f"{folder}/work")
                path = f"import sys; sys.path[1:1] = {[folder, AGENT]!r}\n"
                command = [sys.executable, "-B", "-S", "-c", path + BEGIN + textwrap.dedent(source)]
                ended = subprocess.run(command, capture_output=True, text=True, cwd=f"{folder}/work")
            self.assertEqual(ended.stderr, "")
            return ended.stdout

    def test_a_module_appears_with_what_its_import_brings(self):
        for source in (
            "import statistics; assert 'decimal' in sys.modules and 'csv' not in sys.modules",
            "import xml; assert not hasattr(xml, 'dom'); import xml.dom; assert xml.dom.__name__ == 'xml.dom'\n"
            "assert 'xml.dom.minidom' not in sys.modules and not hasattr(xml.dom, 'minidom')",
            "import pack; assert not hasattr(pack, 'part') and 'pack.part' in sys.modules",
            "import csv; a = csv; del sys.modules['csv']; import csv; assert csv is not a",
            "import csv; assert csv.__spec__.loader is csv.__loader__ and csv.__spec__.origin == csv.__file__",
        ):
            self.assertEqual(self.run_after_hiding(source), "ran\n")

    def test_its_effects_come_with_it_and_its_code_runs_once(self):
        source = """
            import made
            assert os.environ["LEFT"] == "here" and warnings.filters[0][0] == "ignore"
            assert atexit._ncallbacks() == before[-1] + 1 and sys.modules["xml.dom"]
        """
        self.assertEqual(self.run_after_hiding(source), "ran\nexited\n")

    def test_it_runs_again_if_its_import_would_do_something_else(self):
        for source in (
            "os.environ['LEFT'] = 'other'; import made",
            "import xml; sys.modules['xml.dom'] = xml; import made",
            "sys.path.append(sys.path.pop(1)); import made",
            "sys.meta_path.insert(0, late.CodeFinder({})); import made",
        ):
            self.assertIn("ran\nran\n", self.run_after_hiding(source))

    def test_what_is_found_first_wins(self):
        source = "open('csv.py', 'w').write('mine = 1'); import csv; assert csv.mine == 1"
        self.assertEqual(self.run_after_hiding(source), "ran\n")


if __name__ == "__main__":
    unittest.main()
