"""YOLO's console, as Ultralytics prints it: a line per epoch below a header, followed by a line on its validation.

      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
       1/40      2.19G      1.183      2.064      1.623         20        640: 100%|██████████| 40/40 [00:12<00:00, 3.0it/s]
                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|██████████| 7/7 [00:02<00:00]
                   all        400        400      0.512      0.303      0.195      0.048

Losses are means over the epoch, so an epoch whose bar is not full is left out. Losses and scores have the names that they have in
`results.csv`, and the training loss is the sum of its parts, as there. Validation losses are not printed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from ckaudit.importers.formats.yolo import EPOCH_AXIS, EPOCHS_FROM_ZERO, sum_of_parts
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import parts_of_loss
from ckaudit.importers.tables.numbers import number
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_reader import LogContent, RunFact, StepLines, step_lines
from ckaudit.importers.text.line_values import is_wanted
from ckaudit.importers.text.log import Format, NamedLines, is_text, no_run_facts, parsed_dialect, read_scanned
from ckaudit.importers.text.named_lines import named_lines
from ckaudit.importers.text.prefix import MAX_LINE, numbered_lines

NAME = "YOLO console"
GENERIC = False
HEAD_BYTES = 2**21
_MARK = "GPU_mem"
_BEGIN, _END = ["Epoch", _MARK], ["Instances", "Size"]
_EPOCH = re.compile(r"(\d{1,9})/\d{1,9}")
_SCORES = ("metrics/precision(B)", "metrics/recall(B)", "metrics/mAP50(B)", "metrics/mAP50-95(B)")
_BEFORE_SCORES = ("all", "images", "instances")
EpochValues = tuple[int, int, dict[str, float]]


def detects(source: Source) -> bool:
    """Tell whether the text has a header and an epoch below it."""
    head = source.data[:HEAD_BYTES]
    return is_text(source) and _MARK.encode() in head and next(_lines(head), None) is not None


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the epochs.

    Raises:
        UnreadableError: Where no epoch has a loss.
        UsageError: Where `columns` names something that does not exist.
    """
    rows = step_lines(_lines(source.data))
    is_from_zero = bool(len(rows.steps)) and not rows.steps.min()
    rows = replace(rows, steps=rows.steps + is_from_zero)
    names = list(rows.columns)
    parts = [names[position] for position in parts_of_loss(names, "train/")]
    left_out = [] if columns else [name for name in names if name not in parts]
    log = LogContent(rows, [], error_lines(source.data), source.line_count, [], left_out)

    def meaning(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
        named = named_lines(rows, mapped, [EPOCH_AXIS, *([EPOCHS_FROM_ZERO] if is_from_zero else [])])
        if parts and "train_loss_raw" not in named.rows.columns:
            named.rows.columns["train_loss_raw"] = sum_of_parts([rows.columns[part] for part in parts])
            named.notes.insert(0, f"taken: train_loss_raw as {' + '.join(parts)}")
        return replace(named, step_unit="epoch")

    return read_scanned(log, source, columns, Format(parsed_dialect(NAME, is_wanted), meaning, no_run_facts))


def _lines(data: bytes) -> Iterator[EpochValues]:
    """Yield the line number, the epoch and the values by name of each line with an epoch's losses or scores."""
    header: list[str] = []
    epoch: int | None = None
    for line_number, line in numbered_lines(data):
        cells = line.split() if len(line) <= MAX_LINE else []
        if cells[:2] == _BEGIN and cells[-2:] == _END:
            header, epoch = cells, None
        elif header and (losses := _losses(line, header)):
            epoch = int(cells[0].partition("/")[0])
            yield line_number, epoch, losses
        elif epoch is not None and (scores := _scores(cells)):
            yield line_number, epoch, scores
            epoch = None  # later scores are those of the best epoch, evaluated again at the end


def _losses(line: str, header: Sequence[str]) -> dict[str, float]:
    """Return the parts of an epoch's loss by name; none where the line is not a finished epoch."""
    table, _, bar = line.partition(": ")
    cells = table.split()
    if len(cells) != len(header) or not _EPOCH.fullmatch(cells[0]) or not bar.lstrip().startswith("100%"):
        return {}
    values = {f"train/{name}": number(cell) for name, cell in zip(header[2:-2], cells[2:-2], strict=True)}
    return {name: value for name, value in values.items() if value is not None}


def _scores(cells: Sequence[str]) -> dict[str, float]:
    """Return the scores over all classes by name; none where the line does not hold them."""
    if cells[:1] != ["all"] or len(cells) < len(_BEFORE_SCORES + _SCORES):
        return {}
    values = {name: number(cell) for name, cell in zip(_SCORES, cells[len(_BEFORE_SCORES) :], strict=False)}
    return {name: value for name, value in values.items() if value is not None}
