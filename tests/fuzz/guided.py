"""Lets atheris mutate inputs for one reader, in a process of its own: what `tests.fuzz.coverage` starts."""

import argparse
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import atheris

READ_BY = ("contract", "importers", "material", "resume", "run", "validate")
with atheris.instrument_imports(include=["ckaudit"]):
    # Formats are imported where they are first asked for: all of them now, or nothing leads the search.
    for _package in READ_BY:
        _home = import_module(f"ckaudit.{_package}")
        for _module in walk_packages(_home.__path__, f"{_home.__name__}."):
            import_module(_module.name)
    from tests.fuzz import readers

MAX_INPUT_BYTES = 32768
LIMITS = {"max_len": MAX_INPUT_BYTES, "timeout": 60, "rss_limit_mb": 4096}


def main() -> None:
    """Search until the time is over; atheris ends the process, and leaves in the folder of inputs what reached more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader")
    parser.add_argument("seconds", type=int)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("crashers", type=Path)
    arguments = parser.parse_args()
    name, found = arguments.reader, readers.Found(arguments.reader, arguments.crashers)
    read, folder = readers.targets()[name], Path(tempfile.mkdtemp())

    def once(data: bytes) -> None:
        if how := readers.broken_by(read, data, folder):
            found.keep(data, how)

    limits = LIMITS | {"max_total_time": arguments.seconds, "artifact_prefix": f"{arguments.crashers}/{name}-"}
    atheris.Setup([sys.argv[0], *(f"-{key}={value}" for key, value in limits.items()), str(arguments.inputs)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
