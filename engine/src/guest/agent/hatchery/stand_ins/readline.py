"""A history of lines and a completer, which no terminal asks for."""

import string

backend = "readline"
_history = []
_completer, _delimiters, _length = None, string.whitespace[:2] + "`~!@#$%^&*()-=+[{]}\\|;:'\",<>/?", -1


def _ignored(*args):
    return None


parse_and_bind = read_init_file = insert_text = redisplay = set_auto_history = _ignored
set_startup_hook = set_pre_input_hook = set_completion_display_matches_hook = _ignored


def add_history(line, /):
    _history.append(line)


def clear_history():
    _history.clear()


def get_history_item(index, /):
    return _history[index - 1] if 0 < index <= len(_history) else None


def get_current_history_length():
    return len(_history)


def read_history_file(filename=None, /):
    with open(filename or "~/.history") as file:
        _history.extend(file.read().splitlines())


def write_history_file(filename=None, /):
    lines = _history if _length < 0 else _history[len(_history) - min(_length, len(_history)):]
    with open(filename or "~/.history", "w") as file:
        file.writelines(f"{line}\n" for line in lines)


def set_history_length(length, /):
    global _length
    _length = length


def get_history_length():
    return _length


def set_completer(function=None, /):
    global _completer
    _completer = function


def get_completer():
    return _completer


def set_completer_delims(string, /):
    global _delimiters
    _delimiters = string


def get_completer_delims():
    return _delimiters


def get_line_buffer():
    return ""


def get_begidx():
    return 0


get_endidx = get_completion_type = get_begidx
