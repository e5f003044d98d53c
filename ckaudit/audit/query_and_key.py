"""The query and key matrices of a run, by the names that its tensors have."""

import re

from msgspec import UNSET

from ckaudit.run.run import Run

PLAIN = re.compile(r"[\w.]+", re.ASCII)
QUERY_OR_KEY = re.compile(r"q|k|qk|qkv|kv|c_attn|q_proj|k_proj|qkv_proj|query|key|query_key_value|in_proj_weight|wq|wk|wqkv")


def query_and_key(run: Run) -> tuple[str, ...]:
    """Return glob patterns of the run's own query and key matrices; empty: its tensors name none."""
    found: dict[str, None] = {}
    for name, fact in run.tensors.facts.items():
        parts = name.split(".")
        last = max((place for place, part in enumerate(parts) if part.isdecimal()), default=-1)
        matrix = fact.shape is UNSET or len(fact.shape) > 1
        # Only a plain name can be copied into a program.
        if last >= 0 and matrix and PLAIN.fullmatch(name) and any(QUERY_OR_KEY.fullmatch(part) for part in parts[last + 1 :]):
            found["*." + ".".join(parts[last + 1 :])] = None
    return tuple(found)
