"""Histograms over time and sampled matrices of a few tensors, from checkpoints that are read again."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from ckaudit.audit.coverage.applicability import trainer_of
from ckaudit.audit.load_run import is_ours
from ckaudit.contract.io.folder import CheckpointFile
from ckaudit.contract.io.grids import encode_grid, unpack
from ckaudit.contract.schema.checkpoint import Grid
from ckaudit.contract.schema.panels import Chart, Frame, Ridge
from ckaudit.diff.checkpoint_values import read_document
from ckaudit.diff.distances import distribution
from ckaudit.errors import UnreadableError
from ckaudit.metrics.catalogue import actions
from ckaudit.panels.annotations import marks
from ckaudit.panels.downsample import evenly
from ckaudit.panels.metric_charts import OF_COLOURS, in_forward_order, short
from ckaudit.panels.scene import Scene
from ckaudit.run.read import list_source
from ckaudit.run.run import Grids, Run
from ckaudit.run.series import Floats
from ckaudit.run.tensors import TensorTable

FIELD = {"weights": "sampled_grid_32x32", "gradients": "sampled_grid_32x32"}

MAX_STEPS = 24  # number of steps of a slider

SAMPLED_EVERY = 5  # the recorder samples matrices of the first, middle and last block at least at every fifth checkpoint

PARTS = ("attention", "mlp")


class CheckpointSections(Struct, frozen=True, eq=False):
    """One checkpoint as written: section, then tensor or layer, then field."""

    step: int
    sections: Mapping[str, Any]

    def members(self, section: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield name and fields of every member of a section."""
        members = self.sections.get(section)
        for name, fields in members.items() if isinstance(members, dict) else ():
            if isinstance(fields, dict):
                yield name, fields

    def fields(self, section: str, name: str) -> Mapping[str, Any]:
        """Return the fields of one member of a section; empty if it does not exist."""
        members = self.sections.get(section)
        fields = members.get(name) if isinstance(members, dict) else None
        return fields if isinstance(fields, dict) else {}


def ridges(scene: Scene, name: str, title: str, section: str, *, max_tensors: int = 12) -> Chart | None:
    """Return the histograms of at most `max_tensors` tensors or modules at the read steps; None if there are none."""
    taken = snapshots(scene)
    recorded = _named(taken, section, "histogram")
    if not recorded:
        return None
    names = representative_names(scene.run.tensors, recorded, _wanted(scene), max_tensors)
    return Chart(
        id=name,
        title=title,
        shape="ridges",
        unit="1",
        formula=r"c_b / \textstyle\sum_j c_j",
        x=f"value of {section}",
        ridges=list(_ridges(taken, section, names)),
        note=_note(names, recorded, taken, scene),
        marks=marks(scene, []),
    )


def _ridges(taken: Sequence[CheckpointSections], section: str, names: Sequence[str]) -> Iterator[Ridge]:
    for name in names:
        for shot in taken:
            fields = shot.fields(section, name)
            histogram = distribution(fields["histogram"]) if isinstance(fields.get("histogram"), dict) else None
            if histogram:
                edges, below = coarser(histogram.edges), coarser(histogram.below)
                shares = [short(high - low, OF_COLOURS + 1) for low, high in pairwise(below)]
                yield Ridge(step=shot.step, where=name, edges=[short(edge) for edge in edges], shares=shares)


def coarser(edges: Sequence[float], *, bins: int = 32) -> list[float]:
    """Return the edges of at most `bins` bins, each a merge of equally many neighbours except the last.

    >>> coarser([0, 1, 2, 3, 4, 5], bins=2)
    [0, 3, 5]
    """
    together = -(-(len(edges) - 1) // bins)
    return [*edges[:-1:together], edges[-1]]


def grids(scene: Scene, name: str, title: str, section: str, *, max_tensors: int = 12, steps: int = 16) -> Chart | None:
    """Return sampled matrices of at most `max_tensors` tensors at the read steps; None if there are none."""
    taken, field = snapshots(scene), FIELD[section]
    recorded = _named(taken, section, field)
    holding = [shot for shot in taken if any(field in fields for _, fields in shot.members(section))]
    taken = tuple(holding[place] for place in evenly(len(holding), steps))
    if not recorded:
        return None
    names = representative_names(scene.run.tensors, recorded, _wanted(scene), max_tensors)
    frames = [
        Frame(step=shot.step, where=tensor, cells=packed)
        for tensor in names
        for shot in taken
        if (packed := _cells(shot.fields(section, tensor).get(field))) is not None
    ]
    return Chart(
        id=name,
        title=title,
        shape="grids",
        unit="1",
        x="sampled column",
        frames=frames,
        note=_note(names, recorded, taken, scene),
        formula=r"W_{\lfloor i n / 32 \rfloor, \lfloor j m / 32 \rfloor}",
    )


def _cells(grid: object) -> Grid | None:
    """Return a matrix as bytes, from either of its encodings; None if it is not a matrix."""
    try:
        import msgspec

        values = unpack(msgspec.convert(grid, Grid))
    except (KeyError, TypeError, ValueError, OverflowError):  # validate reports what is wrong with it
        return None
    return encode_grid(values, "q8") if values.ndim == 2 and values.size else None


def head_grids(scene: Scene, name: str, title: str, *, places: int = 16, steps: int = 10) -> Chart | None:
    """Return the sampled attention of some heads of the first, middle and last layer; None if there is none."""
    sampled = attention_grids(scene)
    if not sampled.steps:
        return None
    table = scene.run.tensors
    layers = list(dict.fromkeys(sampled.labels))
    ordered = [layers[place] for place in in_forward_order(table, layers)]
    shown_layers = [ordered[place] for place in evenly(len(ordered), 4)]
    when = sorted(set(sampled.steps))
    chosen = {when[place] for place in evenly(len(when), steps)}
    heads = max(1, places // len(shown_layers))
    frames = [
        Frame(step=step, where=f"{layer}/head.{head}", cells=encode_grid(stack[head], "q8"))
        for wanted in shown_layers
        for step, layer, stack in zip(sampled.steps, sampled.labels, sampled.values, strict=True)
        if layer == wanted and step in chosen and stack.ndim == 3
        for head in range(min(heads, len(stack)))
    ]
    left_out = [f"{len(shown_layers)} of {len(layers)} layers"] if len(shown_layers) < len(layers) else []
    left_out += [f"{heads} heads of each"] if any(len(stack) > heads for stack in sampled.values) else []
    left_out += [f"{len(chosen)} of {len(when)} steps"] if len(chosen) < len(when) else []
    return Chart(
        id=name,
        title=title,
        shape="grids",
        unit="1",
        x="sampled key",
        metrics=["head_kind"],
        frames=_in_turn(frames),
        note=f"{' and '.join(left_out)} are drawn" if left_out else "",
    )


def _in_turn(frames: list[Frame]) -> list[Frame]:
    """Return frames sorted by place, then by step."""
    order = {where: place for place, where in enumerate(dict.fromkeys(frame.where for frame in frames))}
    return sorted(frames, key=lambda frame: (order[frame.where], frame.step))


MAX_HEADS = 256
"""Largest number of heads of a layer that are compared; each pair is a cell."""


def redundancy(scene: Scene, name: str, title: str, *, layers: int = 4, steps: int = 8) -> Chart | None:
    """Return the similarity of each pair of heads in some layers at some steps; None if no maps are sampled."""
    sampled = attention_grids(scene)
    if not sampled.steps:
        return None
    names = list(dict.fromkeys(sampled.labels))
    ordered = [names[place] for place in in_forward_order(scene.run.tensors, names)]
    shown_layers = {ordered[place] for place in evenly(len(ordered), layers)}
    when = sorted(set(sampled.steps))
    chosen = {when[place] for place in evenly(len(when), steps)}
    frames = [
        Frame(step=step, where=layer, cells=_alike(stack), rows=_heads(stack), columns=_heads(stack))
        for step, layer, stack in zip(sampled.steps, sampled.labels, [grid[:MAX_HEADS] for grid in sampled.values], strict=True)
        if layer in shown_layers and step in chosen and stack.ndim == 3 and len(stack) > 1
    ]
    return (
        Chart(
            id=name,
            title=title,
            shape="grids",
            metrics=["head_similarity"],
            unit="1",
            x="head",
            formula=r"\frac{\langle A_h, A_g \rangle}{\lVert A_h \rVert \lVert A_g \rVert}",
            frames=_in_turn(frames),
            note="of maps sampled at 32 by 32",
        )
        if frames
        else None
    )


def attention_grids(scene: Scene) -> Grids:
    """Return the sampled attention of all layers, from either of its field names."""
    per_head = scene.run.grid("attention", "sampled_qk_grid_32x32_per_head")
    return per_head if per_head.steps else scene.run.grid("attention", "sampled_qk_grid_32x32")


def _alike(stack: Floats) -> Grid:
    flat = stack.reshape(len(stack), -1)
    with np.errstate(all="ignore"):
        unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
        return [[short(value, OF_COLOURS) for value in row] for row in (unit @ unit.T).tolist()]


def _heads(stack: Floats) -> list[str]:
    return [f"head.{place}" for place in range(len(stack))]


def why_none(scene: Scene, section: str, field: str) -> str:
    """Return why no histograms or matrices of a section can be drawn."""
    if not len(scene.run.checkpoint_steps):
        return f"{field} of {section} stands in checkpoints, and none was recorded; to record it: {_line(scene)}"
    if not snapshots(scene):
        return f"{field} of {section} is read from run folders only"
    return f"none of the checkpoints read holds {section}.*.{field}; to record it: {_line(scene)}"


def _line(scene: Scene) -> str:
    """Return the code line that records checkpoints, for the trainer that wrote the run."""
    return actions()["recorder"].way(trainer_of(scene.run)).call.replace("{options}", "").replace("(, ", "(")


def _named(taken: Sequence[CheckpointSections], section: str, field: str) -> list[str]:
    """Return all members of a section that have a field in any of the checkpoints."""
    return list(dict.fromkeys(name for shot in taken for name, fields in shot.members(section) if field in fields))


def _wanted(scene: Scene) -> list[str]:
    return list(dict.fromkeys(place for finding in scene.report.findings for place in (finding.where, *finding.also) if place))


def _note(drawn: Sequence[str], recorded: Sequence[str], taken: Sequence[CheckpointSections], scene: Scene) -> str:
    left_out = [f"{len(drawn)} of {len(recorded)} places"] if len(drawn) < len(recorded) else []
    total = len(scene.run.checkpoint_steps)
    left_out += [f"{len(taken)} of {total} checkpoints (at most {MAX_STEPS})"] if len(taken) < total else []
    return f"{' and '.join(left_out)} are drawn" if left_out else ""


# Checkpoints of a few steps are read again for histograms and sampled matrices, which only these charts need.
def snapshots(scene: Scene) -> tuple[CheckpointSections, ...]:
    """Return some checkpoints of a run, sorted by step; unreadable ones are left out."""
    return scene.run.derived("panels snapshots", lambda: tuple(_read(scene)))


def _read(scene: Scene) -> Iterator[CheckpointSections]:
    if scene.path is None or not scene.path.exists() or not is_ours(scene.path):
        return
    steps = (finding.worst_step if finding.worst_step is not None else finding.first_step for finding in scene.report.findings)
    for file in chosen_files(files_of(scene.path, scene.run), list(dict.fromkeys(step for step in steps if step is not None))):
        try:
            yield CheckpointSections(file.step or 0, read_document(file.path, file.shown))
        except UnreadableError:  # its problem is already a finding
            continue


def files_of(path: Path, run: Run) -> list[CheckpointFile]:
    """Return the merged checkpoint files of a run up to the judged step, sorted by step."""
    files = [file for file in list_source(path).checkpoints if file.rank is None and file.step is not None]
    known = {*run.checkpoint_steps.tolist()}
    return sorted((file for file in files if file.step in known), key=lambda file: file.step or 0)


def chosen_files(files: Sequence[CheckpointFile], steps: Sequence[int], *, max_files: int = MAX_STEPS) -> list[CheckpointFile]:
    """Return at most `max_files`: first and last, the first at or after each of some steps, and every fifth, evenly spread."""
    if len(files) <= max_files:
        return list(files)
    places = {0, len(files) - 1}
    for step in steps[: max_files // 3]:
        places.add(next((place for place, file in enumerate(files) if (file.step or 0) >= step), len(files) - 1))
    fifths = [place for place in range(0, len(files), SAMPLED_EVERY) if place not in places]
    places |= {fifths[place] for place in evenly(len(fifths), max_files - len(places))}
    others = [place for place in range(len(files)) if place not in places]
    places |= {others[place] for place in evenly(len(others), max_files - len(places))} if len(places) < max_files else set()
    return [files[place] for place in sorted(places)]


def representative_names(table: TensorTable, names: Sequence[str], wanted: Sequence[str], max_names: int) -> list[str]:
    """Return at most `max_names` names in the order of the forward pass.

    They are the embedding, attention and MLP of the first, middle and last block, the head, the tensors of findings, and others
    evenly spread if there is room.
    """
    ordered = [names[place] for place in in_forward_order(table, names)]
    blocks = sorted({depth for name in ordered if (depth := table.depth(name)) is not None})
    middle = [blocks[place] for place in (0, len(blocks) // 2, -1)] if blocks else []
    kinds = [(None, "embedding"), *((block, part) for block in dict.fromkeys(middle) for part in PARTS), (None, "head")]
    anchored = [next((name for name in ordered if (table.depth(name), table.kind(name)) == kind), "") for kind in kinds]
    asked = [name for name in wanted if name in ordered]
    chosen = list(dict.fromkeys([*filter(None, anchored), *asked]))[:max_names]
    rest = [name for name in ordered if name not in chosen]
    chosen += [rest[place] for place in evenly(len(rest), max_names - len(chosen))] if len(chosen) < max_names else []
    return [name for name in ordered if name in chosen]
