"""What a process is started with: arguments, variables, standard input, the place of its file.

In a session they stay as a turn leaves them, until a job is given others.
"""

import os
import sys

from hatchery._host import bridge
from hatchery._streams import is_as_opened, open_stdin

# Where a program with a name is, as far as it can tell.
WORKSPACE = "/workspace"
# The file that stands for a program without one.
TEXT_FILE = "main.py"
# The folder of a program's script, if the program came from a file.
SCRIPT_FOLDER = "/script"


class Surroundings:
    def __init__(self, environment):
        self.turns = 0
        self._environment = environment
        # The variables that were set for the last job alone, with what the environment had before.
        self._lent = {}
        # The arguments, the file and standard input as a job was given them last.
        self._argv = self._file = self._given_stdin = None
        # Standard input as it was opened last, and the host's number for its state then; `None` if
        # it was opened in advance, so that no run has had it.
        self._stdin = self._stdin_number = None

    def begin(self, main, filename=None, args=(), env=None, given=None):
        """Sets up a turn in the module `main`; returns the program's name."""
        self.turns += 1
        names = main.__dict__
        if self._file is not None and names.get("__file__") is self._file:
            del names["__file__"]
        # Names such as `<input-3>` are no files.
        name = "" if filename is None or filename[:1] == "<" else filename
        self._file = None
        # A program that is given as text is as if it were in a file; a session's turns are not.
        place = TEXT_FILE if filename in (None, "-") and not bridge.is_session else name
        if place not in ("", "-"):
            # Absolute, as in CPython.
            self._file = names["__file__"] = place if place[:1] == "/" else f"{WORKSPACE}/{place}"
        argv = [name, *args]
        if argv != self._argv:
            self._argv = argv
            sys.argv = argv[:]
        os.environ = self._environment
        if self._lent or env:
            self._lend(env or {})
        if given is not None:
            self._place(names, given)
        return filename or ("<job>" if self.turns == 1 else f"<job {self.turns}>")

    def restart(self):
        """Forgets the turns so far. Replaces the last one's input now, not when the next begins."""
        self.turns = 0
        sys.stdin = sys.__stdin__ = self._stdin = self._given_stdin = open_stdin()
        self._stdin_number = None

    def _lend(self, variables):
        """Sets variables for this job, and takes back the last job's."""
        environment = self._environment
        for name, (given, before) in self._lent.items():
            if environment.get(name) == given:
                if before is None:
                    del environment[name]
                else:
                    environment[name] = before
        self._lent = {name: (value, environment.get(name)) for name, value in variables.items()}
        environment.update(variables)

    def _place(self, names, given):
        """Sets the program's script folder and working directory."""
        script = given.get("script")
        if script is not None:
            self._file = names["__file__"] = f"{SCRIPT_FOLDER}/{script}"
            if sys.path[:1] != [SCRIPT_FOLDER]:
                sys.path.insert(0, SCRIPT_FOLDER)
            # In a session, it may now be another script's folder.
            for path in list(sys.path_importer_cache):
                if f"{path}/".startswith(f"{SCRIPT_FOLDER}/"):
                    del sys.path_importer_cache[path]
        if "workdir" in given:
            os.chdir(given["workdir"])

    def put_stdin(self, number, is_given, given):
        """Sets standard input, at its beginning.

        A reader that saw the end of the last run's input would stay there, so it is opened again
        unless the host's number says that nothing was read since. Opening writes to new pages.
        """
        streams = sys.__dict__
        if self.turns > 1 and not is_given and streams.get("stdin") is not self._given_stdin:
            return  # what an earlier turn of the session put there
        if given is not None and "stdin" in given:
            from hatchery._stdin import open_lines

            stdin = self._given_stdin = open_lines(bridge.call, given["stdin"])
            streams["stdin"] = streams["__stdin__"] = stdin
            return
        if self._stdin is None or self._stdin_number is not None:
            is_unread = number and number == self._stdin_number
            if not is_unread or not is_as_opened(self._stdin):
                self._stdin = open_stdin()
        if self._stdin_number != number:
            self._stdin_number = number
        if streams.get("stdin") is not self._stdin:
            streams["stdin"] = streams["__stdin__"] = self._stdin
        if self._given_stdin is not self._stdin:
            self._given_stdin = self._stdin
