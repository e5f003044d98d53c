"""The scalars of a run for other programs: one module per format, loaded when asked for."""

from importlib import import_module
from pathlib import Path
from typing import BinaryIO

from ckaudit.run.read import Progress
from ckaudit.run.scalars import Logged

FILES = ("parquet", "arrow", "csv", "wandb-csv")
FOLDERS = ("tensorboard",)
FORMATS = (*FILES, *FOLDERS)


def write(logged: Logged, format: str, sink: BinaryIO, progress: Progress | None = None) -> None:  # noqa: A002  its name
    """Write the scalars of a run in one of `FILES`, a piece at a time; `progress` is called with lines done and in all."""
    import_module(f"{__name__}.{format.replace('-', '_')}").write(logged, sink, progress)


def write_folder(logged: Logged, format: str, folder: Path, progress: Progress | None = None) -> None:  # noqa: A002  its name
    """Write the scalars of a run in one of `FOLDERS`, into a folder that is there."""
    import_module(f"{__name__}.{format.replace('-', '_')}").write(logged, folder, progress)
