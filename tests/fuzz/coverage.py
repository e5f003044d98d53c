"""Fuzzes one reader, led by coverage: `pip install atheris`, then `python -m tests.fuzz.coverage contract --minutes 10`."""

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["ckaudit"]):
    from tests.fuzz import readers


def main() -> None:
    """Let atheris mutate seeds until the time is over; it ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader", choices=sorted(readers.targets()))
    parser.add_argument("--minutes", type=float, default=5.0)
    arguments = parser.parse_args()
    read, folder, corpus = readers.targets()[arguments.reader], Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    for number, data in enumerate(readers.seeds()):
        (corpus / str(number)).write_bytes(data)

    def once(data: bytes) -> None:
        if how := readers.broken_by(read, data, folder):
            readers.keep(arguments.reader, data, how)

    limits = {"max_total_time": int(60 * arguments.minutes), "max_len": 8192, "timeout": 60, "rss_limit_mb": 4096}
    atheris.Setup([sys.argv[0], *(f"-{name}={value}" for name, value in limits.items()), str(corpus)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
