"""tqdm's progress bars in a log: `Steps:  10%|█ | 50/500 [00:49<07:21, 1.02it/s, lr=0.0001, step_loss=0.12]`.

A bar is rewritten at each step, after a carriage return or on a new line. Its values follow its rate, or precede its
percentage as in `loss 2.31:  10%|█ | ...`; of several versions of one step the last counts. A bar that restarts after it was full
is the next epoch: update N is the steps of the bars before it plus its own. The same holds for a bar that is full again after
another bar, as OpenRLHF's between its episodes, and for one that restarts with a later epoch (`epoch 3:  40%|...`), full or not.
Returns of a policy are read as losses are. Values of a validation or test bar, and values of another line with an evaluation's
name, belong to the update before them. The rate of a bar is smoothed and is not read as a step time.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct, field

from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.kinds_of_loss import have_adversarial_losses
from ckaudit.importers.tables.numbers import number
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_reader import LogContent, RunFact, StepLines, step_lines
from ckaudit.importers.text.line_values import is_wanted, name_of
from ckaudit.importers.text.log import Format, NamedLines, is_text, no_run_facts, parsed_dialect, read_scanned
from ckaudit.importers.text.named_lines import named_lines
from ckaudit.importers.text.prefix import MAX_LINE

NAME = "progress bars (tqdm)"
GENERIC = False
MIN_STEPS = 5
"""Minimum number of steps whose bars show a loss in such a log."""

HEAD_BYTES = 2**21
_MARK = b"%|"
_LINE_END = re.compile(rb"[\r\n]+")
_BAR = re.compile(r"(\d{1,3})%\|[^|]{0,400}\| *(\d{1,12})/(\d{1,12}) \[[^,\]]{1,60}(?:, *[^,\]]{1,30})?([^\]]*)")
_VALUE = re.compile(
    r"(?<![\w./-])([A-Za-z_][\w/.-]{0,60}(?: [A-Za-z_][\w/.-]{0,60}){0,2})(?: ?[=:] ?| )"
    r"([-+]?(?:nan|inf|\d{1,20}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?))(?![\w/])",
    re.IGNORECASE,
)
_HELD_OUT = re.compile(r"(?<![a-z])(?:val|valid|validat\w*|eval\w*|dev|test\w*)(?![a-z])", re.IGNORECASE)
_EPOCH = re.compile(r"(?<![a-z])epoch\W{0,3}(\d{1,9})(?!\d|\.\d)", re.IGNORECASE)
_COUNTERS = frozenset({"epoch", "step", "global_step", "v_num", "train epoch", "training epoch"})
_REDUCED = "reduced_train_loss"
_SCORE = "microbench_score/"
_OF_EVALUATIONS = frozenset({"val_loss", "val_ppl"})


class BarValues(Struct, frozen=True):
    """The values of one version of a bar, or of another line, and their update.

    Attributes:
        line: The line number, where carriage returns end lines too.
        step: The update.
        values: Values by key.
    """

    line: int
    step: int
    values: dict[str, float]


class _Bar(Struct):
    """The current training bar.

    Attributes:
        before: Updates of the bars before it.
        done: Number of its steps that are done.
        total: Number of its steps.
        is_passed: Whether another bar came after it.
        epoch: Its epoch; None where it does not name one.
        starts: Updates before each epoch that a bar belonged to.
    """

    before: int = 0
    done: int = 0
    total: int = 0
    is_passed: bool = False
    epoch: int | None = None
    starts: dict[int, int] = field(default_factory=dict)

    def observe(self, done: int, total: int, epoch: int | None) -> int:
        """Update the bar to a new version, and return the update number of that version."""
        is_full = self.done == self.total
        begins_again = done < self.done or (is_full and done == total)
        epochs_later = 0 if epoch is None or self.epoch is None or not begins_again else epoch - self.epoch
        if epochs_later > 0 or (is_full and (self.is_passed or (done < self.done and not epochs_later))):
            self.before += self.total
        elif epochs_later < 0 and epoch is not None:
            self.before = self.starts.get(epoch, 0)
        elif total != self.total and self.total and done < self.done:
            self.before = 0
        self.done, self.total, self.is_passed, self.epoch = done, total, False, epoch
        if epoch is not None and (epochs_later or epoch not in self.starts):
            self.starts[epoch] = self.before
        return self.before + done


def detects(source: Source) -> bool:
    """Tell whether bars of several steps show losses or a return, and there are as many such steps as other lines with a loss."""
    if not is_text(source) or _MARK not in source.data[:HEAD_BYTES]:
        return False
    bars: list[bytes] = []
    others = 0
    for line in _LINE_END.split(source.data[:HEAD_BYTES]):
        if _MARK in line:
            bars.append(line)
        else:
            others += b"loss" in line
    steps = {version.step for version in _versions(b"\n".join(bars)) if _is_judged(version.values)}
    return len(steps) >= max(MIN_STEPS, others)


def _is_judged(keys: Collection[str]) -> bool:
    return have_adversarial_losses(keys) or any((name_of(key) or "").startswith(("train_loss_raw", _SCORE)) for key in keys)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the bars.

    Raises:
        UnreadableError: Where no step has a value.
        UsageError: Where `columns` names a key that no bar shows.
    """
    bars = _last_versions([*_versions(source.data)])
    rows = step_lines([(version.line, version.step, version.values) for version in bars])
    unwanted = [] if columns else [key for key in rows.columns if name_of(key) is None]
    log = LogContent(rows, [], error_lines(source.data), len(_LINE_END.split(source.data.rstrip(b"\r\n"))), [], unwanted)
    return read_scanned(log, source, columns, Format(parsed_dialect(NAME, is_wanted), _named, no_run_facts))


def _versions(data: bytes) -> Iterator[BarValues]:
    """Yield the values of all versions of bars that show any, and the evaluation values of other lines."""
    bar = _Bar()
    for place, raw in enumerate(_LINE_END.split(data), 1):
        if len(raw) > MAX_LINE or not (_MARK in raw or b"al" in raw):  # as in val or eval
            continue
        line = raw.decode("utf-8", errors="replace")
        match = _BAR.search(line)
        before = line[: match.start()] if match else line
        values = _values(before)
        if match is None or _HELD_OUT.search(before):
            if match:
                values |= _values(match[4])
            values = {_of_evaluation(key) if match else key: value for key, value in values.items()}
            values = {key: value for key, value in values.items() if name_of(key) in _OF_EVALUATIONS}
            step = bar.before + bar.done
        else:
            values |= _values(match[4])
            epoch = _EPOCH.search(before)
            step = bar.observe(int(match[2]), int(match[3]), int(epoch[1]) if epoch else None) if values else 0
            bar.is_passed |= not values
            if int(match[2]) == 0:  # nothing was done yet: what it shows was set before the first step, such as infinity
                continue
        if values and step > 0:
            yield BarValues(place, step, values)


def _values(text: str) -> dict[str, float]:
    pairs = ((match[1].lower(), number(match[2])) for match in _VALUE.finditer(text))
    values = {key: value for key, value in pairs if value is not None and key not in _COUNTERS}
    if _REDUCED in values and "loss" in values:
        values["smoothed loss"] = values.pop("loss")  # Lightning's mean over the last steps
    return values


def _of_evaluation(key: str) -> str:
    """Return the key of a loss in an evaluation's bar with the prefix "val", other keys unchanged."""
    return f"val {key}" if name_of(key) in ("train_loss_raw", "train_ppl") else key


def _last_versions(versions: Sequence[BarValues]) -> list[BarValues]:
    """Return the bars; of adjacent versions at one update with the same keys, only the last."""
    return [
        one
        for one, after in zip(versions, [*versions[1:], None], strict=True)
        if after is None or after.step != one.step or after.values.keys() != one.values.keys()
    ]


def _named(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
    return named_lines(rows, mapped, ["of a bar that was written over, each version is a step of its own"])
