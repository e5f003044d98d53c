"""What a document lacks is said of each property, once."""

from ckaudit.contract.check import check_checkpoint


def test_every_missing_property_is_named_once():
    found = check_checkpoint(b"{}", "x.json").findings
    assert [(each.code, each.expected) for each in found] == [("SCH001", "schema_version"), ("SCH003", "step")]


def test_a_string_that_is_cut_ends_where_it_says():
    (found,) = check_checkpoint(b'{"schema_version":"ck.an', "x.json").findings
    assert found.message == "ends in the middle: unterminated string starting at column 19"
