"""The process with the fake CUDA device, shared by the tests of a session."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks import fake_cuda

Case = Callable[..., Any]


@pytest.fixture(scope="session")
def on_cuda() -> Iterator[Callable[..., Any]]:
    """`on_cuda(case, *arguments)` returns what a function of `cases` returns in that process."""
    if reason := fake_cuda.missing():
        pytest.skip(reason)
    with fake_cuda.process() as process:
        yield lambda case, *arguments: process.submit(case, *arguments).result()
