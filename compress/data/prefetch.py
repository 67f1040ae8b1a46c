"""Reading ahead in threads, in order, with a bounded number of samples in memory."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(
    read: Callable[[int], T], indices: Sequence[int], workers: int, chunk: int
) -> Generator[tuple[int, T], None, None]:
    """Yield ``(index, read(index))`` in the order of ``indices``, read by ``workers`` threads (0: by the caller's own).

    At most ``2 * workers`` chunks of ``chunk`` samples are held or being read at any time. What ``read`` raises is
    raised where its sample would have come. Closing the generator ends the threads.
    """
    if workers == 0:
        for index in indices:
            yield index, read(index)
        return

    def read_chunk(part: Sequence[int]) -> list[tuple[int, T]]:
        return [(i, read(i)) for i in part]

    parts = (indices[at : at + chunk] for at in range(0, len(indices), chunk))
    pool = ThreadPoolExecutor(workers, thread_name_prefix="data")
    try:
        waiting: collections.deque[Future[list[tuple[int, T]]]] = collections.deque(
            pool.submit(read_chunk, p) for p in itertools.islice(parts, 2 * workers)
        )
        while waiting:
            ready = waiting.popleft().result()
            part = next(parts, None)
            if part is not None:
                waiting.append(pool.submit(read_chunk, part))
            yield from ready
    finally:
        pool.shutdown(cancel_futures=True)
