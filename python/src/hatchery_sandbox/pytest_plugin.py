"""Fixtures of pytest: `sandbox_pool` for all tests, and `sandbox`, a session for each.

```
def test_a_program(sandbox):
    assert sandbox.run("6 * 7").value == 42
```

Options of the pool are those of a fixture `sandbox_options` that a `conftest.py` may define: a
dictionary of keyword arguments of `Pool`, with the scope of the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hatchery_sandbox._pool import Pool
    from hatchery_sandbox._session import Session


@pytest.fixture(scope="session")
def sandbox_options() -> dict[str, Any]:
    """Options of the pool; none."""
    return {}


@pytest.fixture(scope="session")
def sandbox_pool(sandbox_options: dict[str, Any]) -> Iterator[Pool]:
    """A pool that ends with the last test."""
    from hatchery_sandbox._pool import Pool

    pool = Pool(**sandbox_options).start()
    yield pool
    pool.close()


@pytest.fixture
def sandbox(sandbox_pool: Pool) -> Iterator[Session]:
    """A session of its own for each test."""
    with sandbox_pool.session() as session:
        yield session
