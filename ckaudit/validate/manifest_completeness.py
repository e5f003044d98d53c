"""What `run.json` lacks that it takes to repeat a run, or to trust a comparison with it (MAN-1 to MAN-5)."""

from collections.abc import Iterator

from msgspec import UNSET

from ckaudit.contract.schema.report import Finding
from ckaudit.validate.catalogue import INCOMPLETE
from ckaudit.validate.file_facts import RunFacts

# What a run with evaluations records, and which of them are made of generated text.
EVALUATED = ("val_loss", "val_ppl", "slice_val_loss", "microbench_score", "rtp_toxicity_prob", "memorization_rate")
GENERATED = ("microbench_score", "rtp_toxicity_prob", "memorization_rate")

# Each fact with what brings it, said as one would write it.
ALWAYS = {
    "commit": ("the code's commit", 'commit="..."'),
    "lock_hash": ("the packages", 'lock_hash="sha256:..."'),
    "model": ("the model's configuration", "model={...}"),
    "data_manifest": ("the data", 'data_manifest="data.json"'),
}


CANARY_STEPS = 2000  # canary runs take 200 to 2,000 steps (PRB-2): what is shorter is repeated, not described


def is_worth_repeating(run: RunFacts) -> bool:
    """Tell whether a recorder of ours started the run, and it takes longer than a trial.

    What an importer could not know is no gap of the run. A planned length counts: at the start there is still time.
    """
    manifest = run.manifest
    if not (run.whole and manifest and manifest.sessions and manifest.source and manifest.source.startswith("ckaudit ")):
        return False
    steps = [checkpoint.step for checkpoint in run.checkpoints]
    return max([*steps, manifest.planned_steps or 0]) > CANARY_STEPS


def manifest_gaps(run: RunFacts) -> Iterator[Finding]:
    """Facts that are missing, each with the keyword of the recorder that brings it.

    A tokenizer is asked for where there is a vocabulary, evaluation artifacts where something was evaluated, and how it
    decodes where text was generated.
    """
    if not is_worth_repeating(run):
        return
    missing = [f"{what} ({call})" for name, (what, call) in _asked(run).items() if getattr(run.manifest, name) is UNSET]
    if missing:
        message = f"run.json lacks {', '.join(missing)}; the keywords are those of Recorder and Writer"
        yield INCOMPLETE.at(run.manifest_file, message)


def _asked(run: RunFacts) -> dict[str, tuple[str, str]]:
    asked = dict(ALWAYS)
    if run.manifest is not None and run.manifest.vocabulary is not UNSET:
        asked["tokenizer_hash"] = ("the tokenizer", "tokenizer=...")
    if any(_is_recorded(run, name) for name in EVALUATED):
        asked["eval_artifact_hashes"] = ("the evaluation artifacts", "eval_artifacts={...}")
    if any(_is_recorded(run, name) for name in GENERATED):
        asked["decoding"] = ("how evaluations decode", "decoding={...}")
    return asked


def _is_recorded(run: RunFacts, name: str) -> bool:
    path = f"scalars.{name}"
    return any(each == path or each.startswith(f"{path}/") for each in run.recorded)
