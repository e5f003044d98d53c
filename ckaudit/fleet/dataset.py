"""The data set of a fleet: Parquet tables to which several writers can add at once; the newest row of a run counts.

Each table is a folder of files. A writer has its own files: each is written under a hidden name and renamed when it is complete,
so that a reader never sees half a file. A batch of runs is written to `findings`, `verdicts` and `metrics` first, and to `runs`
last: a run without a row there is not yet in the data set. Rows are never changed. A new audit of a run adds a later row, which
replaces the earlier one.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from msgspec import Struct, field

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.contract.schema.numbers import Number
from ckaudit.errors import CkauditError

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = ("findings", "verdicts", "metrics", "runs")
_OF_DATASET = re.compile(rf"(?:^|/)(?:{'|'.join(TABLES)})/part-\d{{8}}T\d{{6}}-[0-9a-f]{{12}}(?:-\d+)?\.parquet$")
"""Tables in the order of writing: a run is in the data set once `runs` has it."""

LEFT_SECONDS = 86_400
"""Seconds after which an incomplete file counts as abandoned."""

_DOCUMENTS = ("run", "audited", "document")


class Stored(Struct, frozen=True):
    """The content of a data set.

    Attributes:
        runs: The newest row of each run, in the order of names.
        problems: Files that could not be read, a sentence each.
    """

    runs: list[FleetRun] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_stored(folder: Path) -> Stored:
    """Return the newest row of every run of a data set, and unreadable files; empty if there is no data set yet."""
    newest: dict[str, tuple[int, bytes]] = {}
    problems: list[str] = []
    for path in _files(folder / "runs"):
        try:
            for run, audited, document in _rows(path):
                if run not in newest or newest[run][0] <= audited:
                    newest[run] = audited, document
        except FileNotFoundError:  # its writer has just merged it into another file, which is listed later
            continue
        except Exception as error:  # noqa: BLE001  pyarrow has many; one broken file must not cost the others
            problems.append(f"{path} cannot be read and is passed over: {_reason(error)}")
    decoder = msgspec.json.Decoder(FleetRun)
    runs = []
    for run, (_, document) in sorted(newest.items()):
        try:
            runs.append(decoder.decode(document))
        except msgspec.MsgspecError as error:
            problems.append(f"the row of {run} in {folder / 'runs'} is of another version: {error}")
    return Stored(runs, problems)


def _files(table: Path) -> Iterator[Path]:
    """Yield the files of a table, including files that appear meanwhile, because a writer may merge its own."""
    seen: set[str] = set()
    while True:
        try:
            names = {path.name for path in table.iterdir() if path.suffix == ".parquet" and not path.name.startswith((".", "_"))}
        except FileNotFoundError:
            return
        except OSError as error:
            raise CkauditError(f"cannot list {table}: {error.strerror}", hint="Name another folder with -o.") from None
        if not names - seen:
            return
        for name in sorted(names - seen):
            yield table / name
        seen |= names


def _rows(path: Path) -> list[tuple[str, int, bytes]]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        table = file.read(columns=list(_DOCUMENTS), use_threads=False)
    # Times are read as integers: pyarrow would load pandas for them, which takes half a second.
    audited = table.column("audited").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    runs, documents = table.column("run").to_pylist(), table.column("document").to_pylist()
    return [
        (run, when, document.encode())
        for run, when, document in zip(runs, audited, documents, strict=True)
        if run is not None and when is not None and document is not None
    ]


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class DatasetWriter:
    """Adds the rows of one audit to a data set, one file per table and batch; at the end the files of a table are merged.

    Attributes:
        folder: Where the data set is.
    """

    def __init__(self, folder: Path) -> None:
        """Create the folders.

        Raises:
            CkauditError: If they cannot be created.
        """
        self.folder = folder
        self._name = f"part-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid4().hex[:12]}"
        self._batches = 0
        try:
            for table in TABLES:
                (folder / table).mkdir(parents=True, exist_ok=True)
                _remove_left(folder / table)
        except OSError as error:
            raise CkauditError(f"cannot write to {folder}: {error.strerror}", hint="Choose another folder with -o.") from None

    def add(self, runs: Sequence[FleetRun]) -> None:
        """Write a batch of rows.

        Raises:
            CkauditError: If the batch cannot be written; earlier batches are intact.
        """
        if not runs:
            return
        self._batches += 1
        for table, rows in tables_of(runs).items():
            self._write(rows, table, f"{self._name}-{self._batches:05d}.parquet")

    def close(self) -> None:
        """Merge the batches into one file per table: few files are read faster."""
        if self._batches < 2:
            return
        from pyarrow import concat_tables
        from pyarrow.parquet import read_table

        for table in TABLES:
            parts = [self.folder / table / f"{self._name}-{batch:05d}.parquet" for batch in range(1, self._batches + 1)]
            with suppress(OSError, CkauditError):  # the batch files stay, with the same rows
                joined = concat_tables(read_table(part, use_threads=False) for part in parts)
                self._write(joined, table, f"{self._name}.parquet")
                for part in parts:
                    part.unlink(missing_ok=True)

    def _write(self, rows: "pa.Table", table: str, name: str) -> None:
        from pyarrow.parquet import write_table

        target = self.folder / table / name
        partial = target.with_name(f".{name}.partial")
        try:
            write_table(rows, partial, compression="zstd")
            descriptor = os.open(partial, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            partial.replace(target)
        except OSError as error:
            with suppress(OSError):
                partial.unlink()
            raise CkauditError(
                f"cannot write {target}: {error.strerror or error}",
                hint="Make room or choose another folder with -o; runs that were written already are not audited again.",
            ) from None


def _remove_left(table: Path) -> None:
    """Remove incomplete files that killed writers left a day ago or earlier."""
    for path in table.glob(".part-*.partial"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - LEFT_SECONDS:
                path.unlink()


def tables_of(runs: Sequence[FleetRun]) -> "dict[str, pa.Table]":
    """Return the rows of runs by table, in the order of writing."""
    import pyarrow as pa

    schemas = _schemas()
    makers = {"findings": _findings, "verdicts": _verdicts, "metrics": _metrics, "runs": _runs}
    return {table: pa.Table.from_pylist(list(makers[table](runs)), schema=schemas[table]) for table in TABLES}


def _schemas() -> "dict[str, pa.Schema]":
    """Return the column types of every table."""
    import pyarrow as pa

    text, step, number = pa.string(), pa.int64(), pa.float64()
    key = {"run": text, "audited": pa.timestamp("us", tz="UTC")}
    return {
        "findings": pa.schema(
            key
            | {
                "code": text,
                "name": text,
                "severity": text,
                "message": text,
                "place": text,
                "first_step": step,
                "last_step": step,
            }
        ),
        "verdicts": pa.schema(key | {"vital": text, "state": text}),
        "metrics": pa.schema(key | {"metric": text, "kind": text, "step": step, "value": number}),
        "runs": pa.schema(
            key
            | {"source": text, "status": text, "problem": text, "severity": text, "verdict": text, "judged": text}
            | {"cause": text, "cause_title": text, "confidence": number, "knob": text, "place": text}
            | {"first_step": step, "last_step": step, "not_judged": pa.list_(text), "facts": pa.map_(text, text)}
            | {"files": step, "written": pa.timestamp("us", tz="UTC"), "seconds": number}
            | {"fingerprint": text, "document": text}
        ),
    }


def _key(run: FleetRun) -> dict[str, Any]:
    return {"run": run.run, "audited": int(float(run.audited) * 1e6)}


def _findings(runs: Iterable[FleetRun]) -> Iterator[dict[str, Any]]:
    for run in runs:
        for finding in run.findings:
            columns = msgspec.structs.asdict(finding)
            yield _key(run) | columns | {"place": columns.pop("where")}


def _verdicts(runs: Iterable[FleetRun]) -> Iterator[dict[str, Any]]:
    for run in runs:
        for vital, state in run.vital.items():
            yield _key(run) | {"vital": vital, "state": state}


def _metrics(runs: Iterable[FleetRun]) -> Iterator[dict[str, Any]]:
    for run in runs:
        for metric, value in run.state.items():
            yield _key(run) | {"metric": metric, "kind": "latest", "step": None, "value": _float(value)}
        if run.loss is not None:
            for step, value in zip(run.loss.steps, run.loss.values, strict=True):
                yield _key(run) | {"metric": "train_loss_raw", "kind": "curve", "step": step, "value": _float(value)}


def _runs(runs: Iterable[FleetRun]) -> Iterator[dict[str, Any]]:
    encoder = msgspec.json.Encoder()
    for run in runs:
        columns = msgspec.structs.asdict(run)
        yield (
            columns
            | _key(run)
            | {
                "place": run.where,
                "source": run.source or run.run,
                "written": int(float(run.written) * 1e6) or None,
                "facts": list(run.facts.items()),
                "not_judged": [vital for vital, state in run.vital.items() if state == "not_judged"],
                "document": encoder.encode(run).decode(),
            }
        )


def _float(value: Number) -> float:
    """Return a number of the contract as a float, which may be NaN or infinite."""
    return float(value)


def is_of_dataset(name: str) -> bool:
    """Tell whether a file belongs to a fleet's data set, which may be in the same folder as the runs.

    >>> is_of_dataset("ckaudit-fleet/runs/part-20261128T111213-0a1b2c3d4e5f.parquet"), is_of_dataset("runs/part-1.parquet")
    (True, False)
    """
    return _OF_DATASET.search(name) is not None
