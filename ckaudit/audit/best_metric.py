"""The metric by which the Hugging Face Trainer picks its best model: it gets another name where there are several sets."""

import re

from msgspec import UNSET

from ckaudit.run.run import Run

ARGUMENT = "metric_for_best_model"


def best_metric(run: Run) -> str:
    """Return the name as evaluations log it, such as "eval_wer"; empty: no best model is picked, or nobody says by what."""
    config = run.manifest.config if run.manifest and run.manifest.config is not UNSET else {}
    name = config.get(ARGUMENT)
    if not isinstance(name, str) or not re.fullmatch(r"\w+", name) or name == "None":
        return ""
    return f"eval_{name.removeprefix('eval_')}"


def with_sets(run: Run) -> str:
    """Return the argument of the Trainer that names the metric among several sets, of which one is called all; or nothing."""
    name = best_metric(run)
    if not name:
        return ""
    of_all = name if name.startswith("eval_all_") else f"eval_all_{name.removeprefix('eval_')}"
    return f', args=TrainingArguments(..., {ARGUMENT}="{of_all}")'
