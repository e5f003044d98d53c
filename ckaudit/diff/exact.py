"""Whether two runs of one seed agree in every bit, where they first differ, and the likely source of the difference (D1.6)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET, Struct

from ckaudit.audit.load_run import is_ours, open_run
from ckaudit.contract.io.folder import CheckpointFile, list_folder
from ckaudit.contract.schema.diff import Answer, Departure, Noise, Pair, Unlike, Word
from ckaudit.contract.schema.numbers import Number, encode_float, ignoring_float_errors
from ckaudit.diff.checkpoint_values import Document, read_document, tells_time
from ckaudit.diff.comparability import find_mismatches
from ckaudit.diff.exact_values import UnequalValue, describe_difference, unequal_leaves
from ckaudit.errors import UnreadableError
from ckaudit.run.run import Run
from ckaudit.run.series import Series
from ckaudit.wording import plural

TITLE = "Are both runs the same to the last bit?"

BITS = Noise(source="identical", message="two runs of one seed are to agree in every bit: nothing is put down to chance")

_FIRST = ("batch_hash", "batch_id", "learning_rate", "train_loss_raw", "grad_global_norm")

_RANKS = (
    "batch",
    "data",
    "learning_rate",
    "activations",
    "attention",
    "moe",
    "loss",
    "gradients",
    "optimizer",
    "weight_deltas",
    "weights",
)
"""The quantities of a step in the order of computation: if several differ at one step, the earliest counts as the first."""

RECORDED: tuple[tuple[str, str], ...] = (
    ("seed", "seed Python, NumPy, torch and every loader worker with the same number"),
    ("data_order", "seed the sampler by epoch or step, and save its position with the weights"),
    ("tokens_per_update", "use the same batch size, accumulation and packing"),
    ("config.", "use the same settings"),
    ("planned_learning_rate", "use the same schedule"),
    ("vocabulary", "use the same tokenizer"),
    ("tokenizer_hash", "use the same tokenizer"),
    ("data_manifest", "use the same data"),
    ("tensors", "build the same model"),
    ("loss_scale", "scale the loss in both or in none"),
    ("commit", "run the same commit"),
    ("lock_hash", "install from one lock file"),
    ("environment", "use the same versions of framework, driver and libraries"),
    ("world_size", "use as many ranks: their number sets the order in which gradients are summed"),
)
"""Recorded differences, the likeliest source first; a name that ends with a dot includes all names below it."""

_GPU = "torch.use_deterministic_algorithms(True) and CUBLAS_WORKSPACE_CONFIG=:4096:8"


class ExactResult(Struct):
    """The result of comparing two runs.

    Attributes:
        first: Differences at the first step that has any, in the order in which a step computes them.
        equal: Number of equal values up to there.
        lacking: Sentences on values that only one of the runs recorded.
        unreadable: Sentences on files that could not be read.
        hashed: Number of compared hashes of tensors.
        checkpoints: Number of checkpoints of both that were read.
    """

    first: list[Departure]
    equal: int = 0
    lacking: list[str] = []
    unreadable: list[str] = []
    hashed: int = 0
    checkpoints: int = 0


@ignoring_float_errors
def exact(left: Path, right: Path, *, runs: tuple[Run, Run] | None = None, max_values: int = 20) -> Pair:
    """Compare two runs bit by bit: every log line, then every value of every common checkpoint and rank file, by step.

    Values that depend only on time are left out (`tells_time`). Hashes of tensor bytes are compared if both recorded them;
    without them two tensors with equal statistics count as equal. An unreadable checkpoint is named. Steps that a resume replaced
    are not compared.

    Args:
        left: The reference.
        right: The subject.
        runs: Both runs, if they were read already.
        max_values: Maximum number of reported values at the first step that differs.

    Raises:
        UnreadableError: If one of them is no run.
    """
    left_run, right_run = runs or (open_run(left, reads=()), open_run(right, reads=()))
    result = ExactResult([])
    lines = _scalars(left_run, right_run, result)
    seen = _checkpoints(left, right, result, lines[0].step if lines else None)
    result.first = _first_step([*lines, *seen])
    mismatches = find_mismatches(left_run, right_run)
    word, verdict = _verdict(result)
    return Pair(
        left=str(left),
        right=str(right),
        word=word,
        verdict=verdict,
        noise=BITS,
        unlike=mismatches,
        answers=[Answer(question="exact", title=TITLE, word=word, message=verdict)],
        parting=result.first[0] if result.first else None,
        propagation=result.first[:max_values],
        notes=[
            *_first_few(result.unreadable),
            *_first_few(result.lacking),
            *_hashes(result),
            *_replaced(left, "first"),
            *_replaced(right, "second"),
            *(sources(mismatches, result.first, left_run, right_run) if result.first else []),
        ],
    )


def _first_step(departures: list[Departure]) -> list[Departure]:
    """Return the differences at the first step, each place once, in the order in which a step computes them."""
    ordered = sorted(departures, key=_order)
    by_place = {
        (departure.statistic, departure.where): departure for departure in reversed(ordered) if departure.step == ordered[0].step
    }
    return [*reversed(by_place.values())]


def _order(departure: Departure) -> tuple[int, int, int]:
    name = departure.statistic
    section = name.partition(".")[0]
    key = "loss" if name == "train_loss_raw" else "gradients" if name.startswith("grad_") else section.removesuffix("_hash")
    rank = _RANKS.index(key) if key in _RANKS else len(_RANKS)
    return departure.step, rank, _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _verdict(result: ExactResult) -> tuple[Word, str]:
    if result.first:
        return "different", f"different: {result.first[0].message}"
    if not result.equal:
        return "not_recorded", "nothing was recorded by both runs that could be compared"
    both = f"{plural(result.equal, 'value')} of both are equal to the last bit"
    if left_out := [*result.unreadable, *result.lacking]:
        return "not_recorded", f"all {both}, but {left_out[0]}"
    return "same", f"the same: all {both}, what tells the time aside"


def _first_few(sentences: list[str], max_sentences: int = 5) -> list[str]:
    rest = len(sentences) - max_sentences
    return [*sentences[:max_sentences], f"{plural(rest, 'more difference')} of this kind"] if rest > 0 else sentences


def _hashes(result: ExactResult) -> Iterator[str]:
    if result.hashed:
        yield f"{plural(result.hashed, 'hash')} of tensor bytes compared"
    elif result.checkpoints:
        yield "no hash of tensor bytes is in both runs (Recorder(exact=True) writes them): only statistics were compared"


def _scalars(left: Run, right: Run, result: ExactResult) -> list[Departure]:
    """Return the differences at the first step whose log lines differ, and count the equal values before it."""
    found_at: list[tuple[int, str, Any, Any]] = []
    for name in dict.fromkeys((*left.scalars, *right.scalars)):
        if not tells_time(name):
            found_at += _columns(left.scalar(name), right.scalar(name), result)
    for name in dict.fromkeys((*left.texts, *right.texts)):
        if not tells_time(name):
            found_at += _words(left, right, name, result)
    first = min((step for step, *_ in found_at), default=None)
    return [_line(*difference) for difference in found_at if difference[0] == first]


def _line(step: int, name: str, left: Any, right: Any) -> Departure:
    message = f"{name} at step {step} is {describe_difference(left, right)}"
    return Departure(statistic=name, step=step, left=_document_number(left), right=_document_number(right), message=message)


def _columns(left: Series, right: Series, result: ExactResult) -> Iterator[tuple[int, str, Any, Any]]:
    """Yield the first difference of each label of a scalar."""
    for label in dict.fromkeys((*left.labels, *right.labels)):
        name = label if label in (left.name, right.name) else f"{left.name}/{label}"
        of_first, of_second = _column(left, label), _column(right, label)
        shared, rows_of_first, rows_of_second = np.intersect1d(of_first[0], of_second[0], assume_unique=True, return_indices=True)
        _lack(result, name, len(of_first[0]) - len(shared), len(of_second[0]) - len(shared))
        one, other = np.ascontiguousarray(of_first[1][rows_of_first]), np.ascontiguousarray(of_second[1][rows_of_second])
        unequal = np.flatnonzero((one.view(np.int64) != other.view(np.int64)) & ~(np.isnan(one) & np.isnan(other)))
        result.equal += len(shared) - len(unequal)
        if len(unequal):
            row = int(unequal[0])
            yield int(shared[row]), name, float(one[row]), float(other[row])


def _column(series: Series, label: str) -> tuple[Any, Any]:
    if label not in series.places:
        return np.empty(0, np.int64), np.empty(0)
    column = series.places[label]
    known = series.recorded[:, column]
    return series.steps[known], series.values[known, column]


def _words(left: Run, right: Run, name: str, result: ExactResult) -> Iterator[tuple[int, str, Any, Any]]:
    of_first, of_second = (
        dict(zip(run.texts[name].steps, run.texts[name].values, strict=True)) if name in run.texts else {}
        for run in (left, right)
    )
    shared = sorted(of_first.keys() & of_second.keys())
    _lack(result, name, len(of_first) - len(shared), len(of_second) - len(shared))
    unequal = [step for step in shared if of_first[step] != of_second[step]]
    result.equal += len(shared) - len(unequal)
    if unequal:
        yield unequal[0], name, of_first[unequal[0]], of_second[unequal[0]]


def _lack(result: ExactResult, name: str, left: int, right: int) -> None:
    for which, count in (("first", left), ("second", right)):
        if count:
            result.lacking.append(f"only the {which} has {name} at {plural(count, 'step')}")


def _checkpoints(left: Path, right: Path, result: ExactResult, until: int | None) -> list[Departure]:
    """Return the differences in the first checkpoint that is not identical, and in its rank files.

    Checkpoints after the step at which the log lines differ are not read. Unreadable ones are noted and skipped.
    """
    of_first, of_second = _files(left), _files(right)
    for which, only in (("first", of_first.keys() - of_second.keys()), ("second", of_second.keys() - of_first.keys())):
        for noun, some in (
            ("checkpoint", [key for key in only if key[1] < 0]),
            ("rank file", [key for key in only if key[1] >= 0]),
        ):
            if some:
                result.lacking.append(f"only the {which} has {plural(len(some), noun)}, the earliest at step {min(some)[0]}")
    departures: list[Departure] = []
    for step, rank in sorted(of_first.keys() & of_second.keys()):
        if (until is not None and step > until) or (departures and step > departures[0].step):
            break
        departures += _of_files(of_first[step, rank], of_second[step, rank], step, result)
    return departures


def _of_files(left: CheckpointFile, right: CheckpointFile, step: int, result: ExactResult) -> list[Departure]:
    one, other = _document(left, "first", result), _document(right, "second", result)
    if one is None or other is None:
        return []
    leaves = unequal_leaves(one, other)
    result.checkpoints += left.rank is None
    result.equal += leaves.equal
    result.hashed += leaves.hashed
    if leaves.lacking:
        result.lacking.append(f"at step {step} only one run has {', '.join(leaves.lacking[:3])}")
    return [_departure(leaf, step, right) for leaf in leaves.unequal]


def _document(file: CheckpointFile, which: str, result: ExactResult) -> Document | None:
    try:
        return read_document(file.path, file.shown)
    except UnreadableError as error:
        result.unreadable.append(f"in the {which} {error}: it was not compared")
        return None


def _files(path: Path) -> dict[tuple[int, int], CheckpointFile]:
    """Return the files of a run by step and rank, with rank -1 for the merged file, which comes first."""
    if not (path.is_dir() and is_ours(path)):
        return {}
    known = [file for file in list_folder(path).checkpoints if file.step is not None]
    return {(file.step or 0, -1 if file.rank is None else file.rank): file for file in known}


def _replaced(path: Path, which: str) -> Iterator[str]:
    count = len(list_folder(path).history) if path.is_dir() and is_ours(path) else 0
    if count:
        yield f"{plural(count, 'checkpoint')} of the {which} that a resume replaced stand beside the run and were not compared"


def _departure(leaf: UnequalValue, step: int, file: CheckpointFile) -> Departure:
    place = f" of {leaf.where}" if leaf.where else ""
    message = f"{leaf.statistic}{place} at step {step} ({file.shown}) is {describe_difference(leaf.left, leaf.right)}"
    return Departure(
        statistic=leaf.statistic.removeprefix("scalars."),
        where=leaf.where,
        step=step,
        left=_document_number(leaf.left),
        right=_document_number(leaf.right),
        message=message,
    )


def _document_number(value: Any) -> Number | None:
    """Return a number in the form of the document, None for a string."""
    return encode_float(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None


# Likely sources of a difference between two runs of one seed, from recorded facts and from its place, each with a remedy.
def sources(mismatches: Sequence[Unlike], first: Sequence[Departure], left: Run, right: Run) -> list[str]:
    """Return likely sources, a sentence each: those that the record shows, then those that the place suggests, likeliest first.

    Args:
        mismatches: Differences in the facts of both runs.
        first: Differences at the first step that has any, in the order in which a step computes them.
        left: The reference.
        right: The subject.
    """
    recorded = [f"{unlike.message}: {advice}" for name, advice in RECORDED for unlike in mismatches if _is_meant(unlike, name)]
    return [*dict.fromkeys((*recorded, *_resumes(first, left, right), *_of_place(first, left, right)))]


def _is_meant(unlike: Unlike, name: str) -> bool:
    """Tell whether a difference has the given name or one below it, and is not just recorded on one side."""
    is_below = unlike.name.startswith(name if name.endswith(".") else f"{name}.")
    return (unlike.name == name or is_below) and (bool(unlike.invalidates) or unlike.kind == "config")


def _resumes(first: Sequence[Departure], left: Run, right: Run) -> Iterator[str]:
    for which, run in (("first", left), ("second", right)):
        sessions = run.manifest.sessions if run.manifest else UNSET
        for session in (sessions or [])[1:]:
            start = session.resumed_from
            if start is not UNSET and first[0].step > start:
                what = f"the {which} was taken up again after step {start}, before they part at step {first[0].step}"
                yield f"{what}: restore the optimizer, the loss scale, the data position and every random state"


def _of_place(first: Sequence[Departure], left: Run, right: Run) -> Iterator[str]:
    """Yield the sources that the first tensor and its stage of the step suggest."""
    stage, tensor = first[0].statistic.partition(".")[0], next((departure.where for departure in first if departure.where), None)
    if stage in ("batch_hash", "batch_id", "data"):
        yield "the batches differ before anything is computed: seed the sampler and its workers, and sort the files that are read"
        return
    if stage == "learning_rate":
        yield "the learning rate differs before anything else does: compare the schedules and what a resume restores of them"
        return
    if first[0].step == 0:
        yield "the weights differ before the first update: seed before the model is built, and build its parts in one order"
        return
    rates = [run.manifest.dropout for run in (left, right) if run.manifest and run.manifest.dropout is not UNSET]
    if any(isinstance(rate, float) and rate > 0 for rate in rates):
        yield "dropout draws from the random state of its device: seed it in both, and let nothing else draw from it between"
    if not _on_processor(left, right):
        yield from _of_kernels(stage, left.tensors.kind(tensor) if tensor else "", tensor or "")
    if _ranks(left) > 1 or _ranks(right) > 1:
        yield "ranks sum gradients in an order that may change: fix the algorithm (NCCL_ALGO=Ring) and the size of its buckets"
    if stage in ("weights", "weight_deltas", "optimizer"):
        yield "gradients agree and weights do not: compare the optimizer's settings, its state and its fused or foreach variant"
    if _on_processor(left, right):
        yield "sums on a processor depend on the number of threads: set OMP_NUM_THREADS and torch.set_num_threads to the same"


def _of_kernels(stage: str, kind: str, tensor: str) -> Iterator[str]:
    if kind == "embedding":
        yield f"the gradient of the embedding {tensor} is summed by atomics: {_GPU}"
    if stage == "attention" or kind == "attention":
        yield (
            "the backward pass of fused attention adds in no fixed order: deterministic=True in FlashAttention, or "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
        )
    if kind == "router" or stage == "moe":
        yield f"routing scatters tokens by index_add and breaks ties by chance: {_GPU}"
    if kind == "conv":
        yield "cuDNN chooses its kernels by timing them: torch.backends.cudnn.benchmark = False and .deterministic = True"
    yield f"index_add, scatter_add and split sums of matrix products add in no fixed order: {_GPU}"
    yield "TF32 and other precisions of products may be set differently: torch.backends.cuda.matmul.allow_tf32 in both"


def _ranks(run: Run) -> int:
    size = run.manifest.world_size if run.manifest else UNSET
    sessions = (run.manifest.sessions if run.manifest else UNSET) or []
    sizes = [session.world_size for session in sessions if session.world_size is not UNSET]
    return max([*sizes, 1 if size is UNSET else size])


def _on_processor(left: Run, right: Run) -> bool:
    """Tell whether all tensors are known to be in CPU memory."""
    devices = [fact.device for run in (left, right) for fact in run.tensors.facts.values()]
    return bool(devices) and all(device == "cpu" for device in devices)
