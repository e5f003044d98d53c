"""What a run has and what it has not: attention, text, experts, a loss scaler, other ranks, an accelerator, claims."""

from collections.abc import Callable

from msgspec import UNSET

from ckaudit.audit.coverage.arguments import ARGUMENTS
from ckaudit.audit.coverage.unrecorded import why_absent
from ckaudit.audit.coverage.writer import source_of, trainer_of
from ckaudit.audit.query_and_key import query_and_key
from ckaudit.metrics.catalogue import Condition, actions, entries, entry_of
from ckaudit.run.run import Run

OUR_RECORDER = "ckaudit recorder"
# Benchmarks of any model at all, from graphs to speech: what their logs do not mention may not be there.
TABLES = ("AlgoPerf",)
TELL = "; --map tokens_seen=COLUMN or val_ppl=COLUMN would"
OF_TEXT = ("tokens_seen", "tokens_per_update", "tokens_per_sec", "train_ppl", "val_ppl", "bytes_per_token")


def why_not(run: Run, condition: Condition) -> str:
    """Return why a number makes no sense for a run, or an empty string where it does or nobody can tell."""
    return _ANSWERS[condition](run) if condition else ""


def why_not_metric(run: Run, name: str) -> str:
    """Return why a metric, or an argument of the recorder, makes no sense for a run; empty: it does, or nobody can tell."""
    if name in ARGUMENTS:
        return why_not(run, ARGUMENTS[name].only_with)
    owner = entry_of(name)
    return why_not_entry(run, owner) if owner else ""


def why_not_entry(run: Run, name: str) -> str:
    """Return why an entry makes no sense for a run, has no line there, or was looked for in vain; empty: it is asked for."""
    action, only_with = (entries().field(name, key) for key in ("action", "only_with"))
    with_trainer = actions()[action].way(trainer_of(run)).only_with
    return why_not(run, only_with or "") or why_not(run, with_trainer) or why_absent(run, name)


def _attention(run: Run) -> str:
    kinds = _kinds(run)
    if kinds:
        return "" if "attention" in kinds else "no tensor of the model is one of attention"
    recorded = any(name.startswith("attention.") and bool(series) for name, series in run.sections.items())
    silent = _is_table(run) and not (recorded or _says_text(run) or run.scalar("max_attn_logit") or run.scalar("attn_entropy"))
    return "nothing in the log says that the model has attention" if silent else ""


def _text(run: Run) -> str:
    if _says_text(run):
        return ""
    if _is_table(run):
        return f"nothing in the log says that the model reads text{TELL}"
    kinds = _kinds(run)
    # Our recorder knows an embedding by its class. Elsewhere, where nothing has a telling name, anything may embed tokens.
    known = "conv" in kinds or source_of(run).startswith(OUR_RECORDER)
    possible = {"embedding"} if known else {"embedding", "other"}
    return "no tensor of the model embeds tokens" if kinds and not kinds & possible else ""


def _says_text(run: Run) -> bool:
    facts = run.manifest
    told = facts is not None and any(each is not UNSET for each in (facts.vocabulary, facts.tokenizer_hash))
    task = facts.model.get("task") if facts is not None and facts.model is not UNSET else None
    return told or task == "translation" or any(run.scalar(name) for name in OF_TEXT)


def _is_table(run: Run) -> bool:
    return source_of(run).startswith(TABLES)


def _experts(run: Run) -> str:
    everything = {**run.sections, **run.scalars}
    recorded = any(bool(series) for name, series in everything.items() if name.startswith(("moe.", "moe_")))
    return "" if recorded or "router" in _kinds(run) else "nothing says that the model has experts"


def _loss_scaler(run: Run) -> str:
    """Only float16 needs one: bfloat16 has the range of float32."""
    names = ("loss_scale", "skipped_updates", "overflow_rate")
    if run.value("optimizer.loss_scale") or any(run.scalar(name) for name in names):
        return ""
    if source_of(run).startswith(OUR_RECORDER):
        return "the recorder was given no loss scaler"
    config = run.manifest.config if run.manifest and run.manifest.config is not UNSET else {}
    half = config.get("fp16") is True or any(fact.dtype == "float16" for fact in run.tensors.facts.values())
    return "" if half else "nothing says that the run trains in float16, which alone needs a loss scaler"


def _ranks(run: Run) -> str:
    return "one process trains alone" if run.manifest and run.manifest.world_size == 1 else ""


def _device(run: Run) -> str:
    devices = {fact.device for fact in run.tensors.facts.values()}
    return "the model is on the CPU" if devices == {"cpu"} else ""


def _chosen_weights(run: Run) -> str:
    return "" if query_and_key(run) else "no tensor is named like a query or key matrix"


def _claims(run: Run) -> str:  # noqa: ARG001  one signature for all
    """A claim is checked where there is one; nobody has to make it."""
    return "the log holds no number that follows from its others"


def _clipping(run: Run) -> str:
    told = (run.value("optimizer.clip_coefficient"), run.scalar("clip_coefficient"), run.scalar("grad_clip_rate"))
    facts = run.manifest
    limited = facts is not None and facts.clip_norm is not UNSET
    clips = (
        limited or trainer_of(run) == "huggingface" or any(bool(series) for series in told)
    )  # that one clips unless it is told not to
    return "" if clips else "nothing says that the training clips its gradients, as clip_norm= would"


def _recorder(run: Run) -> str:
    return "" if source_of(run).startswith("ckaudit") else "no recorder of ckaudit wrote the run"


def _dropout(run: Run) -> str:
    return "" if run.manifest and run.manifest.dropout else "nothing says that the model has dropout"


def _kinds(run: Run) -> set[str]:
    """Return the kinds of all tensors that the run names; empty: it names none."""
    return {run.tensors.kind(name) for name in run.tensors.facts}


_ANSWERS: dict[Condition, Callable[[Run], str]] = {
    "attention": _attention,
    "experts": _experts,
    "loss_scaler": _loss_scaler,
    "ranks": _ranks,
    "device": _device,
    "text": _text,
    "chosen_weights": _chosen_weights,
    "claims": _claims,
    "clipping": _clipping,
    "recorder": _recorder,
    "dropout": _dropout,
}
