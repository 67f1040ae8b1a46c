import threading

import pytest

from compress.data.prefetch import read_ahead


@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_order_is_kept(workers, chunk):
    indices = [5, 3, 8, 1, 9, 0, 2]
    assert list(read_ahead(lambda i: i * i, indices, workers, chunk)) == [(i, i * i) for i in indices]


@pytest.mark.parametrize(("workers", "chunk"), [(1, 1), (2, 4)])
def test_reading_ahead_is_bounded(workers, chunk):
    read = []
    lock = threading.Lock()

    def note(index):
        with lock:
            read.append(index)
        return index

    stream = read_ahead(note, range(1000), workers, chunk)
    for taken in range(1, 200):
        next(stream)
        with lock:
            ahead = len(read) - taken
        assert ahead <= (2 * workers + 1) * chunk
    stream.close()
    assert len(read) < 250


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_come_where_their_sample_would(workers):
    def read(index):
        if index == 3:
            raise OSError("sample 3")
        return index

    stream = read_ahead(read, range(10), workers, 1)
    assert [next(stream)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="sample 3"):
        next(stream)
