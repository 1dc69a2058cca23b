"""Public sets of programs with a known right outcome, read from the files that a user has.

A line's fields decide its form, as in `hatchery grade`. Forms that the grader doesn't read become
its plain one. No data of a set is part of this repository.
"""

import collections
import gzip
import json
import re

# `line` is what `hatchery grade` reads, `program` the solution with its tests for one process, and
# `runner` what Python runs it by.
Task = collections.namedtuple("Task", "id line program runner")

ALONE, UNITTEST, PYTEST = (), ("-m", "unittest", "-q"), ("-m", "pytest", "-q")


def read(path):
    """Return the tasks of a file or folder of a set. Ids that occur again get a number."""
    numbers = collections.Counter()
    for task in tasks(path):
        numbers[task.id] += 1
        again = f"/{numbers[task.id]}" if numbers[task.id] > 1 else ""
        yield task._replace(id=task.id + again)


def tasks(path):
    if (path / "correct_python_programs").is_dir():
        return quixbugs(path)
    if path.is_dir():
        files = [file for end in ("jsonl", "jsonl.gz") for file in path.rglob(f"*.{end}")]
        return [task for file in sorted(files) for task in tasks(file)]
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        text = file.read()
    if text.startswith("["):
        lines = json.loads(text)
    else:
        lines = map(json.loads, filter(str.strip, text.split("\n")))
    return [task for line in lines for task in form(line)]


def form(line):
    """Return the tasks of a line."""
    for field, reader in READERS.items():
        if field in line:
            return reader(line)
    raise ValueError(f"a line with the fields {', '.join(line)} is of no form that is known")


def plain(id, solution, tests):
    line = {"task_id": id, "solution": solution, "tests": tests}
    of_pytest = PYTEST if "import pytest" in tests else ALONE
    runner = UNITTEST if "unittest.TestCase" in tests else of_pytest
    return Task(id, line, f"{solution}\n{tests}\n", runner)


def human_eval(line):
    program = line["prompt"] + line["canonical_solution"]
    tests = f"{line['test']}\ncheck({line['entry_point']})\n"
    return [Task(line["task_id"], line, f"{program}\n{tests}", ALONE)]


def mbpp(line):
    setup = [*line.get("test_imports", []), line.get("test_setup_code", "")]
    program = "\n".join([*setup, line["code"], *line["test_list"]])
    return [Task(str(line["task_id"]), line, program, ALONE)]


def big_code_bench(line):
    """The form of the release, or of the annotations, whose prompt has another name."""
    line = {"complete_prompt": line["prompt"], **line} if "prompt" in line else line
    solution = line["complete_prompt"] + line["canonical_solution"]
    return [Task(line["task_id"], line, f"{solution}\n{line['test']}\n", UNITTEST)]


def class_eval(line):
    return [plain(line["task_id"], line["solution_code"], line["test"])]


def crux_eval(line):
    return [plain(line["id"], line["code"], f"assert f({line['input']}) == {line['output']}")]


def ds_1000(line):
    """What judges a snippet runs it itself, so both are the solution."""
    checks = [name for name in ("test_execution", "test_string") if name in line["code_context"]]
    solved = [f"    {name}({line['reference_code']!r})" for name in checks]
    solution = "\n".join([line["code_context"], "def solved():", *solved, "    return True"])
    id = f"DS-1000/{line['metadata']['problem_id']}"
    return [plain(id, solution, "assert solved()")]


def odex(line):
    """What stands before `check` is for the solution too: both share a namespace there."""
    before, check, after = line["test_start"].rpartition("def check(")
    given = {
        "task_id": f"ODEX/{line['task_id']}",
        "prompt": f"{before}\n{line['prompt']}",
        "canonical_solution": f"{line['canonical_solution']}{line['suffix']}\n",
        "test": check + after + "".join(line["test"]),
        "entry_point": line["entry_point"],
    }
    return human_eval(given)


def p3(line):
    """Puzzles: a solution returns what `sat` accepts. Some have several, some none."""
    return [
        plain(
            f"{line['name']}/{number}",
            f"from typing import *\n{line['sol_header']}\n{body}\n",
            f"from typing import *\n{line['sat']}\nassert sat(sol()) is True\n",
        )
        for number, body in enumerate(line["sol_bodies"])
    ]


# By the first field that a line has.
READERS = {
    "test_list": mbpp,
    "complete_prompt": big_code_bench,
    "prompt_wo_doc": big_code_bench,
    "test_start": odex,
    "canonical_solution": human_eval,
    "solution_code": class_eval,
    "code_context": ds_1000,
    "sol_bodies": p3,
    "code": crux_eval,
}


def quixbugs(folder):
    """The folder of QuixBugs, whose tests are for pytest and read their cases from files."""
    programs, tasks = folder / "correct_python_programs", []
    for file in sorted((folder / "python_testcases").glob("test_*.py")):
        name = file.stem.removeprefix("test_")
        cases = folder / "json_testcases" / f"{name}.json"
        given = [json.loads(case) for case in cases.open()] if cases.exists() else []
        # What it imports last is the program.
        tests = file.read_text().rpartition(f"import {name}\n")[2]
        tests = re.sub(r"load_json_testcases\(.*\)", lambda _: repr(given), tests)
        tests = f"import pytest\n{tests.replace('pytest.run_slow', 'False')}"
        nodes = [programs / "node.py"] if "Node(" in tests else []
        solution = "".join(part.read_text() for part in [*nodes, programs / f"{name}.py"])
        tasks.append(plain(f"QuixBugs/{name}", solution, tests))
    return tasks
