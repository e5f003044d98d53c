"""Checkpoints read once more for a few steps: histograms and sampled matrices, which nothing else of an audit needs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from ckaudit.audit.load_run import is_ours
from ckaudit.contract.folder import CheckpointFile
from ckaudit.diff.files import read_document
from ckaudit.errors import UnreadableError
from ckaudit.panels.context import Scene
from ckaudit.panels.order import forward
from ckaudit.panels.sample import evenly
from ckaudit.run.read import list_source
from ckaudit.run.run import Run
from ckaudit.run.tensors import TensorTable

MOST = 24  # steps of a slider
TURN = 5  # the recorder samples the matrices of the first, middle and last block at every fifth checkpoint at least
PARTS = ("attention", "mlp")


class Snapshot(Struct, frozen=True, eq=False):
    """One checkpoint as it was written: section, then tensor or layer, then field."""

    step: int
    sections: Mapping[str, Any]

    def members(self, section: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield name and fields of everything in a section."""
        found = self.sections.get(section)
        for name, fields in found.items() if isinstance(found, dict) else ():
            if isinstance(fields, dict):
                yield name, fields


def snapshots(scene: Scene) -> tuple[Snapshot, ...]:
    """Return some checkpoints of a run, in the order of steps; those that cannot be read are left out."""
    return scene.run.derived("panels snapshots", lambda: tuple(_read(scene)))


def _read(scene: Scene) -> Iterator[Snapshot]:
    if scene.path is None or not scene.path.exists() or not is_ours(scene.path):
        return
    for file in chosen_files(files_of(scene.path, scene.run), _steps_of_findings(scene)):
        try:
            yield Snapshot(file.step or 0, read_document(file.path, file.shown))
        except UnreadableError:  # what is wrong with it is a finding already
            continue


def files_of(path: Path, run: Run) -> list[CheckpointFile]:
    """Return the merged checkpoint files of a run up to the step judged at, by step."""
    files = [file for file in list_source(path).checkpoints if file.rank is None and file.step is not None]
    known = {*run.checkpoint_steps.tolist()}
    return sorted((file for file in files if file.step in known), key=lambda file: file.step or 0)


def chosen_files(files: Sequence[CheckpointFile], steps: Sequence[int], *, most: int = MOST) -> list[CheckpointFile]:
    """Return at most `most` files: first and last, the first at or after each of some steps, and every fifth evenly spread."""
    if len(files) <= most:
        return list(files)
    kept = {0, len(files) - 1}
    for step in steps[: most // 3]:
        kept.add(next((place for place, file in enumerate(files) if (file.step or 0) >= step), len(files) - 1))
    fifths = [place for place in range(0, len(files), TURN) if place not in kept]
    kept |= {fifths[place] for place in evenly(len(fifths), most - len(kept))}
    others = [place for place in range(len(files)) if place not in kept]
    kept |= {others[place] for place in evenly(len(others), most - len(kept))} if len(kept) < most else set()
    return [files[place] for place in sorted(kept)]


def _steps_of_findings(scene: Scene) -> list[int]:
    steps = (each.worst_step if each.worst_step is not None else each.first_step for each in scene.report.findings)
    return list(dict.fromkeys(step for step in steps if step is not None))


def anchors(table: TensorTable, names: Sequence[str], wanted: Sequence[str], most: int) -> list[str]:
    """Return at most `most` names in the order of the forward pass.

    They are the embedding, attention and MLP of the first, the middle and the last block, the head, those of findings, and, where
    there is room, others evenly spread.
    """
    ordered = [names[place] for place in forward(table, names)]
    blocks = sorted({depth for name in ordered if (depth := table.depth(name)) is not None})
    middle = [blocks[place] for place in (0, len(blocks) // 2, -1)] if blocks else []
    kinds = [(None, "embedding"), *((block, part) for block in dict.fromkeys(middle) for part in PARTS), (None, "head")]
    found = [next((name for name in ordered if (table.depth(name), table.kind(name)) == each), "") for each in kinds]
    asked = [name for name in wanted if name in ordered]
    kept = list(dict.fromkeys([*filter(None, found), *asked]))[:most]
    rest = [name for name in ordered if name not in kept]
    kept += [rest[place] for place in evenly(len(rest), most - len(kept))] if len(kept) < most else []
    return [name for name in ordered if name in kept]
