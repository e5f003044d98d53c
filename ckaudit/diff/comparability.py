"""Differences of two runs before their first step: run.json, parameters, batches; those that invalidate most come first."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from msgspec import UNSET, to_builtins
from msgspec.structs import replace

from ckaudit.contract.schema.diff import Kind, Unlike
from ckaudit.contract.schema.manifest import Manifest, TensorFacts
from ckaudit.diff.checkpoint_values import brief
from ckaudit.diff.same_batches import PER_STEP, batch_mismatches, update_mismatches
from ckaudit.run.run import Run
from ckaudit.wording import first_names, plural

TRAINING = (*PER_STEP, "loss_at_equal_tokens", "loss_at_equal_time")

LOSSES = (*TRAINING, "validation_loss")

MACHINE = ("speed", "memory")

TENSORS = ("tensors",)

EXACT = ("exact",)

FACTS: tuple[tuple[str, Kind, tuple[str, ...], str], ...] = (
    ("vocabulary", "tokenizer", LOSSES, "a loss per token of another vocabulary is another quantity"),
    ("tokenizer_hash", "tokenizer", LOSSES, "a loss per token of another tokenizer is another quantity"),
    ("sequence_length", "data", LOSSES, "a loss over longer rows is lower by its context alone"),
    ("data_manifest", "data", TRAINING, "training losses on other data do not compare, only the validation loss does"),
    ("decoding", "evaluation", (), "scores of generated text do not compare"),
    ("world_size", "ranks", (*MACHINE, *EXACT), "speed and memory are those of another machine"),
    ("environment", "environment", ("speed", *EXACT), "kernels may round and run differently"),
    ("seed", "config", EXACT, "weights, data order and dropout differ by chance"),
    ("commit", "environment", EXACT, "the training code is not the same"),
    ("lock_hash", "environment", EXACT, "the installed packages are not the same"),
    ("source", "schema", (), "the runs were recorded by different programs or versions"),
    ("cadence", "cadence", (), "checkpoints were due at other steps"),
    ("loss_ema_beta", "config", (), "the logged average of the loss forgets at another pace"),
    ("model", "model", (), ""),
    ("config", "config", (), ""),
    ("dropout", "config", (), ""),
    ("clip_norm", "config", (), ""),
    ("warmup_steps", "config", (), ""),
    ("planned_steps", "config", (), ""),
    ("planned_learning_rate", "config", (), ""),
    ("peak_flops", "ranks", (), "the share of the peak is of another peak"),
)
"""Members of run.json, their kind, the questions that a difference invalidates, and why."""

WORTH_A_LINE = ("vocabulary", "tokenizer_hash", "data_manifest", "world_size", "sequence_length")
"""Members that are reported even if only one side has them."""

_UNIMPORTANT = re.compile(
    r"(^|[._])(name|id|dir|directory|path|file|folder|time|date|host|hostname|user|project|notes?|tags?|device|port|url|out|output"
    r"|log|logs|logger|logging|comment|change|seed|verbose|workers|num_workers|resume|resume_from\w*)$",
    re.IGNORECASE,
)

PLANS = ("seed", "loss_ema_beta", "planned_steps", "planned_learning_rate")
"""Members of run.json that are not settings which act from the first step on, or that show in the learning rate."""

_OF_INTERVALS = re.compile(r"(seed|every|interval|steps|epochs|eval|save|log|cache|print|report|until|after|from)", re.IGNORECASE)

_PLACE = re.compile(r"^(/|~|\\.{1,2}/|[A-Za-z]:\\\\|[a-z0-9]+://)")

_KINDS: tuple[str, ...] = get_args(Kind)

_HASH = re.compile(r"([0-9a-f]{12})[0-9a-f]{8,}")

TENSOR_SECTIONS = ("weights", "gradients", "weight_deltas")

TENSOR_FACTS: tuple[tuple[str, Kind, tuple[str, ...], str], ...] = (
    ("shape", "model", (*TENSORS, *EXACT), "of another shape"),
    ("dtype", "precision", (*MACHINE, *EXACT), "of another element type"),
    ("device", "environment", (*MACHINE, *EXACT), "on another kind of device"),
    ("trainable", "model", (), "trained in one run and not in the other"),
    ("tied_to", "model", (), "sharing their storage in one run and not in the other"),
)

_MAX_NAMED = 3

NO_TOKENS = "one model reads tokens and the other does not: their losses are other quantities"


def find_mismatches(left: Run, right: Run) -> list[Unlike]:
    """Return the differences of two runs, those that invalidate most questions first.

    Members that neither side recorded are not reported; of those that only one side has, only important ones are. Settings that
    differ invalidate nothing: they are the change under test.
    """
    unlikes = [*parameter_mismatches(left, right), *batch_mismatches(left, right), *update_mismatches(left, right)]
    unlikes += [*_facts(left.manifest, right.manifest), *_evaluations(left, right), *_steps(left, right)]
    return sorted(unlikes, key=lambda mismatch: (-len(mismatch.invalidates), _KINDS.index(mismatch.kind), mismatch.name))


def settings(unlikes: Sequence[Unlike]) -> list[Unlike]:
    """Return the differences that act from the first step on: no seed, and no interval of evaluations and logs."""
    return [
        mismatch
        for mismatch in unlikes
        if mismatch.kind in ("config", "model", "precision")
        and mismatch.name not in PLANS
        and not _OF_INTERVALS.search(mismatch.name)
    ]


def settings_of(manifest: Manifest, *plans: str) -> dict[str, Any]:
    """Return the configuration in a run.json by dotted names, including the shapes of its tensors.

    Args:
        manifest: run.json.
        plans: Members of `PLANS` that count as configuration.
    """
    of_configuration = [name for name, kind, *_ in FACTS if kind in ("config", "model", "tokenizer", "data")]
    wanted = [name for name in of_configuration if name not in PLANS or name in plans]
    configuration = {key: value for name in wanted for key, value in _flat(manifest, name).items() if _is_setting(key, value)}
    shapes = {} if manifest.tensors is UNSET else {name: facts.shape for name, facts in manifest.tensors.items()}
    return configuration | ({"tensors": to_builtins(shapes)} if shapes else {})


def _is_setting(key: str, value: Any) -> bool:
    return not (_UNIMPORTANT.search(key) or _OF_INTERVALS.search(key) or _is_place(value))


def _facts(left: Manifest | None, right: Manifest | None) -> Iterator[Unlike]:
    for name, kind, invalidates, why in FACTS:
        of_first, of_second = _flat(left, name), _flat(right, name)
        if of_first and of_second:
            keys = [key for key in dict.fromkeys((*of_first, *of_second)) if of_first.get(key) != of_second.get(key)]
            yield from _members(name, kind, invalidates, why, of_first, of_second, keys)
        elif (of_first or of_second) and name in WORTH_A_LINE:
            mismatch = _one_sided(name, kind, of_first, of_second)
            reads_none = name == "vocabulary" and _embeds_nothing(right if of_first else left)
            yield replace(mismatch, invalidates=list(LOSSES), message=NO_TOKENS) if reads_none else mismatch
        elif (of_first or of_second) and name == "config":
            which, values = ("first", of_first) if of_first else ("second", of_second)
            count = plural(len(values), "setting")
            message = f"only the {which} records its configuration, of {count}: what was changed is not known"
            yield Unlike(name=name, kind=kind, left=_count(of_first), right=_count(of_second), message=message)


def _embeds_nothing(manifest: Manifest | None) -> bool:
    """Tell whether run.json lists the tensors of a model, none of which is an embedding."""
    tensors = manifest.tensors if manifest is not None and manifest.tensors is not UNSET else {}
    return bool(tensors) and not any(facts.kind == "embedding" for facts in tensors.values())


def _members(
    name: str,
    kind: Kind,
    invalidates: tuple[str, ...],
    why: str,
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    keys: list[str],
) -> Iterator[Unlike]:
    """Yield a difference for each member that matters; a member that is one unit, such as a plan, is reported once."""
    for key in keys:
        one, other = left.get(key), right.get(key)
        if (name in ("config", "model", "data_manifest") and _UNIMPORTANT.search(key)) or (_is_place(one) and _is_place(other)):
            continue
        reason = f": {why}" if why else ""
        message = f"{key} is {_in_few_words(key, other)} in the second and {_in_few_words(key, one)} in the first{reason}"
        yield Unlike(name=key, kind=kind, left=_shown(one), right=_shown(other), invalidates=[*invalidates], message=message)


def _in_few_words(key: str, value: Any) -> str:
    """Return a short text for a value."""
    if value is None:
        return "not set"
    if key == "planned_learning_rate":
        rates = [float(pair[1]) for pair in value if len(pair) > 1]
        return f"a plan with a peak of {max(rates):.3g}" if rates else "a plan without points"
    if key == "cadence":
        return ", ".join(f"every {part['every']}" + (f" to {part['until']}" if part["until"] else "") for part in value)
    return _HASH.sub(r"\1...", brief(value))


def _one_sided(name: str, kind: Kind, left: Mapping[str, Any], right: Mapping[str, Any]) -> Unlike:
    which = "first" if left else "second"
    values = ", ".join(f"{key} {_shown(value)}" for key, value in (left or right).items())
    message = f"only the {which} says its {name.replace('_', ' ')} ({brief(values)}): whether both are alike is not recorded"
    return Unlike(name=name, kind=kind, left=_shown_all(left), right=_shown_all(right), message=message)


def _flat(manifest: Manifest | None, name: str) -> dict[str, Any]:
    """Return a member of run.json as plain values by dotted names."""
    value = _value(manifest, name) if manifest else UNSET
    if value is UNSET or value is None:
        return {}
    plain = to_builtins(value)
    return dict(_leaves(name, plain)) if isinstance(plain, dict) else {name: plain}


def _value(manifest: Manifest, name: str) -> Any:
    """Return a member of run.json; the seed may come from the configuration, and the number of ranks from the sessions."""
    value = getattr(manifest, name)
    if name == "seed" and value is UNSET:
        return (manifest.config or {}).get("seed")
    if name == "world_size":
        sizes = list(dict.fromkeys(session.world_size for session in manifest.sessions or () if session.world_size is not UNSET))
        return sizes[0] if len(sizes) == 1 else " and ".join(map(str, sizes)) or value
    return value


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    waiting = [(path, value)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{path}.{key}", member) for key, member in reversed(value.items())]
        else:
            yield path, value


def _is_place(value: Any) -> bool:
    return isinstance(value, str) and _PLACE.match(value) is not None


def _shown(value: Any) -> str:
    return "not set" if value is None else brief(value, 200)


def _shown_all(values: Mapping[str, Any]) -> str | None:
    return brief(", ".join(str(value) for value in values.values())) if values else None


def _count(values: Mapping[str, Any]) -> str | None:
    return plural(len(values), "setting") if values else None


def _evaluations(left: Run, right: Run) -> Iterator[Unlike]:
    """Yield a difference for each evaluation artifact that is not the same, by its last hash."""
    hashes_of_first, hashes_of_second = artifacts(left), artifacts(right)
    for name in dict.fromkeys((*hashes_of_first, *hashes_of_second)):
        one, other = hashes_of_first.get(name), hashes_of_second.get(name)
        if one == other:
            continue
        if one and other:
            message, invalid = f"{name} is another evaluation artifact: validation losses do not compare", ["validation_loss"]
        else:
            which, invalid = ("first" if one else "second"), []
            message = (
                f"only the {which} says the hash of the evaluation artifact {name}: whether both used the same is not recorded"
            )
        yield Unlike(
            name=f"eval_artifact_hash/{name}", kind="evaluation", left=one, right=other, invalidates=invalid, message=message
        )


def artifacts(run: Run) -> dict[str, str]:
    """Return the hash of each evaluation artifact: that of its last evaluation, else the one in run.json."""
    planned = run.manifest.eval_artifact_hashes if run.manifest else UNSET
    logged = {label: words.values[-1] for label, words in run.words("eval_artifact_hash").items() if words.values}
    return ({} if planned is UNSET else planned) | logged


def _steps(left: Run, right: Run) -> Iterator[Unlike]:
    """Yield that two runs have no checkpoints at the same step, or have records of different length."""
    steps_of_first, steps_of_second = (set(run.checkpoint_steps.tolist()) for run in (left, right))
    if steps_of_first and steps_of_second and not steps_of_first & steps_of_second:
        message = "no step has a checkpoint of both runs: tensors cannot be compared"
        yield Unlike(
            name="checkpoint_steps",
            kind="cadence",
            left=_range(steps_of_first),
            right=_range(steps_of_second),
            invalidates=[*TENSORS],
            message=message,
        )
    ends = left.last_step, right.last_step
    if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
        message = f"the second ends at step {ends[1]:,}, the first at step {ends[0]:,}: they are compared where both have steps"
        yield Unlike(name="last_step", kind="cadence", left=str(ends[0]), right=str(ends[1]), message=message)


def _range(steps: set[int]) -> str:
    return f"{plural(len(steps), 'checkpoint')}, {min(steps)} to {max(steps)}"


# Differences of the parameters of two runs: names, shapes, dtypes, devices, trained and shared tensors.
def parameter_mismatches(left: Run, right: Run) -> Iterator[Unlike]:
    """Yield the differences of the parameter tensors of two runs, and of the use of a loss scale."""
    names = tensor_names(left), tensor_names(right)
    if names[0] and names[1] and set(names[0]) != set(names[1]):
        yield _other_names(*names)
    for field, kind, invalidates, words in TENSOR_FACTS:
        facts = left.tensors.facts, right.tensors.facts
        values = [
            (name, _tensor_fact(facts[0][name], field), _tensor_fact(facts[1][name], field))
            for name in facts[0]
            if name in facts[1]
        ]
        apart = [value for value in values if value[1] != value[2] and (field == "tied_to" or None not in value[1:])]
        if apart:
            name, one, other = apart[0]
            message = f"{_some([value[0] for value in apart])} {'is' if len(apart) == 1 else 'are'} {words}: {one} and {other}"
            yield Unlike(
                name=f"tensors.{field}",
                kind=kind,
                left=f"{name}: {one}",
                right=f"{name}: {other}",
                invalidates=[*invalidates],
                message=message,
            )
    yield from _loss_scale(left, right)


def tensor_names(run: Run) -> tuple[str, ...]:
    """Return the names of a run's parameter tensors: from run.json, else from its checkpoints."""
    labels = (series.labels for path, series in run.sections.items() if path.partition(".")[0] in TENSOR_SECTIONS)
    return tuple(run.tensors.facts) or max(labels, key=len, default=())


def _other_names(left: Sequence[str], right: Sequence[str]) -> Unlike:
    gone, new = [name for name in left if name not in set(right)], [name for name in right if name not in set(left)]
    parts = [f"{_some(names)} only in the {which}" for names, which in ((gone, "first"), (new, "second")) if names]
    message = f"the models are not the same: {', '.join(parts)}; what they share is compared"
    count = plural(len(left), "tensor"), plural(len(right), "tensor")
    return Unlike(name="tensors", kind="model", left=count[0], right=count[1], invalidates=[*TENSORS, *EXACT], message=message)


def _tensor_fact(fact: TensorFacts, field: str) -> Any:
    value = getattr(fact, field)
    if value is UNSET:
        return None
    return value.partition(":")[0] if field == "device" else value


def _some(names: Sequence[str]) -> str:
    return f"{plural(len(names), 'tensor')} ({first_names(names, _MAX_NAMED)})"


def _loss_scale(left: Run, right: Run) -> Iterator[Unlike]:
    scaled = [bool(run.scalar("loss_scale") or run.value("optimizer.loss_scale")) for run in (left, right)]
    if scaled[0] != scaled[1]:
        which = "first" if scaled[0] else "second"
        values = ["scaled" if is_scaled else None for is_scaled in scaled]
        message = f"only the {which} records a scale of its loss, as mixed precision in float16 needs"
        yield Unlike(name="loss_scale", kind="precision", left=values[0], right=values[1], invalidates=[*EXACT], message=message)
