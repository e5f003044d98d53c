"""Documents with any values that the contract allows: decoded, encoded and decoded again, they say the same."""

import msgspec
from hypothesis import HealthCheck, given, settings

from ckaudit.contract.io.codec import decode, encode
from ckaudit.contract.io.jsonl import parse_lines
from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.schema.manifest import Manifest
from tests.fuzz.valid_runs import plans, write

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@given(plan=plans(12))
@SETTINGS
def test_a_document_says_the_same_after_a_round_trip(tmp_path_factory, plan):
    folder = tmp_path_factory.mktemp("round")
    write(plan, folder)
    for path in folder.glob("*.json"):
        reader = msgspec.json.Decoder(Manifest if path.name == "run.json" else Checkpoint)
        first = decode(path.read_bytes(), reader).document
        written = encode(first)
        second = decode(written, reader).document
        assert second == first
        assert encode(second) == written
        assert msgspec.json.decode(written, type=msgspec.Raw)  # JSON that everybody reads


@given(plan=plans(30))
@SETTINGS
def test_lines_say_the_same_after_a_round_trip(tmp_path_factory, plan):
    folder = tmp_path_factory.mktemp("lines")
    write(plan, folder)
    for path in folder.glob("scalars.jsonl"):
        first = parse_lines(path.read_bytes(), path.name)
        again = parse_lines(b"".join(msgspec.json.encode(row) + b"\n" for row in first.rows), path.name)
        assert not first.findings
        assert again.rows == first.rows
