"""Kaldi's nnet3 logs, concatenated in one file or in their folder: objectives of training iterations, and on held-out data.

    nnet3-train ... "nnet3-am-copy --raw=true exp/tdnn/12.mdl -|" ...
    LOG (nnet3-train[5.5]:PrintTotalStats():...) Overall average objective function for 'output' is -1.2 over 5056 frames.
    LOG (nnet3-compute-prob[5.5]:...) Overall log-likelihood for 'output' is -1.3 per frame, over 4000 frames.

The objective is a log-likelihood, where more is better, so the loss is its negative. A training iteration starts from the model
in its command: 12.mdl starts iteration 13. A command that computes a probability evaluates a model, on held-out data if its
examples are called valid_diagnostic. The loss of an iteration is the mean over the frames of its jobs. In a folder,
`train.12.1.log` and `compute_prob_valid.12.log` name the model of their iteration.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_reader import LogContent, RunFact, StepLines, step_lines
from ckaudit.importers.text.log import Format, NamedLines, is_text, no_run_facts, parsed_dialect, read_scanned
from ckaudit.importers.text.named_lines import named_lines
from ckaudit.importers.text.prefix import numbered_lines

NAME = "Kaldi nnet3 logs"
GENERIC = False
HEAD_BYTES = 2**20
MIN_OBJECTIVES = 3
MAX_FILES = 20_000
MAX_READ = 4096  # characters of a line in which a command names its model
_OBJECTIVE = re.compile(
    r"LOG \(nnet3-(?:chain-)?(train|compute-prob)\[.{0,160} "
    r"Overall (?:average objective function|log-likelihood|log-probability) for 'output' is (\S{1,40})(?=\s)(.{0,120})"
)
_FRAMES = re.compile(r"over ([\d.]{1,20}(?:e[-+]?\d{1,3})?) frames")
_COMMAND = re.compile(r"\s{0,4}(?:#\s{0,4})?nnet3-(?:chain-)?(train|compute-prob) ")
_MODEL = re.compile(r"(?<![\w.])(\d{1,9})\.mdl\b")
_ACCURACY = b"verage accuracy for 'output'"
_HELD_OUT = "valid_diagnostic"
_FILE = re.compile(r"(?:.*/)?(train|compute_prob_valid)\.(\d{1,9})(?:\.\d{1,9})?\.log")
_PLACES_OF_FILES = ("train.0.1.log", "train.1.1.log", "log/train.0.1.log", "log/train.1.1.log")
_NUMBERED = "no command names the model of an iteration: objectives were numbered as they stand"


class _Objective(Struct, frozen=True):
    """One line with an objective.

    Attributes:
        line: Its line number.
        step: The iteration; None where no command before the line names a model.
        name: The catalogue name of its loss.
        loss: The negative of the objective.
        frames: The number of frames that the loss is a mean over.
    """

    line: int
    step: int | None
    name: str
    loss: float
    frames: float


def detects(source: Source) -> bool:
    """Tell whether a folder has the logs of the first iteration, or a text has several lines with a training objective."""
    if source.is_folder:
        return any(source.inside(name) is not None for name in _PLACES_OF_FILES)
    return (
        is_text(source)
        and sum(objective.name == "train_loss_raw" for objective in _lines(source.data[:HEAD_BYTES])) >= MIN_OBJECTIVES
    )


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the objectives.

    Raises:
        UnreadableError: Where none is a number.
        UsageError: Where `columns` names something that does not exist.
    """
    if source.is_folder:
        source = source.with_data(b"".join(_files(source)))
    objectives = list(_lines(source.data))
    notes = ["the loss is the negative of the objective", "a step is an iteration of Kaldi's, which holds many updates"]
    if any(objective.step is None for objective in objectives):
        trained = [objective for objective in objectives if objective.name == "train_loss_raw"]
        objectives = [replace(objective, step=place) for place, objective in enumerate(trained, 1)]
        notes.append(_NUMBERED)
    notes += ["accuracies were left out"] if _ACCURACY in source.data else []
    rows = step_lines(_means(objectives))
    log = LogContent(rows, [], error_lines(source.data), source.line_count, [], [])

    def meaning(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
        return replace(named_lines(rows, mapped, notes), step_unit="entry")

    return read_scanned(log, source, columns, Format(parsed_dialect(NAME, lambda _: True), meaning, no_run_facts))


def _files(source: Source) -> Iterator[bytes]:
    """Yield the objectives of each log in a folder, after a command with the model in the log's name."""
    for name, file in source.files(max_files=MAX_FILES):
        if (match := _FILE.fullmatch(name)) is not None:
            command = "train" if match[1] == "train" else f"compute-prob {_HELD_OUT}"
            objectives = [line for _, line in numbered_lines(file.data) if _OBJECTIVE.search(line[:MAX_READ])]
            yield "\n".join([f"nnet3-{command} {match[2]}.mdl", *objectives, ""]).encode()


def _means(objectives: Sequence[_Objective]) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Yield the line, the step and the losses of each step in order; each loss is the mean over the frames of all jobs."""
    by_step: dict[int, dict[str, list[_Objective]]] = {}
    for objective in objectives:
        by_step.setdefault(objective.step or 0, {}).setdefault(objective.name, []).append(objective)
    for step, losses in sorted(by_step.items()):
        means = {
            name: sum(job.loss * job.frames for job in jobs) / sum(job.frames for job in jobs) for name, jobs in losses.items()
        }
        yield min(job.line for jobs in losses.values() for job in jobs), step, means


def _lines(data: bytes) -> Iterator[_Objective]:
    """Yield all objectives of training, and of models on held-out data."""
    begun: int | None = None
    is_held_out = False
    for line_number, line in numbered_lines(data):
        line = line[:MAX_READ]  # noqa: PLW2901  a command of any length names its model early
        if command := _COMMAND.match(line):
            model = _MODEL.search(line, command.end())
            begun, is_held_out = int(model[1]) if model else None, _HELD_OUT in line
        elif "objective" in line or "log-" in line:
            yield from _objective(line_number, line, begun, is_held_out=is_held_out)


def _objective(line_number: int, line: str, begun: int | None, *, is_held_out: bool) -> Iterator[_Objective]:
    match = _OBJECTIVE.search(line)
    if match is None or (match[1] != "train" and not is_held_out):
        return
    frames = _FRAMES.search(match[3])
    try:
        loss, weight = -float(match[2]), float(frames[1]) if frames else 1.0
    except ValueError:
        return
    trains = match[1] == "train"
    step = None if begun is None else begun + trains
    if weight > 0:
        yield _Objective(line_number, step, "train_loss_raw" if trains else "val_loss", loss, weight)
