"""What run.json says of a run, flat and as text, so that runs can be grouped by it and searched for what they share."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.run.run import Run

MAX_FACTS = 400
MAX_LENGTH = 200
BATCHES = 8
"""Batches by whose hashes an order of the data is known again; a run that ended before them has none, or it would be its own."""
PARTS = ("config", "model", "environment", "data_manifest")
"""What run.json holds of any size."""
NODES = ("node", "host", "hostname", "nodename")
DEVICES = ("device", "gpu", "gpu_uuid", "accelerator")


def facts_of(run: Run) -> dict[str, str]:
    """Return what is known of a run besides its numbers; each value is cut off after 200 characters."""
    manifest = run.manifest
    found = dict(_order(run))
    if manifest is not None:
        found |= dict(_named(manifest))
        for prefix in PARTS:
            part = getattr(manifest, prefix)
            found |= {} if part is UNSET else {f"{prefix}.{name}": value for name, value in flat(part)}
        found |= dict(_place(manifest, found))
    kept = sorted(found, key=lambda name: name.startswith(PARTS))[:MAX_FACTS]  # of a huge configuration the rest is left out
    return {name: found[name] for name in sorted(kept)}


def flat(value: Any, prefix: str = "", *, depth: int = 12) -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested dictionaries by their path with dots; a list is one leaf, and so is what lies too deep.

    >>> dict(flat({"optimizer": {"lr": 0.01}, "betas": [0.9, 0.99], "seed": None}))
    {'optimizer.lr': '0.01', 'betas': '[0.9, 0.99]', 'seed': 'null'}
    """
    if not isinstance(value, dict) or not depth:
        yield prefix, shown(value)
        return
    for key, inner in value.items():
        yield from flat(inner, f"{prefix}.{key}" if prefix else str(key), depth=depth - 1)


def shown(value: Any) -> str:
    """Return a value as text: a word as it is, anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 3]}..."


def _named(manifest: Manifest) -> Iterator[tuple[str, str]]:
    for name in ("name", "source", "trainer", "seed", "parameters", "world_size", "tokenizer_hash", "lock_hash"):
        value = getattr(manifest, name)
        if value is not UNSET:
            yield name, shown(value)
    sessions = manifest.sessions or []
    commits = [manifest.commit, *(session.commit for session in sessions)]
    if commit := next((commit for commit in commits if commit is not UNSET), None):
        yield "git.commit", shown(commit)
    if sessions:
        yield "sessions", str(len(sessions))
        if sessions[0].start is not UNSET:
            yield "start", shown(sessions[0].start)


def _place(manifest: Manifest, found: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield on which nodes and devices a run was trained, as its sessions, its environment or its configuration says."""
    for fact, field, names in (("node", "node", NODES), ("device", "accelerator", DEVICES)):
        told = (getattr(session, field) for session in manifest.sessions or ())
        known = list(dict.fromkeys(value for value in told if value is not UNSET))
        keys = (f"{prefix}.{name}" for name in names for prefix in ("environment", "config"))
        if value := ", ".join(known) or next((found[key] for key in keys if key in found), None):
            yield fact, shown(value)
        elif fact == "device" and manifest.tensors is not UNSET:
            devices = {facts.device for facts in manifest.tensors.values() if facts.device is not UNSET}
            if devices:
                yield fact, shown(", ".join(sorted(devices)))


def _order(run: Run) -> Iterator[tuple[str, str]]:
    """Yield by what the order of the data is known again: the hashes of its first batches, where they were recorded."""
    for name in ("input_hash", "batch_id"):
        labels = run.texts.get(name)
        if labels is not None and len(labels.values) >= BATCHES:
            first = "\n".join(f"{step} {word}" for step, word in zip(labels.steps[:BATCHES], labels.values, strict=False))
            yield "data_order", hashlib.blake2b(first.encode(errors="replace"), digest_size=8).hexdigest()
            return
