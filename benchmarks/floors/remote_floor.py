"""The least that a first reading of a run in S3 can take: get, decode into types and test, without a cache, a check or a word.

    python benchmarks/floors/remote_floor.py [--rounds 9] [--files 400]

One process each: files of the disk; objects that are all fetched before the first is decoded, by 16 threads; and objects of which
the next 32 are fetched while one is decoded. The server is a process of its own on the same processors. What the second loses
against the first is lost by whoever fetches before he reads; what the third gains is the most that fetching ahead can bring.
"""

import argparse
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1]), str(HERE.parents[1] / "fixtures")]

AT_ONCE, AHEAD = 16, 32


def fetched_before(keys: list[str], get: Callable[[str], bytes]) -> Iterable[bytes]:
    """Return all objects once the last of them is there."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(get, keys))


def fetched_ahead(keys: list[str], get: Callable[[str], bytes]) -> Iterator[bytes]:
    """Yield each object while the next ones are on their way."""
    waiting, pending = iter(keys), deque[Future[bytes]]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        pending += (pool.submit(get, key) for key in islice(waiting, AHEAD))
        while pending:
            data = pending.popleft().result()
            pending += (pool.submit(get, key) for key in islice(waiting, 1))
            yield data


def decode(documents: Iterable[bytes]) -> None:
    """Decode every document, and test its numbers."""
    import gc

    import msgspec
    from validate_floor import bounds

    from ckaudit.contract.schema.checkpoint import Checkpoint

    gc.disable()
    decoder = msgspec.json.Decoder(Checkpoint)
    for data in documents:
        assert bounds(decoder.decode(data).weights or {})


def read(way: str, place: str) -> None:
    """Read a run in one of three ways."""
    if way == "disk":
        decode(path.read_bytes() for path in sorted(Path(place).iterdir()))
        return
    from ckaudit.remote.fast_s3 import FastS3

    storage: Any = FastS3(place)
    keys = [entry.path for entry in storage.entries(10**6)]
    ways = {"before": fetched_before, "ahead": fetched_ahead}
    decode(ways[way](keys, lambda key: bytes(storage.store.get(key).bytes())))


def main() -> None:
    """Measure each way in turn, and print the table."""
    if sys.argv[1:2] == ["read"]:
        read(*sys.argv[2:])
        return
    from pairs import measure
    from storage import served

    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--files", type=int, default=400)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, served(Path(temporary), wanted.files):
        folder = str(Path(temporary) / "store/bench/large")
        places = {"disk": folder, "before": "s3://bench/large", "ahead": "s3://bench/large"}
        rounds = [
            {way: measure([sys.executable, __file__, "read", way, place]) for way, place in places.items()}
            for _ in range(wanted.rounds + 1)
        ][1:]
    print(f"| {wanted.files} objects | s | processor, s | of the disk's throughput |\n|---|---|---|---|")
    for way in places:
        share = median(each["disk"].wall / each[way].wall for each in rounds)
        wall, cpu = (median(getattr(each[way], name) for each in rounds) for name in ("wall", "cpu"))
        print(f"| {way} | {wall:.2f} | {cpu:.2f} | {share:.2f} |")


if __name__ == "__main__":
    main()
