"""Arrow IPC: a row per line, a typed column per name; null is not recorded, NaN was recorded as NaN.

Words stand in columns of their own, `name:text`, so that a name may hold both.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

from ckaudit import __version__
from ckaudit.contract.io.codec import encode
from ckaudit.contract.schema.scalars import EXPORT_MARK, EXPORTED_WORDS
from ckaudit.run.read import Progress
from ckaudit.run.scalars import Logged


def write(logged: Logged, sink: BinaryIO, progress: Progress | None = None) -> None:
    """Write an Arrow file, some lines at a time."""
    import pyarrow as pa

    described = schema(logged)
    with pa.ipc.new_file(sink, described) as writer:
        for batch in batches(logged, described, progress):
            writer.write_batch(batch)


def schema(logged: Logged) -> Any:
    """Return the types of the columns; what the run is stands in the metadata."""
    import pyarrow as pa

    numbers = [(name, pa.float64()) for name in logged.numbers]
    words = [(f"{name}{EXPORTED_WORDS}", pa.string()) for name in logged.words]
    metadata = {EXPORT_MARK: "1", "tool": f"ckaudit {__version__}", "run": logged.name.encode(errors="backslashreplace")}
    if logged.manifest is not None:
        metadata["run.json"] = encode(logged.manifest)
    return pa.schema([("step", pa.int64()), ("session", pa.int64()), *numbers, *words], metadata=metadata)


def batches(logged: Logged, described: Any, progress: Progress | None = None) -> Iterator[Any]:
    """Yield the lines as record batches."""
    import pyarrow as pa

    done, total = 0, logged.lines
    for table in logged.tables():
        known = table.recorded
        numbers = [
            pa.array(values, mask=None if known is None else ~known[index], from_pandas=False)
            for index, values in enumerate(table.values)
        ]
        words = [pa.array(said, pa.string()) for said in table.texts.values()]
        yield pa.record_batch([pa.array(table.steps), pa.array(table.sessions), *numbers, *words], schema=described)
        done += len(table.steps)
        if progress:
            progress(done, total)
