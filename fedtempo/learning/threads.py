"""One thread for all products: sums then have one order, on however many cores and beside however many other runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit every library that is loaded to one thread; load whatever a trainer needs before."""
    import scipy.linalg.cython_blas  # noqa: F401 - kernels load it when they first run, too late to be limited

    with threadpool_limits(limits=1):
        yield
