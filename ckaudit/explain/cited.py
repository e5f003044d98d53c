"""What the short references mean that sources cite, such as "playbook D4.2" or SEV1-3."""

import re
from collections.abc import Iterable

MEANINGS = {
    r"\bM\d\d\b": "M01 to M67: rows of the list of metrics that this catalogue answers",
    r"\bF\d{1,2}\b": "F1 to F16: rows of the catalogue's sheet of formulas",
    r"\bD\d\.\d\b": "D4.2: question 2 in phase 4 of a run, in the playbook of diagnoses",
    r"\bTRI-\d": "TRI-4: row 4 of the playbook's table for a first look at gradients and attention",
    r"\bTRG-\d": "TRG-1: the playbook's first trigger of an extra checkpoint",
    r"\bMP-\d": "MP-2: step 2 of the playbook's protocol for memorization",
    r"\bMPC-\d": "MPC-3: point 3 of the playbook's curve of memorization",
    r"\bMAP-\d": "MAP-2: row 2 of the playbook's map from questions to tools",
    r"\bFX-\d": "FX-1: example 1 of the dashboard, a series with numbers",
    r"\bDR-\d": "DR-2: worked example 2 on the dashboard, with numbers",
    r"\bPAN-\d": "PAN-1: panel 1 of the dashboard",
    r"\bSEV\d-\d": "SEV1-3: condition 3 of those that call for sev1",
    r"\bSR-\d": "SR-1: step 1 of the procedure for a benchmark that fell in silence",
    r"\bMAN-\d": "MAN-5: item 5 of what describes a run",
    r"\bPRB-\d": "PRB-1: probe 1 of those that are repeated during a run",
    r"\btorchmortem\b|\btrainproof\b|\brunmedic\b": "torchmortem, trainproof, runmedic: open-source checkers of training runs",
}


def cited(texts: Iterable[str]) -> str:
    """Return what the references in `texts` mean, an example of each kind; empty where there are none.

    >>> cited(["playbook D2.6"])
    'D4.2: question 2 in phase 4 of a run, in the playbook of diagnoses'
    """
    whole = " ".join(texts)
    return "; ".join(meaning for pattern, meaning in MEANINGS.items() if re.search(pattern, whole))
