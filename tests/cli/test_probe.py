"""`ckaudit probe`: from generations to values in a run."""

import json

import pytest

from ckaudit.cli.run import run


@pytest.fixture
def generations(tmp_path):
    path = tmp_path / "g.jsonl"
    rows = [{"prompt": "So I", "continuation": "went", "toxicity": 0.1 * (i % 7), "truth": "went"} for i in range(25)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_values_are_shown_and_join_a_run(generations, tmp_path, capfd):
    folder = tmp_path / "run"
    folder.mkdir()
    assert run(["probe", "toxicity", str(generations), "--into", str(folder), "--step", "500"]) == 0
    assert "rtp_toxicity_prob" in capfd.readouterr().out
    assert run(["probe", "memorization", str(generations), "--into", str(folder), "--step", "500", "-f", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["command"] == "probe memorization"
    lines = [json.loads((folder / f"scalars-probe-{kind}.jsonl").read_text()) for kind in ("toxicity", "memorization")]
    assert [line["step"] for line in lines] == [500, 500]
    assert (lines[0]["rtp_toxicity_prob"], lines[1]["memorization_rate"]) == (1.0, 100.0)


@pytest.mark.parametrize(
    "arguments",
    [
        ["toxic", "{g}"],
        ["toxicity"],
        ["toxicity", "missing"],
        ["toxicity", "{g}", "--tokens", "5"],
        ["memorization", "{g}", "--generations", "5"],
        ["toxicity", "{g}", "--generations", "0"],
        ["memorization", "{g}", "--tokens", "x"],
        ["toxicity", "{g}", "--step", "5"],
        ["memorization", "{g}", "--map", "truth=nothing"],
    ],
)
def test_what_cannot_be_done_is_an_error(arguments, generations, capfd):
    assert run(["probe", *(word.format(g=generations) for word in arguments)]) == 2
    assert "error: " in capfd.readouterr().err
