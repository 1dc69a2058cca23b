"""Jobs and their options."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

from hatchery_sandbox import _values
from hatchery_sandbox._frames import Message
from hatchery_sandbox._functions import Functions
from hatchery_sandbox._tagged import is_plain

if TYPE_CHECKING:
    from typing_extensions import Unpack

Priority = Literal["high", "normal", "low"]
Contents = Union[str, bytes, "os.PathLike[str]"]


@dataclass(frozen=True)
class Limits:
    """Limits on what a program may use. Times are in seconds and sizes in bytes; `None` leaves a
    limit as it is: as the pool has it, or at the pool's start as Hatchery has it.
    """

    cpu_time: float | None = None
    """CPU time, which doesn't depend on how busy the machine is. Default: no limit of its own."""
    grace: float | None = None
    """How long a program may continue after it was interrupted. Default: 1 s."""
    memory: int | None = None
    """Memory, CPython's own included: 32 MiB to 4 GiB. Default: 1 GiB."""
    output: int | None = None
    """Standard output, and as much standard error; the rest is dropped. Default: 512 KiB."""
    stop_at_output_limit: bool | None = None
    """Whether a program that reaches the limit on output is ended. Default: no."""
    file_bytes: int | None = None
    """All files together, those that it was given included. Default: 256 MiB."""
    file_count: int | None = None
    """Number of files, folders and links. Default: 10,000."""
    open_files: int | None = None
    """Number of files that are open at once. Default: 256."""
    threads: int | None = None
    """Number of threads besides the main one, at once, in a build with threads. Default: 64."""
    network_bytes: int | None = None
    """Data sent and received over connections. Default: 64 MiB."""
    host_calls: int | None = None
    """Number of calls to the host, such as reads and clock readings. Default: 100,000,000."""
    function_calls: int | None = None
    """Number of calls of host functions. Default: 10,000."""
    functions_in_flight: int | None = None
    """Number of calls of host functions at once. Default: 1,000."""
    function_argument_bytes: int | None = None
    """One call of a host function as JSON. Default: 1 MiB."""
    function_result_bytes: int | None = None
    """The result of one host function as JSON. Default: 16 MiB."""
    source: int | None = None
    """The program's source. Default: 1 MiB."""
    result: int | None = None
    """The value as JSON, its repr, its other forms, and each text of an exception. Default: 1 MiB."""
    result_data: int | None = None
    """The value if JSON can't hold it, such as an array or a frame. Default: 64 MiB."""
    display_bytes: int | None = None
    """All displays together; the rest is dropped. Default: 16 MiB."""
    display_count: int | None = None
    """Number of displays; the rest is dropped. Default: 1,000."""

    def given(self) -> dict[str, Any]:
        """Returns those that are given."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class JobOptions(TypedDict, total=False):
    """Inputs and limits of a job. Everything is optional."""

    variables: Mapping[str, object]
    """Variables that the program finds: numbers, texts, lists, tuples, sets, dictionaries, dates,
    bytes, arrays of NumPy, frames and series of pandas, and all of these within each other."""
    files: Mapping[str, Contents]
    """Files in the working directory: texts, bytes, or a path of this machine to read from."""
    args: Sequence[str]
    """What `sys.argv[1:]` is."""
    stdin: str | bytes
    """Standard input, in UTF-8."""
    env: Mapping[str, str]
    """Variables of the environment."""
    timeout: float
    """Seconds that the program may take. Default: the pool's, which is 30."""
    cpu_time: float
    """Seconds of CPU time that the program may take."""
    limits: Limits
    """Other limits, in place of the pool's."""
    seed: int
    """Makes the run reproducible: its clock and all random numbers come from this number."""
    tenant: str
    """Whose job it is. Tenants share the CPU time by their weights."""
    priority: Priority
    """How urgent it is among the jobs of its tenant."""
    deadline: float
    """Seconds from now until its result is due, time in the queue included."""
    python: str
    """The name of the Python build that runs it, of those that the pool has. Default: the session's,
    or else the default one. A session never changes its build."""
    egress: Sequence[str] | str
    """The HTTP requests that it may make, out of those that the pool allows, such as
    `GET https://api.example.com/v1/*`. Default: all that the pool allows."""
    functions: Functions
    """Functions of this process that the program can call, beside those of its pool."""
    contents: bool
    """Whether the outcome has the contents of files that the program changed. Default: yes."""


_NAMES = frozenset(JobOptions.__annotations__)


class Job:
    """A program, a command of the shell or a call of a function, with its inputs and limits.

    ```
    Job("x * 2", variables={"x": 21})
    Job.shell("sort names.txt | uniq -c", files={"names.txt": "b\\na\\n"})
    Job.call("math:gcd", 12, 18)
    ```
    """

    __slots__ = ("code", "command", "function", "options")

    def __init__(self, code: str, **options: Unpack[JobOptions]) -> None:
        self.code: str | None = code
        self.command: str | None = None
        self.function: Message | None = None
        self.options = options

    @classmethod
    def shell(cls, command: str, **options: Unpack[JobOptions]) -> Job:
        """Returns a job that runs a command of the sandbox's shell, which docs/guide/shell.md
        describes. The outcome's `exit_code` is the command's, and what it changes in files stays."""
        job = cls("", **options)
        job.code, job.command = None, command
        return job

    @classmethod
    def call(cls, function: str, /, *args: object, **keywords: object) -> Job:
        """Returns a job that calls a function of a module, `module:function`. Arguments and its
        result are what variables can be; `with_options` gives it options."""
        job = cls("")
        job.code = None
        job.function = {"function": function, "args": args, "keywords": keywords}
        return job

    def with_options(self, **options: Unpack[JobOptions]) -> Job:
        """Returns the same job with further options."""
        job = Job("")
        job.code, job.command, job.function = self.code, self.command, self.function
        job.options = {**self.options, **options}
        return job

    def __repr__(self) -> str:
        what = self.function["function"] if self.function else self.command or self.code
        return f"<Job {what!r:.60}>"


@dataclass
class Prepared:
    """A job as the message that requests it."""

    message: Message
    attachments: list[bytes]
    functions: Functions | None


def prepare(job: str | Job, options: JobOptions, session: str | None) -> Prepared:
    """Returns the message for a job.

    Raises:
        TypeError: There is no such option.
        ValueError: The value of an option can't be sent.
    """
    if isinstance(job, Job):
        options = {**job.options, **options}
        wire: Message = {"code": job.code}
        if job.function is not None:
            wire = {"call": _call(job.function)}
        elif job.command is not None:
            wire = {"shell": job.command}
    elif isinstance(job, str):
        wire = {"code": job}
    else:
        raise TypeError(f"a job is a program as text or a Job, not {type(job).__name__}")
    message: Message = {"type": "run", "job": wire, "contents": options.get("contents", True)}
    if session is not None:
        message["session"] = session
    if not options:
        return Prepared(message, [], None)
    if unknown := options.keys() - _NAMES:
        raise TypeError(f"a job has no option `{min(unknown)}`; it has {', '.join(sorted(_NAMES))}")
    for name in ("variables", "files", "env"):
        given = options.get(name)
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"{name} must be a dictionary, not {type(given).__name__}")
    attachments = _values.Attachments()
    if variables := options.get("variables"):
        wire["variables"], data = _values.split(variables, attachments)
        if data:
            message["data"] = data
    if files := options.get("files"):
        message["files"] = {
            path: attachments.add(_contents(path, contents)) for path, contents in files.items()
        }
    _add_settings(wire, options)
    return Prepared(message, attachments.pieces, options.get("functions"))


def _call(function: Message) -> Message:
    if is_plain([*function["args"], *function["keywords"].values()]):
        return function
    args = [
        _values.tagged(f"the argument {at + 1}", value) for at, value in enumerate(function["args"])
    ]
    keywords = {
        name: _values.tagged(f"the argument `{name}`", value)
        for name, value in function["keywords"].items()
    }
    return {**function, "args": args, "keywords": keywords, "tagged": True}


def _add_settings(wire: Message, options: JobOptions) -> None:
    if args := options.get("args"):
        if isinstance(args, (str, bytes)) or not isinstance(args, Iterable):
            raise TypeError(f"args must be a list of texts, not {type(args).__name__}")
        wire["args"] = list(args)
    if env := options.get("env"):
        wire["env"] = dict(env)
    stdin = options.get("stdin")
    if stdin is not None:
        wire["stdin"] = stdin if isinstance(stdin, str) else _text(stdin)
    if (egress := options.get("egress")) is not None:
        wire["egress"] = [egress] if isinstance(egress, str) else list(egress)
    limits = given_limits(options.get("limits"))
    if options.get("cpu_time") is not None:
        limits["cpu_time"] = options["cpu_time"]
    if limits:
        wire["limits"] = limits
    if options.get("seed") is not None:
        wire["deterministic"] = {"seed": options["seed"]}
    for name in ("timeout", "tenant", "priority", "deadline", "python"):
        if options.get(name) is not None:
            wire[name] = options[name]


def given_limits(limits: Limits | None) -> dict[str, Any]:
    """Returns the limits that are given."""
    if limits is None:
        return {}
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be a Limits(…), not {type(limits).__name__}")
    return limits.given()


def _contents(path: str, contents: Contents) -> bytes:
    if isinstance(contents, str):
        return contents.encode()
    if isinstance(contents, os.PathLike):
        with open(contents, "rb") as file:
            return file.read()
    return _bytes(f"the file `{path}`", contents)


def _bytes(what: str, given: object) -> bytes:
    # `bytes` makes zeros of a number.
    if not isinstance(given, (bytes, bytearray, memoryview)):
        raise TypeError(f"{what} must be text or bytes, not {type(given).__name__}")
    return bytes(given)


def _text(stdin: bytes) -> str:
    try:
        return _bytes("standard input", stdin).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input must be text in UTF-8: {error}; pass a file") from None
