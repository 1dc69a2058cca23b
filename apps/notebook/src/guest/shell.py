"""The shell that `get_ipython()` returns: it runs a notebook's cells, and records them."""

import ast
import os
import sys

from hatchery_notebook import commands, inspection, magics, showing
from hatchery_notebook.errors import UsageError
from hatchery_notebook.execution import namespace, parse, run_shown
from hatchery_notebook.formatting import DisplayFormatter, Figures
from hatchery_notebook.reloading import Reloader
from hatchery_notebook.translation import translate

EVENTS = ("pre_execute", "pre_run_cell", "post_execute", "post_run_cell", "shell_initialized")


class Events:
    """Calls the functions registered for the start or end of a cell."""

    def __init__(self):
        self.callbacks = {event: [] for event in EVENTS}

    def register(self, event, function):
        if function not in self.callbacks[event]:
            self.callbacks[event].append(function)

    def unregister(self, event, function):
        self.callbacks[event].remove(function)

    def trigger(self, event, *arguments):
        for function in list(self.callbacks[event]):
            try:
                function(*arguments)
            except Exception as error:
                print(f"Error in callback {function} (for {event}): {error!r}", file=sys.stderr)


class ExecutionInfo:
    """The argument of functions registered for `pre_run_cell`."""

    def __init__(self, raw_cell, store_history=True, silent=False):
        self.raw_cell, self.store_history, self.silent = raw_cell, store_history, silent
        self.shell_futures, self.cell_id = True, None


class ExecutionResult:
    """The result of `run_cell`, also passed to functions registered for `post_run_cell`."""

    def __init__(self, info, execution_count):
        self.info, self.execution_count = info, execution_count
        self.error_before_exec = self.error_in_exec = self.result = None

    @property
    def success(self):
        return self.error_before_exec is None and self.error_in_exec is None

    def raise_error(self):
        if not self.success:
            raise self.error_before_exec or self.error_in_exec


class DisplayPublisher:
    """Publishes displays for a real IPython, whose `display` and `clear_output` ask for it."""

    is_publishing = False

    def publish(self, data, metadata=None, source=None, **options):
        showing.publish_display_data(data, metadata, **options)

    def clear_output(self, wait=False):
        showing.clear_output(wait)


class InteractiveShell:
    """An IPython shell, as far as a sandbox has use for one."""

    ast_node_interactivity = "last_expr"
    colors = "nocolor"
    kernel = None

    def __init__(self):
        self.config = {}
        self.events = Events()
        self.display_formatter, self.display_pub = DisplayFormatter(), DisplayPublisher()
        self.figures = Figures()
        self.figures.register(self.display_formatter.formatters)
        self.ast_transformers = []
        self.execution_count = 0
        self.history, self.results, self.folders = [""], {}, [os.getcwd()]
        # The latest results, newest first, under their names in the notebook.
        self.last = {"_": "", "__": "", "___": ""}
        # The result of the running cell, whether to suppress its display, and whether to record it.
        self.result, self.is_quiet, self.stores_history = None, False, True
        self.hidden, self.reloader = {}, Reloader()
        self.line_magics, self.cell_magics = magics.line_magics(self), magics.cell_magics(self)
        self.begin()

    @classmethod
    def instance(cls, *arguments, **options):
        return get_ipython()

    @classmethod
    def initialized(cls):
        return True

    def begin(self):
        """Defines the names that every notebook has."""
        names = {
            "In": self.history, "Out": self.results, "_ih": self.history, "_oh": self.results,
            "_dh": self.folders, "get_ipython": get_ipython, **self.last,
            "_i": "", "_ii": "", "_iii": "",
        }
        self.hidden |= {name: value for name, value in names.items() if not name.startswith("_")}
        namespace().update(names)

    @property
    def user_ns(self):
        return namespace()

    @property
    def user_module(self):
        return sys.modules["__main__"]

    # Running code.

    def run_notebook_cell(self, written, number, stores_history=True, is_silent=False):
        """Runs a cell, given its source as written. A silent one shows no result, and as in IPython
        only functions registered for `pre_execute` and `post_execute` learn of it."""
        number = number or self.execution_count + 1
        source, is_quiet = translate(written)
        self.reloader.before_cell()
        self.stores_history = stores_history
        if stores_history:
            self.remember_source(written, number)
        info = ExecutionInfo(written, stores_history, is_silent)
        result = ExecutionResult(info, number)
        self.result, self.is_quiet = None, is_quiet or is_silent
        self.events.trigger("pre_execute")
        if not is_silent:
            self.events.trigger("pre_run_cell", info)
        try:
            self.run_source(source, f"In[{number}]")
        except BaseException as error:
            result.error_in_exec = error
            showing.captures.clear()
            if showing.failure is not None:
                showing.fail(showing.failure)
            showing.send({}, "failed")
            # The cell has its error, so further displays only print theirs.
            showing.failure = error
            raise
        finally:
            result.result = self.result
            if not isinstance(result.error_in_exec, KeyboardInterrupt):
                self.events.trigger("post_execute")
                showing.flush_figures()
                if not is_silent:
                    self.events.trigger("post_run_cell", result)
            failure, showing.failure = showing.failure, None
        if failure is not None:
            raise failure

    def run_source(self, source, filename="<cell>"):
        tree = parse(source, filename)
        for transformer in self.ast_transformers:
            tree = ast.fix_missing_locations(transformer.visit(tree))
        # Programs set it on the class, which may be that of a real IPython.
        interactivity = getattr(real_class, "ast_node_interactivity", None)
        if not isinstance(interactivity, str):
            interactivity = self.ast_node_interactivity
        magics.check_interactivity(interactivity)
        run_shown(tree, filename, interactivity)

    def run_cell(self, raw_cell, store_history=False, silent=False, **options):
        """Runs a source from within a cell."""
        result = ExecutionResult(ExecutionInfo(raw_cell), self.execution_count)
        try:
            self.run_source(raw_cell)
        except Exception as error:
            import traceback

            result.error_in_exec = error
            traceback.print_exc()
        result.result = self.result
        return result

    # History and results.

    def remember_source(self, written, number):
        self.execution_count = number
        self.history += [""] * (number - len(self.history))
        self.history.append(written)
        names = namespace()
        names["_iii"], names["_ii"] = names.get("_ii", ""), names.get("_i", "")
        names["_i"] = self.history[-2]
        names[f"_i{number}"] = written

    def displayhook(self, value):
        """Displays the value of an expression, and records it."""
        if value is None or self.is_quiet:
            return
        forms, notes = self.display_formatter.format(value)
        self.remember_result(value)
        if forms:
            showing.send(forms, "result", notes)

    def remember_result(self, value):
        self.result = value
        if value is self.results or not self.stores_history:
            return
        names, number = namespace(), self.execution_count
        # A program may define such names itself.
        if all(names.get(name) is self.last[name] for name in self.last if name in names):
            self.last = {"_": value, "__": self.last["_"], "___": self.last["__"]}
            names.update(self.last)
        names[f"_{number}"] = self.results[number] = value

    def reset(self, new_session=True, aggressive=False):
        """Deletes the program's variables and results."""
        names = namespace()
        for number in self.results:
            names.pop(f"_{number}", None)
        self.results.clear()
        inspection.reset(self.hidden, "")
        self.last = dict.fromkeys(self.last, "")
        for name in self.last:
            names.pop(name, None)

    # Magics and commands.

    def magic(self, line):
        name, _, rest = line.partition(" ")
        return self.run_line_magic(name.lstrip("%"), rest.strip())

    def run_line_magic(self, magic_name, line, _stack_depth=1):
        if magic_name.startswith("%"):
            raise UsageError(f"`%{magic_name}` must be the first line of its cell")
        function = self.line_magics.get(magic_name)
        if function is None:
            raise magics.unknown(self, magic_name, is_cell=False)
        return function(line)

    def run_cell_magic(self, magic_name, line, cell):
        function = self.cell_magics.get(magic_name)
        if function is None:
            raise magics.unknown(self, magic_name, is_cell=True)
        return function(line, cell)

    def find_line_magic(self, name):
        return self.line_magics.get(name)

    def find_cell_magic(self, name):
        return self.cell_magics.get(name)

    def find_magic(self, name, magic_kind="line"):
        return (self.line_magics if magic_kind == "line" else self.cell_magics).get(name)

    def register_magic_function(self, func, magic_kind="line", magic_name=None):
        name = magic_name or func.__name__
        if magic_kind in ("line", "line_cell"):
            self.line_magics[name] = func
        if magic_kind in ("cell", "line_cell"):
            self.cell_magics[name] = func

    def register_magics(self, *groups):
        """Registers the magics of objects, or of classes to instantiate with this shell."""
        for group in groups:
            if isinstance(group, type):
                group = group(self)
            for name in dir(type(group)):
                function = getattr(type(group), name)
                for kind, given in getattr(function, "_hatchery_magics", ()):
                    self.register_magic_function(getattr(group, name), kind, given)

    def system(self, command):
        return commands.system(command)

    system_piped = system_raw = system

    def getoutput(self, command, split=True, depth=0):
        return commands.getoutput(command, split)

    # Called by libraries.

    def push(self, variables, interactive=True):
        namespace().update(variables)

    def ev(self, expression):
        return eval(expression, namespace())

    def ex(self, source):
        exec(source, namespace())

    def enable_gui(self, gui=None):
        pass

    def enable_matplotlib(self, gui=None):
        return None, "inline"

    def set_custom_exc(self, kinds, handler):
        pass

    def set_next_input(self, text, replace=False):
        pass

    def showtraceback(self, *arguments, **options):
        import traceback

        traceback.print_exc()


class ZMQInteractiveShell(InteractiveShell):
    """The shell of notebooks, by which libraries recognize one."""


InteractiveShell.__module__ = "IPython.core.interactiveshell"
ZMQInteractiveShell.__module__ = "ipykernel.zmqshell"
shell = None
# The shell's class of a real IPython, if a program has imported one.
real_class = None


def get_ipython():
    """Returns the shell of this notebook."""
    return shell


def start():
    """Creates the shell and installs it."""
    global shell
    shell = ZMQInteractiveShell()
    showing.formatter = shell.display_formatter
    sys.displayhook = shell.displayhook
    return shell
