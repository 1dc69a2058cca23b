"""Runs untrusted Python in sandboxes: CPython compiled to WebAssembly, many programs at once.

```
from hatchery_sandbox import Pool

with Pool(preload=["numpy"]) as pool:
    outcome = pool.run("import numpy as np; np.arange(5).mean()")
    print(outcome.value)
```

`Pool` and `AsyncPool` run programs, `Session` keeps a state from job to job, and `Executor` calls
functions. An `Outcome` says how a job ended; exceptions are of one of three families, `ProgramError`,
`LimitError` and `PoolError`.
"""

from hatchery_sandbox._async import AsyncFuture, AsyncPool, AsyncSession
from hatchery_sandbox._config import SessionSettings
from hatchery_sandbox._describe import describe
from hatchery_sandbox._errors import (
    ConnectionLostError,
    HatcheryError,
    HostError,
    InvalidJobError,
    LimitError,
    MemoryLimitError,
    PoolClosedError,
    PoolError,
    ProgramError,
    ProgramExitedError,
    ProgramRaisedError,
    ProgramTamperedError,
    RefusedError,
    SandboxFailedError,
    StartError,
    TimeLimitError,
    UnknownSessionError,
    UnsupportedValueError,
)
from hatchery_sandbox._events import (
    Display,
    Event,
    EventLog,
    FileChanged,
    HostCall,
    Output,
    Retried,
    Started,
)
from hatchery_sandbox._executor import Executor
from hatchery_sandbox._explore import Explored
from hatchery_sandbox._functions import HostFunction
from hatchery_sandbox._future import Future
from hatchery_sandbox._job import Job, JobOptions, Limits
from hatchery_sandbox._outcome import ChangedFile, LimitHit, Outcome, ProgramException, Request, Usage
from hatchery_sandbox._pool import Pool
from hatchery_sandbox._rewards import rewards
from hatchery_sandbox._session import Session
from hatchery_sandbox._source import UnsendableError

__all__ = [
    "AsyncFuture",
    "AsyncPool",
    "AsyncSession",
    "ChangedFile",
    "ConnectionLostError",
    "Display",
    "Event",
    "EventLog",
    "Executor",
    "Explored",
    "FileChanged",
    "Future",
    "HatcheryError",
    "HostCall",
    "HostError",
    "HostFunction",
    "InvalidJobError",
    "Job",
    "JobOptions",
    "LimitError",
    "LimitHit",
    "Limits",
    "MemoryLimitError",
    "Outcome",
    "Output",
    "Pool",
    "PoolClosedError",
    "PoolError",
    "ProgramError",
    "ProgramException",
    "ProgramExitedError",
    "ProgramRaisedError",
    "ProgramTamperedError",
    "RefusedError",
    "Request",
    "Retried",
    "SandboxFailedError",
    "Session",
    "SessionSettings",
    "StartError",
    "Started",
    "TimeLimitError",
    "UnsendableError",
    "UnknownSessionError",
    "UnsupportedValueError",
    "Usage",
    "describe",
    "rewards",
]

__version__ = "0.1.0"
