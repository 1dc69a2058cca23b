"""One pool for all tests, which find the binary as any program does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hatchery_sandbox import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    with Pool(workers=2, preload=["numpy", "pandas"], timeout=60) as pool:
        yield pool
