"""One checkpoint from bytes to findings: what is forgiven, refused, counted, and where it is said to stand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ckaudit.contract.check import check_checkpoint

HEAD = '{"schema_version":"ck.analysis.v1","step":500'
EVERY_FIELD = Path(__file__).parents[2] / "fixtures/checkpoints/valid/every_field.json"


def findings(text: str):
    return check_checkpoint(text.encode(), "x.json").findings


def codes(text: str) -> list[str]:
    return [finding.code for finding in findings(text)]


def test_all_violations_of_a_file_are_said_not_the_first_alone():
    text = HEAD + ',"loss":"none","weights":{"a":{"std":-1,"percentiles":[1]}},"colour":1,"time":NaN,"rank":1,"rank":1}'
    assert sorted(codes(text)) == ["SCH005", "SCH006", "SCH007", "SCH008", "SYN009", "SYN010"]


def test_contradictions_stand_beside_what_was_forgiven():
    assert codes("\ufeff" + HEAD + ',"loss":NaN,"event_step":600,"extra":{"a":[1,{"b":2}]}}') == [
        "SYN004",
        "SYN009",
        "SCH008",
        "VAL050",
    ]


def test_a_whole_number_as_float_hides_nothing_else():
    text = '{"schema_version":"ck.analysis.v1","step":500.0,"loss":NaN,"extra":1,"rank":1,"rank":1,"event_step":600}'
    assert sorted(codes(text)) == ["SCH008", "SYN009", "SYN010", "VAL050"]


def test_an_unknown_version_is_all_that_is_said():
    assert codes('{"schema_version":"ck.analysis.v9","step":"x","colour":1}') == ["SCH002"]


def test_an_unknown_field_is_counted_once_with_the_first_place():
    text = HEAD + ',"weights":{"a/b":{"skew":1},"c":{"skew":{"x":1}}},"optimizer":{"groups":[{},{"betas":[1]}]}}'
    found = {finding.found: finding for finding in findings(text)}
    assert found["weights.*.skew"].message.startswith("weights.*.skew stands 2 times")
    assert found["weights.*.skew"].pointer == "/weights/a~1b/skew"
    assert found["optimizer.groups[].betas"].pointer == "/optimizer/groups/1/betas"


@pytest.mark.parametrize("name", ["*", "[]", "a.b", "", "x:y", "\\\\", '\\"'])
def test_an_unknown_field_may_have_any_name(name):
    (found,) = findings(HEAD + f',"{name}":{{"y":1}}}}')
    assert found.code == "SCH008"


@pytest.mark.parametrize(
    "members",
    [
        '"loss":1,"loss":1',
        '"loss":1,"los\\u0073":1',
        '"model_scale_hint":"\\u003a","loss":1,"loss":1',
        '"weights":{"a":{},"a":{}}',
        '"weights":{"a:":{},"\\u0061:":{}}',
        '"weights":{"a":{"mean":0,"mean":0}}',
        '"optimizer":{"groups":[{"tensors":1,"tensors":1}]}',
        '"unknown":{"x":1,"x":1}',
        '"history":{"steps":[],"steps":[]}',
    ],
)
def test_a_key_that_stands_twice_is_found_wherever_it_stands(members):
    assert "SYN010" in codes(f"{HEAD},{members}}}")


@pytest.mark.parametrize(
    "members",
    [
        '"model_scale_hint":"a:b:c\\u003a"',
        '"data":{"input_hash":"md5:00","batch_id":"::"}',
        '"weights":{":":{"tied_to":"a:"},"a:":{}}',
        '"history":{"steps":[1],"batch_hash":["x:y"],"gradient_norms":{"a:b":[1]}}',
        '"scalars":{"slice_val_loss/a:b":1}',
        '"optimizer":{"trainable_without_optimizer":["a:b"]}',
    ],
)
def test_a_colon_inside_text_is_no_key(members):
    assert codes(f"{HEAD},{members}}}") == []


def test_a_line_is_named_in_a_file_of_many():
    document = json.loads(EVERY_FIELD.read_bytes())
    document["event_step"] = 501
    text = json.dumps(document, indent=1)
    (found,) = findings(text)
    assert text.splitlines()[found.line - 1].strip().startswith('"event_step"')


def test_a_field_unknown_and_nested_deep_is_no_crash():
    for depth in (500, 900, 5000):
        assert set(codes(HEAD + ',"deep":' + "[" * depth + "]" * depth + "}")) <= {"SCH008", "SYN007"}


def test_checking_a_good_file_loads_neither_numpy_nor_jsonschema():
    code = f"""
import sys
from pathlib import Path
from ckaudit.contract.check import check_checkpoint
assert check_checkpoint(Path({str(EVERY_FIELD)!r}).read_bytes(), "x.json").findings == []
print(*sorted({{"numpy", "jsonschema", "zstandard", "typer", "rich", "torch"}} & sys.modules.keys()))
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == ""
