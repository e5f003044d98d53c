"""What is not alike in two runs before a single step is compared, what invalidates most first."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from msgspec import UNSET, to_builtins

from ckaudit.contract.schema.diff import Kind, Unlike
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.diff.batches import unlike_batches, unlike_updates
from ckaudit.diff.parameters import unlike_parameters
from ckaudit.diff.question_ids import EXACT, LOSSES, MACHINE, TENSORS, TRAINING
from ckaudit.material.counts import plural
from ckaudit.run.run import Run

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
"""Members of run.json, what each belongs to, what it invalidates, and why."""

MATTERS = ("vocabulary", "tokenizer_hash", "data_manifest", "world_size", "sequence_length")
"""What is worth a line where only one side says it."""

_UNIMPORTANT = re.compile(
    r"(^|[._])(name|id|dir|directory|path|file|folder|time|date|host|hostname|user|project|notes?|tags?|device|port|url|out|output"
    r"|log|logs|logger|logging|comment|change|seed|verbose|workers|num_workers|resume|resume_from\w*)$",
    re.IGNORECASE,
)
_PLACE = re.compile(r"^(/|~|\\.{1,2}/|[A-Za-z]:\\\\|[a-z0-9]+://)")
_KINDS: tuple[str, ...] = get_args(Kind)
_HASH = re.compile(r"([0-9a-f]{12})[0-9a-f]{8,}")


def unlike(left: Run, right: Run) -> list[Unlike]:
    """Return what is not alike in two runs, what leaves most questions without an answer first.

    What nobody recorded on either side is not told; of what only one side says, only what matters. Settings that differ
    invalidate nothing: they are the change under test.
    """
    unlikes = [*unlike_parameters(left, right), *unlike_batches(left, right), *unlike_updates(left, right)]
    unlikes += [*_facts(left.manifest, right.manifest), *_evaluations(left, right), *_steps(left, right)]
    return sorted(unlikes, key=lambda each: (-len(each.invalidates), _KINDS.index(each.kind), each.name))


def _facts(left: Manifest | None, right: Manifest | None) -> Iterator[Unlike]:
    for name, kind, invalidates, why in FACTS:
        mine, theirs = _flat(left, name), _flat(right, name)
        if mine and theirs:
            keys = [key for key in dict.fromkeys((*mine, *theirs)) if mine.get(key) != theirs.get(key)]
            yield from _members(name, kind, invalidates, why, mine, theirs, keys)
        elif (mine or theirs) and name in MATTERS:
            yield _one_sided(name, kind, mine, theirs)
        elif (mine or theirs) and name == "config":
            which, said = ("first", mine) if mine else ("second", theirs)
            message = (
                f"only the {which} records its configuration, of {plural(len(said), 'setting')}: what was changed is not known"
            )
            yield Unlike(name=name, kind=kind, left=_count(mine), right=_count(theirs), message=message)


def _members(
    name: str,
    kind: Kind,
    invalidates: tuple[str, ...],
    why: str,
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    keys: list[str],
) -> Iterator[Unlike]:
    """Yield a difference of each member that matters; a whole that is one thing, such as a plan, is told once."""
    for key in keys:
        one, other = left.get(key), right.get(key)
        if (name in ("config", "model", "data_manifest") and _UNIMPORTANT.search(key)) or (_is_place(one) and _is_place(other)):
            continue
        reason = f": {why}" if why else ""
        message = f"{key} is {_brief(key, other)} in the second and {_brief(key, one)} in the first{reason}"
        yield Unlike(name=key, kind=kind, left=_shown(one), right=_shown(other), invalidates=[*invalidates], message=message)


def _brief(key: str, value: Any) -> str:
    """Return a value as a few words."""
    if value is None:
        return "not set"
    if key == "planned_learning_rate":
        return f"a plan with a peak of {max(float(rate) for _, rate in value):.3g}"
    if key == "cadence":
        return ", ".join(f"every {each['every']}" + (f" to {each['until']}" if each["until"] else "") for each in value)
    return _HASH.sub(r"\1...", _cut(str(value)))


def _one_sided(name: str, kind: Kind, left: Mapping[str, Any], right: Mapping[str, Any]) -> Unlike:
    which = "first" if left else "second"
    said = ", ".join(f"{key} {_shown(value)}" for key, value in (left or right).items())
    message = f"only the {which} says its {name.replace('_', ' ')} ({_cut(said)}): whether both are alike is not recorded"
    return Unlike(name=name, kind=kind, left=_shown_all(left), right=_shown_all(right), message=message)


def _flat(manifest: Manifest | None, name: str) -> dict[str, Any]:
    """Return a member of run.json as plain values by dotted names."""
    value = _value(manifest, name) if manifest else UNSET
    if value is UNSET or value is None:
        return {}
    plain = to_builtins(value)
    return dict(_leaves(name, plain)) if isinstance(plain, dict) else {name: plain}


def _value(manifest: Manifest, name: str) -> Any:
    """Return a member of run.json; a seed that only the configuration says, and the ranks that every session had."""
    value = getattr(manifest, name)
    if name == "seed" and value is UNSET:
        return (manifest.config or {}).get("seed")
    if name == "world_size":
        sizes = list(dict.fromkeys(session.world_size for session in manifest.sessions or () if session.world_size is not UNSET))
        return sizes[0] if len(sizes) == 1 else " and ".join(map(str, sizes)) or value
    return value


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, member in value.items():
        yield from _leaves(f"{path}.{key}", member)


def _is_place(value: Any) -> bool:
    return isinstance(value, str) and _PLACE.match(value) is not None


def _shown(value: Any) -> str:
    return "not set" if value is None else _cut(str(value), 200)


def _shown_all(values: Mapping[str, Any]) -> str | None:
    return _cut(", ".join(str(value) for value in values.values())) if values else None


def _cut(text: str, max_characters: int = 80) -> str:
    return text if len(text) <= max_characters else text[: max_characters - 3] + "..."


def _count(values: Mapping[str, Any]) -> str | None:
    return plural(len(values), "setting") if values else None


def _evaluations(left: Run, right: Run) -> Iterator[Unlike]:
    """Yield each evaluation artifact that is not the same, by its last hash."""
    mine, theirs = artifacts(left), artifacts(right)
    for name in dict.fromkeys((*mine, *theirs)):
        one, other = mine.get(name), theirs.get(name)
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
    """Return the hash of each evaluation artifact: that of its last evaluation, else what run.json says."""
    planned = run.manifest.eval_artifact_hashes if run.manifest else UNSET
    logged = {label: words.values[-1] for label, words in run.words("eval_artifact_hash").items() if words.values}
    return ({} if planned is UNSET else planned) | logged


def _steps(left: Run, right: Run) -> Iterator[Unlike]:
    """Yield that two runs with checkpoints have none at the same step, or a record of other length."""
    mine, theirs = (set(run.checkpoint_steps.tolist()) for run in (left, right))
    if mine and theirs and not mine & theirs:
        message = "no step has a checkpoint of both runs: tensors cannot be compared"
        yield Unlike(
            name="checkpoint_steps",
            kind="cadence",
            left=_range(mine),
            right=_range(theirs),
            invalidates=[*TENSORS],
            message=message,
        )
    ends = left.last_step, right.last_step
    if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
        message = f"the second ends at step {ends[1]:,}, the first at step {ends[0]:,}: they are compared where both have steps"
        yield Unlike(name="last_step", kind="cadence", left=str(ends[0]), right=str(ends[1]), message=message)


def _range(steps: set[int]) -> str:
    return f"{plural(len(steps), 'checkpoint')}, {min(steps)} to {max(steps)}"
