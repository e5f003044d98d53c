"""Applicability: who wrote a run, what its recorder received, and which numbers make sense for it."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from msgspec import UNSET, Struct

from ckaudit import __version__
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import CatalogueEntry, Condition, Trainer, actions, entries, entry_of
from ckaudit.run.run import Run

HUGGING_FACE = "Hugging Face"
LIGHTNING = "Lightning"
LIGHTNING_LOG = "metrics.csv"  # file name of its CSVLogger, also if the columns do not suffice to recognise it
TRAINER_ARGUMENT = "per_device_train_batch_size"  # only the Trainer's arguments have it
OUR_RECORDER = "ckaudit recorder"
TABLES = ("AlgoPerf",)  # benchmarks of all kinds of models, from graphs to speech: what their logs do not mention may not exist
TELL = "; --map tokens_seen=COLUMN or val_ppl=COLUMN would"
OF_TEXT = ("tokens_seen", "tokens_per_update", "tokens_per_sec", "train_ppl", "val_ppl", "bytes_per_token")
PLAIN = re.compile(r"[\w.]+", re.ASCII)
QUERY_OR_KEY = re.compile(r"q|k|qk|qkv|kv|c_attn|q_proj|k_proj|qkv_proj|query|key|query_key_value|in_proj_weight|wq|wk|wqkv")


def source_of(run: Run) -> str:
    """Return the program that wrote a run, or the format that it was imported from; empty if unknown."""
    return run.manifest.source if run.manifest and run.manifest.source is not UNSET else ""


def trainer_of(run: Run) -> Trainer:
    """Return the trainer that ran the loop, whose users configure a callback instead of a recorder; empty if unknown."""
    return run.derived("trainer", lambda: _trainer(run))


def _trainer(run: Run) -> Trainer:
    facts = run.manifest
    is_its_log = source_of(run) == "CSV" and Path(run.name).name == LIGHTNING_LOG
    if (facts is not None and facts.trainer == "lightning") or source_of(run).startswith(LIGHTNING) or is_its_log:
        return "lightning"
    config = facts.config if facts and facts.config is not UNSET else {}
    is_huggingface = facts is not None and facts.trainer == "huggingface"
    return "huggingface" if is_huggingface or source_of(run).startswith(HUGGING_FACE) or TRAINER_ARGUMENT in config else ""


def why_not_applicable(run: Run, condition: Condition) -> str:
    """Return why a number makes no sense for a run; empty if it makes sense, or if that is unknown."""
    return run.derived(("why not", condition), lambda: _ANSWERS[condition](run)) if condition else ""


def why_metric_not_applicable(run: Run, name: str) -> str:
    """Return why a metric or a recorder argument makes no sense for a run; empty if it does, or if that is unknown."""
    if name in ARGUMENTS:
        return why_not_applicable(run, ARGUMENTS[name].only_with)
    owner = entry_of(name)
    return why_entry_not_applicable(run, owner) if owner else ""


def why_entry_not_applicable(run: Run, name: str) -> str:
    """Return why an entry is not asked for: it makes no sense, has no line, or cannot be measured; empty if it is."""
    return run.derived(("why not", "entry", name), lambda: _why_not_entry(run, name))


def _why_not_entry(run: Run, name: str) -> str:
    action, only_with = (entries().field(name, key) for key in ("action", "only_with"))
    with_trainer = actions()[action].way(trainer_of(run)).only_with
    return why_not_applicable(run, only_with or "") or why_not_applicable(run, with_trainer) or why_absent(run, name)


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
    # ckaudit's recorder identifies an embedding by its class. Otherwise, without telling names, any module may embed tokens.
    known = "conv" in kinds or source_of(run).startswith(OUR_RECORDER)
    possible = {"embedding"} if known else {"embedding", "other"}
    return "no tensor of the model embeds tokens" if kinds and not kinds & possible else ""


def _says_text(run: Run) -> bool:
    facts = run.manifest
    names_tokens = facts is not None and any(fact is not UNSET for fact in (facts.vocabulary, facts.tokenizer_hash))
    task = facts.model.get("task") if facts is not None and facts.model is not UNSET else None
    return names_tokens or task == "translation" or any(run.scalar(name) for name in OF_TEXT)


def _is_table(run: Run) -> bool:
    return source_of(run).startswith(TABLES)


def _experts(run: Run) -> str:
    everything = {**run.sections, **run.scalars}
    recorded = any(bool(series) for name, series in everything.items() if name.startswith(("moe.", "moe_")))
    return "" if recorded or "router" in _kinds(run) else "nothing says that the model has experts"


def _loss_scaler(run: Run) -> str:
    """Only float16 needs a loss scaler: bfloat16 has the range of float32."""
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


def query_and_key(run: Run) -> tuple[str, ...]:
    """Return glob patterns of the run's own query and key matrices; empty if its tensor names show none."""
    patterns: dict[str, None] = {}
    for name, fact in run.tensors.facts.items():
        parts = name.split(".")
        last = max((place for place, part in enumerate(parts) if part.isdecimal()), default=-1)
        matrix = fact.shape is UNSET or len(fact.shape) > 1
        # Only a plain name can be copied into a program.
        if last >= 0 and matrix and PLAIN.fullmatch(name) and any(QUERY_OR_KEY.fullmatch(part) for part in parts[last + 1 :]):
            patterns["*." + ".".join(parts[last + 1 :])] = None
    return tuple(patterns)


def _claims(run: Run) -> str:  # noqa: ARG001  one signature for all
    """Claims are checked if they are logged, but need not be logged."""
    return "the log holds no number that follows from its others"


def _loss_terms(run: Run) -> str:
    """Most losses have none of these terms, and an unlogged term leaves no trace."""
    return "" if run.scalar("loss_part") else "no divergence of a code and no loss of a discriminator is logged by itself"


def _clipping(run: Run) -> str:
    clipped = (run.value("optimizer.clip_coefficient"), run.scalar("clip_coefficient"), run.scalar("grad_clip_rate"))
    facts = run.manifest
    limited = facts is not None and facts.clip_norm is not UNSET
    clips = (
        limited or trainer_of(run) == "huggingface" or any(bool(series) for series in clipped)
    )  # it clips unless configured otherwise
    return "" if clips else "nothing says that the training clips its gradients, as clip_norm= would"


def _recorder(run: Run) -> str:
    return "" if source_of(run).startswith("ckaudit") else "no recorder of ckaudit wrote the run"


def _dropout(run: Run) -> str:
    return "" if run.manifest and run.manifest.dropout else "nothing says that the model has dropout"


def _kinds(run: Run) -> set[str]:
    """Return the kinds of all tensors that the run names; empty if it names none."""
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
    "loss_terms": _loss_terms,
    "clipping": _clipping,
    "recorder": _recorder,
    "dropout": _dropout,
}


# Facts that only the user can give the recorder: of the run, and of the batch, each an argument of one of its calls.
class Argument(Struct, frozen=True, kw_only=True):
    """One recorder argument that a check can lack.

    Attributes:
        action: The action whose line takes it.
        option: The option as written in that line.
        meaning: Explanation for the user who fills it in; empty: the option is self-explanatory.
        only_with: What a run must have for the argument to apply.
    """

    action: str
    option: str
    meaning: str = ""
    only_with: Condition = ""


ARGUMENTS: Mapping[str, Argument] = {
    "vocabulary": Argument(
        action="recorder", option="vocabulary=...", meaning="vocabulary, how many different tokens there are", only_with="text"
    ),
    "sequence_length": Argument(
        action="recorder", option="sequence_length=...", meaning="sequence_length, how many tokens a row has", only_with="text"
    ),
    "warmup_steps": Argument(
        action="recorder", option="warmup_steps=...", meaning="warmup_steps, 0 where the learning rate does not warm up"
    ),
    "planned_steps": Argument(action="recorder", option="planned_steps=...", meaning="planned_steps, where the run is to end"),
    "planned_learning_rate": Argument(action="recorder", option="planned_learning_rate=[[1, ...], ...]"),
    "batch": Argument(action="step", option="batch=(inputs, targets)"),
}


OF_CALLBACKS = {"batch_of": "batch_of, a function that takes inputs and targets, as the loss sees them, from a batch"}


OF_TARGETS = ("target_shift_match", "target_equals_input")


OF_BATCHES = (
    "batch_duplicate_share",
    "target_shift_match",
    "batch_repeat_distance",
    "batch_reused",
    "token_kl_drift",
    "input_kl_drift",
)


def manifest_says(facts: Manifest | None, name: str) -> bool:
    """Return whether run.json has a value of that name."""
    value = getattr(facts, name, UNSET)
    return value is not UNSET and value != []


def options_in_use(run: Run, options: Iterable[str]) -> frozenset[str]:
    """Return the names of the options that the lines of a recorded run already have."""
    names = {option.partition("=")[0] for option in options}
    return frozenset(name for name in names if _is_given(run, name))


def options_explained(options: Iterable[str]) -> str:
    """Return an explanation of some options as a sentence; empty if they are self-explanatory.

    >>> options_explained(["vocabulary=...", "peak_flops=..."])
    'To fill in: vocabulary, how many different tokens there are.'
    """
    names = [option.partition("=")[0] for option in options]
    words = {name: argument.meaning for name, argument in ARGUMENTS.items()} | OF_CALLBACKS
    explanations = "; ".join(words[name] for name in names if words.get(name))
    return f"To fill in: {explanations}." if explanations else ""


def _is_given(run: Run, name: str) -> bool:
    if name == "batch":
        if trainer_of(run) == "lightning":  # its callback finds the inputs itself and needs only the targets
            return any(metrics()[target](run) for target in OF_TARGETS)
        return any(metrics()[batch](run) for batch in OF_BATCHES) or bool(run.value("data.token_histogram"))
    if name == "optimizer":
        return bool(metrics()["learning_rate"](run))
    if name == "tokens_seen":
        return bool(run.scalar(name))
    return manifest_says(run.manifest, name)


# Why the Recorder did not measure what it measures by itself: neither a line nor a new recording would help.
WRITER = "ckaudit writer "


EVERY = 25  # steps between two lines with the numbers of a sample


UNKNOWN = "the Recorder that wrote this run measured none in this model"


def is_current_recorder(run: Run) -> bool:
    """Return whether the current Recorder wrote a run; earlier ones of its version wrote no package versions to run.json."""
    return source_of(run) == f"{OUR_RECORDER} {__version__}" and manifest_says(run.manifest, "environment")


def why_absent(run: Run, name: str) -> str:
    """Return why the current Recorder measured nothing of an entry despite its lines; empty if that is not the case."""
    if not _is_in_vain(run, name) or line_instead(run, name):
        return ""
    if _is_short(run):
        return f"step {run.last_step} is the last one, and some numbers are taken every {EVERY} steps only"
    return entries()[name].absent or UNKNOWN


def line_instead(run: Run, name: str) -> str:
    """Return the entry whose line records a number if its own line does not; empty if there is none or no need.

    A Lightning module may not call its own forward pass, which shows the Recorder the tokens of a step.
    """
    other = entries()[name].otherwise
    if not other or metrics()[name](run) or metrics()[other](run):
        return ""
    in_vain = _is_in_vain(run, name) and not _is_short(run)
    return other if in_vain or (trainer_of(run) == "lightning" and not entries()[name].together) else ""


def _is_in_vain(run: Run, name: str) -> bool:
    return is_current_recorder(run) and _is_measured_by_itself(run, entries()[name]) and not metrics()[name](run)


def _is_short(run: Run) -> bool:
    return run.last_step is not None and run.last_step < EVERY


def _is_measured_by_itself(run: Run, entry: CatalogueEntry) -> bool:
    names = {option.partition("=")[0] for option in entry.options} | {*entry.arguments}
    plain = entry.action == "recorder" or (entry.action == "step" and "batch" in names)
    return plain and not entry.needs and names == options_in_use(run, names)


# Missing or unusable inputs of a number.


def base_entries(name: str) -> tuple[str, ...]:
    """Return the entries that an entry is computed from, down to recorded ones; empty if it is recorded itself.

    >>> base_entries("train_val_gap"), base_entries("val_loss")
    (('val_loss', 'train_loss_raw'), ())
    """
    inputs = (entry for need in entries()[name].needs for entry in (base_entries(need) or (need,)))
    return tuple(dict.fromkeys(inputs))


def missing_inputs(run: Run, name: str) -> tuple[str, ...]:
    """Return the entries that an entry is computed from and that the run lacks."""
    return tuple(entry for entry in base_entries(name) if not metrics()[entry](run))


def unusable(run: Run, name: str) -> str:
    """Return what is wrong with existing inputs, or an empty string if nothing is known to be.

    No line fixes too few points or non-finite values.
    """
    inputs = base_entries(name)
    if not inputs or missing_inputs(run, name):
        return ""
    for input_ in inputs:
        series = metrics()[input_](run)
        if not series.finite.any():
            word = "NaN" if np.isnan(series.values[series.recorded]).all() else "not finite"
            return f"{series.points} {'evaluations' if input_ == 'val_loss' else 'points'} of {input_}, all {word}"
    series, min_points = metrics()[inputs[0]](run), entries()[name].least
    usable = int(series.finite.any(axis=1).sum())
    if usable < min_points:
        return f"too few points of {inputs[0]} ({usable} of {min_points})"
    return f"{usable} points of {inputs[0]}, too close together for it" if min_points else ""
