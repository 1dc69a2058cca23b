"""Tests that are arguments, with what a function should return for them."""

import contextlib
import copy
import json
import math


def run_calls(report, task, own, entries, scope):
    """Compares what the candidate returns for each input with what it should: a given output, or what the
    task's solution returns."""
    calls, entry = task["calls"], task["entry_point"]
    reference, inputs, outputs, rules = own.get(entry), calls["inputs"], calls["outputs"], calls["rules"]
    loaded = json.loads
    if outputs is not None and rules == "evalplus":
        from hatchery._tagged import Decoder

        def loaded(text):
            return Decoder().value(json.loads(text))

    inputs, outputs = (texts and [loaded(text) for text in texts] for texts in (inputs, outputs))
    if outputs is None and reference is None:
        raise Unsupported(f"the task's solution has no `{entry}`")
    for place in range(len(inputs)):
        report.declare(f"input {place + 1}")
    try:
        function = _asked_for(entries, entry, rules != "evalplus")
    except _FAILURES as error:
        report.interrupt("call", _told(error))
        return
    if outputs is None:
        # A solution that calls itself calls itself, not the candidate.
        scope[entry] = reference
        inputs = [_of_mbpp(calls["id"], given) for given in inputs]
    atol = calls.get("atol")
    for place, given in enumerate(inputs):
        name = f"input {place + 1}"
        given = [_numbered(item) for item in given] if rules == "apps" else given
        try:
            expected = reference(*copy.deepcopy(given)) if outputs is None else outputs[place]
            expected = _expected_by_apps(expected) if rules == "apps" else expected
            if outputs is None and _RULES.get(entry) == "found":
                expected = expected is not None
        except _FAILURES as error:
            raise Unsupported(f"the task's solution raises {_told(error)} for {name}") from None
        try:
            value = function(*given)
            if rules == "evalplus":
                # Once floats were expected, EvalPlus allows differences for the inputs that follow, too.
                atol = 1e-6 if atol == 0 and _is_of_floats(expected) else atol
                # The solution of `find_zero` may be beyond EvalPlus's limit, since sums of floats differ between
                # versions of Python.
                is_own = outputs is None and value == expected
                is_right = is_own or _is_right(entry, given, value, expected, atol)
            else:
                is_right = _is_expected(value, expected, rules == "apps")
        except _FAILURES as error:
            report.put(name, _told(error))
            continue
        report.put(name, None if is_right else _wrong(value, expected, given))


def _asked_for(entries, entry, may_be_method):
    """Returns the function that a task asks for, which may be a method of a class `Solution`."""
    if may_be_method and "Solution" in entries:
        return getattr(entries["Solution"](), entry)
    if entry not in entries:
        raise NameError(f"name '{entry}' is not defined")
    return entries[entry]


def _numbered(value):
    """Returns an object of JSON with numbers as keys as a dictionary that has such keys."""
    with contextlib.suppress(ValueError):
        return {int(key): item for key, item in value.items()} if isinstance(value, dict) else value
    return value


def _expected_by_apps(value):
    if isinstance(value, list):
        return [_numbered(item) for item in value]
    return _numbered(value)


def _is_expected(value, expected, is_apps):
    """Compares by the rules of LiveCodeBench, or of APPS, whose outputs may stand in a list."""
    value = list(value) if isinstance(value, tuple) else value
    if value == expected:
        return True
    if not is_apps or not isinstance(expected, list) or not expected:
        return False
    if value == expected[0]:
        return True
    is_nested = isinstance(value, list) and value and isinstance(value[0], tuple)
    return bool(is_nested) and [list(item) for item in value] == expected[0]


def _wrong(value, expected, given):
    try:
        return f"{_short(value)} instead of {_short(expected)} for {_short(given)}"
    except _FAILURES:
        return "it is wrong"  # and enormous, or an object of the candidate that refuses


def _short(value):
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _is_right(entry, given, value, expected, atol):
    """Compares by EvalPlus's rules: equal, or numbers that are near."""
    rule = _RULES.get(entry)
    if rule == "root":
        at_root = sum(factor * value**power for power, factor in enumerate(given[0]))
        return abs(at_root) <= max(atol, 1e-4)
    if rule == "set":
        is_same = set(value) == set(expected)
    elif rule == "found":
        is_same = expected == (value if type(value) is bool else value is not None)
    else:
        is_same = value == expected or entry in _OTHERS and _OTHERS[entry](value, atol, *given)
    if is_same or atol == 0:
        return bool(is_same)
    return type(value) is type(expected) and _is_near(value, expected, atol)


_RULES = {"find_zero": "root", "check_str": "found", "text_match_three": "found", "text_starta_endb": "found"}
_RULES |= dict.fromkeys(
    (
        "similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
        "intersection_array", "find_dissimilar", "Diff",
    ),
    "set",
)

# What EvalPlus accepts beside what the solution returns.
_OTHERS = {
    "are_equivalent": lambda *_: True,
    "sum_div": lambda value, *_: value == 0,
    "surface_Area": lambda value, atol, base, height: abs(value - _pyramid(base, height)) <= atol,
    "digit_distance_nums": lambda value, _, one, other: value == _digit_distance(str(one), str(other)),
}


def _pyramid(base, height):
    return round(base * base + 2 * base * math.hypot(base / 2, height))


def _digit_distance(one, other):
    width = max(len(one), len(other))
    return sum(abs(int(a) - int(b)) for a, b in zip(one.zfill(width), other.zfill(width)))


def _is_of_floats(value):
    """Returns whether EvalPlus takes a value as one of floats: lists in lists aren't."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(item, float) for item in value)
    kind = str(getattr(value, "dtype", ""))
    return isinstance(value, float) or kind in ("float32", "float64")


def _is_near(value, expected, atol):
    if hasattr(expected, "tolist"):
        value, expected = value.tolist(), expected.tolist()
    if isinstance(expected, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(expected):
            return False
        return all(_is_near(one, other, atol) for one, other in zip(value, expected))
    if not all(isinstance(one, (int, float, complex)) or hasattr(one, "dtype") for one in (value, expected)):
        return False
    return value == expected or abs(value - expected) <= atol + 1e-7 * abs(expected)


# The arguments of MBPP+ that aren't of JSON's types, by the numbers of tasks: a pattern for each argument, of
# which the last is also for those that follow. `(` makes a list a tuple whose items have the pattern behind
# it, and `[` keeps the list; `{` makes a set, `c` a complex number, `f` a float, `d` the values of a
# dictionary tuples, and `.` leaves what it is.
_PATTERNS = {
    "(": (2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726, 740, 744, 809),
    "[(": (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780),
    "[( .": (75, 413, 444, 753),
    ". (": (106, 750),
    "( .": (250, 307, 405, 446, 617, 720, 763, 808),
    "((": (259, 401, 445),
    "(?": (278,),
    "[{": (115,),
    "f c": (124,),
    "c": (252,),
    "d .": (722,),
    "*": (580, 615, 791),
}
_PATTERN_OF = {number: pattern for pattern, numbers in _PATTERNS.items() for number in numbers}


def _of_mbpp(task, arguments):
    """Returns the arguments of a task of MBPP+ with the types that they have there."""
    name, _, number = task.partition("/")
    pattern = _PATTERN_OF.get(int(number)) if name == "Mbpp" and number.isdecimal() else None
    if pattern is None:
        return arguments
    each = pattern.split()
    each += each[-1:] * len(arguments)
    return [_typed(value, kind) for value, kind in zip(arguments, each)]


def _typed(value, kind):
    if kind == "*":
        return tuple(_typed(item, kind) for item in value) if isinstance(value, list) else value
    if kind in ("", "."):
        return value
    first, rest = kind[0], kind[1:]
    if first == "?":
        return tuple(value) if isinstance(value, list) else value
    if first == "[":
        return [_typed(item, rest) for item in value]
    if first == "(":
        return tuple(_typed(item, rest) for item in value)
    if first == "{":
        return set(value) if isinstance(value, list) and value else {}
    if first == "d":
        return {key: tuple(item) for key, item in value.items()}
    return complex(value) if first == "c" else float(value)
