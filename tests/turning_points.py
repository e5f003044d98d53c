"""Where the verdict of a rule, or the evidence of a cause, turns as one of its inputs is changed a little at a time.

A case shows a verdict at one place; a limit lies between two. Each input of a case is made larger and smaller, as a whole, in its
late half, at one point, at one label and against its first value, until something else is said; the factor at which that happens
is kept beside what is said then. A record is also cut after its first points, spaced wider, set to each threshold exactly, and
given without an input, a fact or a finding. Functions are called by themselves, on the series of their inputs, so
that a thousand such questions take a tenth of a second. Whatever turns in a way that was not seen before is a line in
`tests/verdicts/turning_points/`, which `python -m tests.case_verdicts` writes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, combinations
from types import FunctionType
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import fields, replace

from ckaudit.audit.judge import apply_rules, resolve
from ckaudit.causes.cause import Advice, Cause, Findings
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.violations import ViolationKind
from ckaudit.metrics import metrics
from ckaudit.rules.rule import Hit, Rule
from ckaudit.run.series import Floats, Series
from tests.cases import Case

Inputs = list[Any]
Said = tuple[tuple[str, ...], tuple[str, ...]]
"""What is said: of each thing its kind, which stands until the verdict turns, and the same with its numbers."""
Function = Callable[[Inputs], Said]
Ways = Iterable[tuple[str, Inputs]]
"""Inputs that differ from some, each with a word for how."""

WORDS = {metric.name for metric in metrics().values() if metric.function.__module__.endswith(".metrics.words")}
"""Metrics whose values stand for words, and cannot be more or less."""

LADDERS = (1.3, 3.0, 100.0), (1 / 1.3, 1 / 3.0, 1 / 100.0)
WHOLE_LADDERS = (*LADDERS[0], 1e8), (*LADDERS[1], 1e-8)
FEW = ("", "late half")
"""What is done to cases of a kind that is known, and to series of more than `MANY` steps, which take their time."""
MANY = 250
PRECISION = 0.01
BASES, CUTS = 8, 8
DIGITS = re.compile(r"-?\d[\d.,e+-]*")


# Where it turns.
def _part(values: Floats, factor: float, part: Any) -> Floats:
    changed = values.copy()
    changed[part] *= factor
    return changed


SCALED: dict[str, Callable[[Floats, float], Floats]] = {
    "": lambda values, factor: values * factor,
    "late half": lambda values, factor: _part(values, factor, slice(len(values) // 2, None)),
    "first": lambda values, factor: _part(values, factor, slice(1)),
    "middle": lambda values, factor: _part(values, factor, slice(len(values) // 2, len(values) // 2 + 1)),
    "end": lambda values, factor: _part(values, factor, slice(-1, None)),
    "first label": lambda values, factor: _part(values, factor, (slice(None), 0)),
    "change since the first": lambda values, factor: values[:1] + factor * (values - values[:1]),
}


def turns(function: Function, inputs: Inputs, usual: Said, place: int, kinds: Sequence[str]) -> Iterator[tuple[str, Said]]:
    """Yield at which factor on a part of an input something else is said than is usual, and what."""
    series = inputs[place]
    for name, change in ((name, SCALED[name]) for name in kinds):
        if series.values.shape[1 if name == "first label" else 0] == 1 and name:
            continue

        @cache
        def at_factor(factor: float, change: Callable[[Floats, float], Floats] = change) -> Said:
            return function(with_input(inputs, place, replace(series, values=change(series.values, factor))))

        for ladder in WHOLE_LADDERS if not name else LADDERS:
            turned = next((step for step, factor in enumerate(ladder) if at_factor(factor)[0] != usual[0]), None)
            if turned is not None:
                least = _least(
                    lambda factor, at_factor=at_factor: at_factor(factor)[0] != usual[0], (1.0, *ladder)[turned], ladder[turned]
                )
                yield f"{name} x {least:.3g}".strip(), at_factor(least)


def _least(is_turned: Callable[[float], bool], before: float, after: float) -> float:
    """Return a factor close to the one where something turns, on its far side."""
    while abs(after / before - 1) > PRECISION:
        middle = float(np.sqrt(before * after))
        before, after = (before, middle) if is_turned(middle) else (middle, after)
    return after


# What else may be done to an input.
def with_input(inputs: Inputs, place: int, other: object) -> Inputs:
    """Return inputs of which one is another."""
    return [*inputs[:place], other, *inputs[place + 1 :]]


def gaps(inputs: Inputs, place: int) -> Ways:
    """Yield inputs of which one is zero, negative, without a label, or holds NaN or nothing at its ends."""
    series: Series = inputs[place]
    yield "zero", with_input(inputs, place, replace(series, values=np.where(np.isfinite(series.values), 0.0, np.nan)))
    yield "negative", with_input(inputs, place, replace(series, values=-series.values))
    yield "NaN", with_input(inputs, place, replace(series, values=np.nan * series.values))
    for row, at in ((0, "first"), (-1, "last")):
        values, recorded = series.values.copy(), series.recorded.copy()
        values[row, 0], recorded[row, 0] = np.nan, False
        yield f"NaN at {at}", with_input(inputs, place, replace(series, values=values))
        yield f"none at {at}", with_input(inputs, place, replace(series, values=values, recorded=recorded))
    if len(series.labels) > 1:
        yield "without a label", with_input(inputs, place, series.only(lambda name: name != series.labels[0]))


def at_thresholds(inputs: Inputs, place: int, thresholds: Sequence[float]) -> Ways:
    """Yield inputs of which one is exactly at a threshold: throughout, after ones, or as a multiple of what it was at first."""
    series: Series = inputs[place]
    is_late = np.arange(len(series.steps))[:, None] >= len(series.steps) // 2
    for threshold in thresholds:
        for how, values in {
            "at": np.full(series.values.shape, threshold),
            "late at": np.where(is_late, threshold, 1.0),
            "late at first times": np.where(is_late, threshold, 1.0) * series.values[:1],
        }.items():
            cells = np.where(np.isfinite(series.values), values, series.values)
            yield f"{how} {threshold:g}", with_input(inputs, place, replace(series, values=cells))


def in_time(inputs: Inputs, counts: Sequence[int]) -> Ways:
    """Yield inputs that end or begin earlier or later, or whose steps lie further apart."""

    def each(change: Callable[[Series], Series]) -> Inputs:
        return [change(each) if isinstance(each, Series) else each for each in inputs]

    def since(series: Series, step: int) -> Series:
        rows = series.steps >= step
        return replace(series, steps=series.steps[rows], values=series.values[rows], recorded=series.recorded[rows])

    steps = sorted({int(step) for series in inputs if isinstance(series, Series) for step in series.steps})
    rows = [row for count in counts if count <= MANY for row in range(count - 2, count + 1) if row < len(steps)]
    ends = {*steps[:CUTS], *(steps[row] for row in rows)}
    yield from ((f"until {step}", each(lambda series, step=step: series.until(step))) for step in sorted(ends - {*steps[-1:]}))
    firsts = sorted({*steps[1:4], *steps[-3:]} - {*steps[:1]})
    yield from ((f"since {step}", each(lambda series, step=step: since(series, step))) for step in firsts)
    for factor in (2, 5, 20, 100):
        yield f"steps x {factor}", each(lambda series, factor=factor: replace(series, steps=series.steps * factor))


def in_facts(inputs: Inputs, place: int) -> Ways:
    """Yield inputs without a fact of the run, and with a number of it doubled or halved."""
    facts: Manifest = inputs[place]
    for field in fields(facts):
        value = getattr(facts, field.name)
        if value is msgspec.UNSET or field.name == "schema_version" or field.default is msgspec.NODEFAULT:
            continue
        others = {f"without {field.name}": field.default}
        if isinstance(value, int | float) and not isinstance(value, bool):
            others |= {f"{field.name} x 2": 2 * value, f"{field.name} / 2": type(value)(value / 2)}
        for how, other in others.items():
            yield how, with_input(inputs, place, replace(facts, **{field.name: other}))


Turns = Iterator[tuple[str, Said]]


def variations(function: Function, inputs: Inputs, usual: Said, names: Sequence[str], thresholds: Sequence[float]) -> Turns:
    """Yield everything that is said of inputs that differ from some, each with the name of the input that does."""
    counts = [int(each) for each in thresholds if each == int(each) and each > 1]
    yield from ((f"- {how}", function(other)) for how, other in in_time(inputs, counts))
    for place, name in enumerate(names):
        if inputs[place] is None:
            continue
        yield f"{name} missing", function(with_input(inputs, place, None))
        if isinstance(inputs[place], Manifest):
            yield from ((f"{name} {how}", function(other)) for how, other in in_facts(inputs, place))
        elif name in WORDS:
            for word in range(4):
                verdict = function(with_input(inputs, place, replace(inputs[place], values=word + 0 * inputs[place].values)))
                yield f"{name} {word}", verdict
        else:
            kinds = tuple(SCALED) if len(inputs[place].steps) <= MANY else FEW
            yield from ((f"{name} {how}", verdict) for how, verdict in turns(function, inputs, usual, place, kinds))
            others = chain(gaps(inputs, place), at_thresholds(inputs, place, thresholds))
            yield from ((f"{name} {how}", function(other)) for how, other in others)


def rescalings(function: Function, inputs: Inputs, usual: Said, names: Sequence[str]) -> Turns:
    """Yield what is said where a short input is larger or smaller as a whole: of cases of a kind that is known."""
    for place, name in enumerate(names):
        if isinstance(inputs[place], Series) and name not in WORDS and len(inputs[place].steps) <= MANY:
            yield from ((f"{name} {how}", verdict) for how, verdict in turns(function, inputs, usual, place, FEW))


def numbers_of(function: Callable[..., Any]) -> list[float]:
    """Return the limits that a function and those beside it are given: defaults, and constants of their module."""
    module = function.__globals__
    beside = [each for each in module.values() if isinstance(each, FunctionType) and each.__module__ == function.__module__]
    named = [value for name, value in module.items() if name.isupper()]
    values = (*named, *(value for each in (function, *beside) for value in (each.__kwdefaults__ or {}).values()))
    return sorted({float(each) for each in values if isinstance(each, int | float) and each})


def new_lines(all_said: Iterable[tuple[str, Said]], usual: Said, seen: set[tuple[str, ...]]) -> Iterator[str]:
    """Yield a line for whatever an input, or a finding, makes say for the first time, but for its numbers."""
    for how, (_, verdict) in all_said:
        told = [f"+ {each}" for each in verdict if each not in usual[1]]
        told += [f"- {' '.join(each.split()[:2])}" for each in usual[1] if each not in verdict]
        key = (how.partition(" ")[0], *(DIGITS.sub("#", each) for each in told))
        if told and key not in seen:
            seen.add(key)
            yield f"  {how}: {'; '.join(told)}\n"


def with_heading(name: str, lines: Iterator[str]) -> list[str]:
    """Return lines below the name of a case; nothing where there is none."""
    found = list(lines)
    return [f"# {name}\n", *found] if found else []


class Bases:
    """The first few cases in which something is said, or an input there or not, that was not so in those before."""

    def __init__(self) -> None:
        self._seen: set[tuple[int | str, object]] = set()
        self._count = 0

    def takes(self, inputs: Inputs, usual: Said) -> bool:
        """Tell whether a case has something new."""
        told = {("sentence", DIGITS.sub("#", each.partition(": ")[2] or each)) for each in usual[1]}
        found = {*told, ("words", len(usual[1])), *((place, each is None) for place, each in enumerate(inputs))}
        is_new = not found <= self._seen and self._count < BASES
        self._seen |= found
        self._count += is_new
        return is_new


def _given(inputs: Inputs) -> Inputs:
    return [each if each or isinstance(each, Manifest) else None for each in inputs]


# Rules.
@ignoring_float_errors
def of_rule(rule: Rule, cases: Sequence[Case]) -> str:
    """Return where the verdicts of a rule turn, beside its cases."""
    names = [getattr(each, "name", "run.json") for each in (*rule.needs, *rule.wants)]
    thresholds = numbers_of(rule.function)

    def function(inputs: Inputs) -> Said:
        given = _given(inputs)
        return (("nothing",), ("nothing",)) if None in given[: len(rule.needs)] else _of_hits(rule, given)

    bases, seen, lines = Bases(), set[tuple[str, ...]](), list[str]()
    for case in cases:
        inputs = resolve((*rule.needs, *rule.wants), case.run)
        usual = function(inputs)
        is_base = bases.takes(inputs, usual)
        turned = variations(function, inputs, usual, names, thresholds) if is_base else rescalings(function, inputs, usual, names)
        lines += with_heading(case.name, new_lines(turned, usual, seen))
    return "".join(lines)


def _of_hits(rule: Rule, inputs: Inputs) -> Said:
    kinds, numbers = [], []
    for each in rule.function(*inputs):
        if isinstance(each, Hit):
            kinds.append(f"{each.severity} {each.where} {each.first}-{each.last}")
            sizes = [f"{size:.2g}" for size in (each.value, each.limit) if size is not None]
            numbers.append(f"{kinds[-1]}, worst {each.worst}, {each.points} points, {', '.join(sizes)}")
        else:
            kinds.append(each.reason)
            numbers.append(f"{each.reason}: {each.detail}")
    return tuple(kinds), tuple(numbers)


# Causes.
@ignoring_float_errors
def of_cause(cause: Cause, cases: Sequence[Case]) -> str:
    """Return where the evidence of a cause turns, beside its cases, and what each finding says for it."""
    names = [getattr(each, "name", "run.json") for each in cause.wants]
    thresholds = numbers_of(cause.function)
    signs, nothing = _signs(cause), ("nothing recorded", Findings(()), [None] * len(names))
    bases, seen, lines = Bases(), set[tuple[str, ...]](), list[str]()
    for name, findings, inputs in chain([nothing], _material(cause, signs, cases)):

        def function(inputs: Inputs, findings: Findings = findings) -> Said:
            return _of_evidence(cause, findings, _given(inputs))

        usual = function(inputs)
        if not bases.takes(inputs, usual):
            turned = rescalings(function, inputs, usual, names)
        else:
            of_findings = ((how, function(inputs, other)) for how, other in _other_findings(signs, findings))
            of_pairs = _pairs(lambda other, inputs=inputs, function=function: function(inputs, other), signs)
            turned = chain(of_findings, () if findings.all else of_pairs, variations(function, inputs, usual, names, thresholds))
        lines += with_heading(name, new_lines(turned, usual, seen))
    return "".join(lines)


def _material(
    cause: Cause, signs: Sequence[Rule | ViolationKind], cases: Sequence[Case]
) -> Iterator[tuple[str, Findings, Inputs]]:
    """Yield each case with what is found in it, of what the cause looks at, and its inputs."""
    rules = [each for each in signs if isinstance(each, Rule)]
    for case in cases:
        found = (*apply_rules(case.run, rules).findings, *case.run.findings)
        yield case.name, Findings(tuple(each for each in found if each.severity != "note")), resolve(cause.wants, case.run)


def _of_evidence(cause: Cause, findings: Findings, inputs: Inputs) -> Said:
    verdict = list(cause.function(findings, *inputs))
    kinds = ["advice" if isinstance(each, Advice) else f"{each.weight:+.2f} {each.reference}" for each in verdict]
    return tuple(kinds), tuple(f"{kind}: {each.sentence}" for kind, each in zip(kinds, verdict, strict=True))


def _other_findings(signs: Sequence[Rule | ViolationKind], findings: Findings) -> Iterator[tuple[str, Findings]]:
    """Yield findings of which one is missing, or to which one is added, in several shapes."""
    for finding in findings.all:
        yield f"{finding.code} missing", Findings(tuple(each for each in findings.all if each is not finding))
    for sign in signs:
        for how, finding in {
            "found": _found(sign),
            "at first": _found(sign, first_step=0),
            "at last": _found(sign, first_step=100_000, last_step=100_000),
            "as sev1": _found(sign, severity="sev1"),
            "below its limit": _found(sign, value=0.5),
            "without steps": _found(sign, where=None, first_step=None, last_step=None),
        }.items():
            yield f"{sign.code} {how}", Findings((*findings.all, finding))


def _pairs(function: Callable[[Findings], Said], signs: Sequence[Rule | ViolationKind]) -> Turns:
    """Yield what is said of two findings together and of neither alone."""
    found = {sign.code: _found(sign, severity="sev1") for sign in signs}
    alone = {code: function(Findings((finding,)))[1] for code, finding in found.items()}
    for one, other in combinations(found, 2):
        verdict = function(Findings((found[one], found[other])))
        if not set(verdict[1]) <= {*alone[one], *alone[other]}:
            yield f"{one} and {other}", verdict


def _found(sign: Rule | ViolationKind, **fields: Any) -> Finding:
    """Return a finding of a kind, with other fields than the usual."""
    return Finding(
        **{
            "code": sign.code,
            "name": "found",
            "severity": "sev2",
            "message": "as found",
            "where": "blocks.0.w",
            "first_step": 50,
            "last_step": 60,
            "worst_step": 55,
            "value": 2.0,
            "limit": 1.0,
            "points": 3,
            **fields,
        }
    )


def _signs(cause: Cause) -> list[Rule | ViolationKind]:
    """Return the rules whose findings a cause looks at, by name or through what it shares with others."""
    own = cause.function.__globals__
    shared = [each.__globals__ for each in own.values() if isinstance(each, FunctionType) and "causes.shared" in each.__module__]
    found = {each.code: each for names in (own, *shared) for each in names.values() if isinstance(each, Rule | ViolationKind)}
    return [found[code] for code in sorted(found)]
