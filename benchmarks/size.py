"""What a checkpoint of a model shaped like Qwen3-0.6B weighs, and which of its fields weigh how much.

    python benchmarks/size.py [--real] [--write]

Nothing is trained: weights, gradients and outputs are random. With `--real` every tensor is drawn in its full size, one
after the other (3 GB of memory, two minutes); otherwise 4,096 elements of each stand for all of them. `--write` puts the
tables into benchmarks/README.md.
"""

import argparse
import copy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fixtures")]

from checkpoints.qwen import LAYERS, OBSERVED, TENSORS, checkpoint, grids_in, history  # noqa: E402  stands beside the fixtures
from pairs import machine, write_table  # noqa: E402

from ckaudit.contract.analysis import Checkpoint  # noqa: E402  after the path is known
from ckaudit.contract.budget import plan  # noqa: E402
from ckaudit.contract.encode import encode  # noqa: E402
from ckaudit.contract.left_out import keep  # noqa: E402

SUFFIXES = (".json", ".json.zst")
SECTIONS = ("weights", "gradients", "weight_deltas", "activations", "attention")
ORDINAL = 7


def written(whole: Checkpoint, budget_kb: float | None, suffix: str, ordinal: int = ORDINAL) -> Checkpoint:
    """Return what the recorder would write of a checkpoint."""
    document = copy.deepcopy(whole)
    keep(document, plan(TENSORS, LAYERS, OBSERVED, ordinal, budget_kb, suffix=suffix), TENSORS, LAYERS)
    return document


def totals(whole: Checkpoint) -> Iterator[str]:
    """Yield a row for each budget and each way of packing."""
    bare = copy.deepcopy(whole)
    for section in ("weights", "gradients"):
        for stats in getattr(bare, section).values():
            stats.sampled_grid_32x32 = UNSET
    for stats in (bare.attention or {}).values():
        stats.sampled_qk_grid_32x32_per_head = UNSET
    no_slopes = copy.deepcopy(whole)
    for stats in (no_slopes.gradients or {}).values():
        stats.sampled_grid_32x32 = UNSET
    eventful = replace(whole, history=history())
    for title, document in (
        ("no budget: all statistics and all grids", whole),
        ("the same without grids of gradients", no_slopes),
        ("the same without any grid", bare),
        ("no budget, after an event: with the black box", eventful),
    ):
        plain, packed = (len(encode(document, suffix)) for suffix in SUFFIXES)
        yield f"| {title} | {plain:,} | {packed:,} | {grids_in(document)} | nothing |"
    for suffix in SUFFIXES:
        for ordinal in (0, 1, 7):
            document = written(whole, 200, suffix, ordinal)
            size = len(encode(document, suffix))
            cells = (f"{size:,}", "") if suffix == ".json" else ("", f"{size:,}")
            lost = ", ".join(f"`{path}`" for path in document.left_out or []) or "nothing"
            yield f"| 200 KB, checkpoint {ordinal} of the cadence | {cells[0]} | {cells[1]} | {grids_in(document)} | {lost} |"


def fields(documents: Sequence[tuple[Checkpoint, str]]) -> Iterator[str]:
    """Yield a row for each field: by how many bytes each file is smaller without it."""
    sizes = [len(encode(*pair)) for pair in documents]
    for section in SECTIONS:
        entries = [getattr(document, section) for document, _ in documents]
        names = next(iter(entries[0].values())).__struct_fields__
        for name in names:
            if any(getattr(stats, name) is not UNSET for stats in entries[0].values()):
                lighter = [_without(document, section, name) for document, _ in documents]
                yield _row(f"{section}.*.{name}", documents, lighter, sizes)
        bare = [_named_only(document, section) for document, _ in documents]
        gone = [replace(document, **{section: UNSET}) for document, _ in documents]
        yield _row(f"{section}: names", [*zip(bare, SUFFIXES * 2, strict=False)], gone, _sizes(bare, documents))
    whole = [replace(document, **dict.fromkeys(SECTIONS, UNSET)) for document, _ in documents]
    yield "| everything else | " + " | ".join(f"{size:,}" for size in _sizes(whole, documents)) + " |"
    yield "| **all** | " + " | ".join(f"**{size:,}**" for size in sizes) + " |"


def _sizes(changed: Sequence[Checkpoint], documents: Sequence[tuple[Checkpoint, str]]) -> list[int]:
    return [len(encode(document, suffix)) for document, (_, suffix) in zip(changed, documents, strict=True)]


def _row(title: str, documents: Sequence[tuple[Checkpoint, str]], lighter: Sequence[Checkpoint], sizes: Sequence[int]) -> str:
    cells = [f"{size - less:,}" for size, less in zip(sizes, _sizes(lighter, documents), strict=True)]
    return f"| {title} | " + " | ".join(cells) + " |"


def _without(document: Checkpoint, section: str, field: str) -> Checkpoint:
    entries = {name: replace(stats, **{field: UNSET}) for name, stats in getattr(document, section).items()}
    return replace(document, **{section: entries})


def _named_only(document: Checkpoint, section: str) -> Checkpoint:
    entries = {name: type(stats)() for name, stats in getattr(document, section).items()}
    return replace(document, **{section: entries})


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--real", action="store_true", help="draw every tensor in its full size")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    wanted = parser.parse_args()
    whole = checkpoint(drawn=None if wanted.real else 4096)
    documents = [(written(whole, budget, suffix), suffix) for budget in (None, 200) for suffix in SUFFIXES]
    table = "\n".join(
        [
            f"{machine()}; tensors {'of full size' if wanted.real else 'of 4,096 drawn elements'}; bytes.",
            "",
            "| what | .json | .json.zst | grids | left out |\n|---|---|---|---|---|",
            *totals(whole),
            "",
            "| field | .json, no budget | .json.zst, no budget | .json, 200 KB | .json.zst, 200 KB |\n|---|---|---|---|---|",
            *fields(documents),
        ]
    )
    print(table)
    if wanted.write:
        write_table("size", table)


if __name__ == "__main__":
    main()
