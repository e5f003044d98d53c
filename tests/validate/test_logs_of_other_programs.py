"""Files that other programs wrote are no broken files of ours."""

import re
from pathlib import Path

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.validate import validate
from tests.loops import for_each
from tests.validate.material import write

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOGS_OF_OTHERS = {
    "real/hf_trainer/mistral_lora_4ep/trainer_state.json": "Hugging Face trainer_state.json",
    "real/olmo/190M-1xC.csv": "CSV",
    "real/llmc/modded_124M_main.first4000.log": "llm.c main.log",
}


@for_each("name", LOGS_OF_OTHERS)
def test_a_log_of_another_program_is_named_as_one_and_not_judged_key_by_key(name):
    log = FIXTURES / name
    with pytest.raises(UnreadableError, match=f"is a log of another program \\({re.escape(LOGS_OF_OTHERS[name])}\\)") as refused:
        validate([log])
    assert refused.value.hint.startswith(f"`ckaudit triage {log}`")
    beside = validate([log, FIXTURES / "checkpoints" / "valid" / "minimal.json"])
    (finding,) = beside.findings
    assert (finding.code, finding.help) == ("SYN001", refused.value.hint)
    assert beside.files == 1


def test_a_document_that_says_its_version_is_judged_whatever_it_is_called(tmp_path):
    path = write(tmp_path / "trainer_state.json", {"schema_version": "ck.analysis.v1", "step": 1, "log_history": [], "loss": 2.0})
    assert [finding.code for finding in validate([path]).findings] == ["SCH008"]
