"""`ckaudit mcp` as an agent uses it: the SDK's own client talks to the server in a process of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from ckaudit.cli.agents import server as serving
from tests.in_process import ckaudit

LIBRARIES = ("mcp", "mcp_types", "anyio")  # the second since version 2
pytestmark = pytest.mark.skipif(not all(map(find_spec, LIBRARIES)), reason="the extra mcp is not installed")

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "fixtures/runs"
NAMES = sorted(path.name for path in RUNS.iterdir() if (path / "run.json").exists())
TOOLS = ["coverage", "diff", "explain", "metrics", "questions", "runs", "triage"]
HOSTILE = "evil\x1b[31m\n<b>`rm -rf`</b>\u202e"
SHOWN = r"evil\x1b[31m\x0a<b>`rm -rf`</b>\u202e"
MOST = 1600


@contextmanager
def served(*folders, cwd=ROOT):
    """Start a server in a process, and give the SDK's client of it, to be called without await."""
    import mcp
    from anyio import from_thread

    command = ["-m", "ckaudit", "mcp", *map(str, folders)]
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = mcp.StdioServerParameters(command=sys.executable, args=command, cwd=str(cwd), env=surroundings)
    with (
        Path(os.devnull).open("w") as unheard,
        from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(mcp.Client(mcp.stdio_client(server, errlog=unheard))) as client,
    ):

        def call(tool, arguments):
            answer = portal.call(client.call_tool, tool, arguments)
            (content,) = answer.content
            return content.text, bool(answer.is_error)

        yield SimpleNamespace(call=call, tools=lambda: portal.call(client.list_tools).tools)


def answers_of(folders, calls, cwd):
    """Return what a server of these folders answers, without client or process: texts, and whether each is an error."""
    answers = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "serve", lambda *served: answers.extend(serving.answer(*served, *call) for call in calls))
        assert ckaudit("mcp", *folders, cwd=cwd).returncode == 0
    return answers


@pytest.fixture(scope="module")
def server():
    """A server of the recorded runs."""
    with served(RUNS) as started:
        yield started


@pytest.fixture(scope="module")
def asked(server):
    """Call a tool of that server, and return a text that is no error; names and runs may be words with commas between."""

    def ask(tool, run="", **arguments):
        lists = {key: value.split(",") for key, value in arguments.items() if key in ("names", "runs")}
        text, failed = server.call(tool, arguments | lists | ({"run": run} if run else {}))
        assert not failed, text
        return text

    return ask


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A folder with a run of a hostile name, a broken one, and links that lead out of it."""
    outside = tmp_path_factory.mktemp("outside")
    shutil.copytree(RUNS / "lr_too_high", outside / "secret")
    folder = tmp_path_factory.mktemp("odd") / "runs"
    shutil.copytree(RUNS / "lr_too_high", folder / HOSTILE)
    shutil.copytree(RUNS / "zeroed_projection", folder / "broken")
    (folder / "broken/analysis_checkpoint_step_00000500.json").write_text('{"schema_version": "ck.an')
    (folder / "torn.csv").write_bytes(b"\x00\xff\x00garbage")
    (folder / "linked").symlink_to(outside / "secret")
    (folder / "inside").symlink_to(folder / "broken")
    shutil.copytree(RUNS / "healthy", folder / "leaky")
    (folder / "leaky/scalars.jsonl").unlink()
    (folder / "leaky/scalars.jsonl").symlink_to(outside / "secret/scalars.jsonl")
    os.mkfifo(folder / "pipe.csv")
    return folder


@pytest.fixture(scope="module")
def odd_server(odd):
    """A server of that folder, started above it."""
    with served(odd, cwd=odd.parent) as started:
        yield started


def report_of(*arguments):
    return json.loads(ckaudit(*arguments, "--format", "json").stdout)


def test_the_tools_are_listed_with_described_arguments(server):
    listed = server.tools()
    assert sorted(tool.name for tool in listed) == TOOLS
    for tool in listed:
        assert len(tool.description) > 60
        assert tool.annotations.read_only_hint
        assert not tool.annotations.open_world_hint
        assert tool.input_schema["additionalProperties"] is False
        assert all(field["description"] for field in tool.input_schema["properties"].values())


def test_every_run_is_judged_as_the_command_judges_it(server):
    calls = [(tool, {"run": name}) for name in NAMES for tool in ("triage", "questions")]
    answers = [server.call(*call) for call in calls]
    for (tool, arguments), (text, failed) in zip(calls, answers, strict=True):
        whole = report_of("triage", RUNS / arguments["run"])
        assert not failed
        assert len(text) < MOST
        word = {None: "OK", "note": "NOTE"}.get(whole["severity"]) or whole["severity"].upper()
        assert text.startswith(f"{word} at step {whole['step']}: {whole['verdict']}"[:200])
        if tool == "triage":
            codes = list(dict.fromkeys(finding["code"] for finding in whole["findings"]))
            named = re.findall(r"^(?:sev\d|note|and \d+ more:) ([A-Z]+\d{3})", text, re.MULTILINE)
            assert named == codes[: len(named)]
            assert len(named) >= min(3, len(codes))


def test_one_finding_is_told_with_all_its_numbers_and_reasons(asked):
    text = asked("triage", "lr_too_high", finding="LOSS001")
    whole = report_of("triage", RUNS / "lr_too_high")
    findings = [finding for finding in whole["findings"] if finding["code"] == "LOSS001"]
    assert all(finding["message"] in text for finding in findings)
    (cause,) = [diagnosis for diagnosis in whole["diagnoses"] if "LOSS001" in diagnosis["explains"]]
    assert all(evidence["sentence"] in text for evidence in cause["evidence"])
    assert all(cause[key] in text for key in ("knob", "inspect", "runbook"))
    assert text.count("LOSS001 loss_spike") == len(findings)


def test_a_check_that_found_nothing_is_passed_or_skipped_and_never_both(asked):
    assert asked("triage", "lr_too_high", finding="LOSS002").startswith("LOSS002 overfitting: passed")
    skipped = next(check for check in report_of("triage", RUNS / "healthy")["checks"] if check["outcome"] == "skipped")
    assert asked("triage", "healthy", finding=skipped["code"]).startswith(f"{skipped['code']} {skipped['name']}: skipped (")


def test_a_step_is_judged_with_what_was_known_then(asked):
    assert asked("triage", "nan_batch", step=149).split()[0] in ("OK", "NOTE", "LIMITED")
    assert asked("triage", "nan_batch", step=150).startswith("SEV0 at step 150")


@pytest.mark.parametrize(("name", "labels"), [("val_loss", 1), ("train_loss_raw", 1), ("attn_entropy", 6)])
def test_values_of_metrics_are_those_of_the_command(asked, name, labels):
    text = asked("metrics", "lr_too_high", names=name, points=15)
    (whole,) = report_of("metrics", RUNS / "lr_too_high", name)["metrics"]
    assert text.startswith(f"{name} ({whole['unit']}): {whole['title']}")
    told = re.findall(r"^(\S+): last (\S+) at step (\d+)(.*)\n  (.*)$", text, re.MULTILINE)
    assert len(told) == labels
    for label, last, step, rest, points in told:
        values = dict(zip(whole["steps"], whole["values"][whole["labels"].index(label)], strict=True))
        known = {at: value for at, value in values.items() if value is not None}
        shown = {int(at): float(value) for at, value in (cell.split(": ") for cell in points.split(", "))}
        assert shown == {at: pytest.approx(known[at], rel=1e-5) for at in shown}
        assert {min(known), max(known), min(known, key=known.get), max(known, key=known.get)} <= shown.keys()
        assert (int(step), float(last)) == (max(known), pytest.approx(known[max(known)], rel=1e-5))
        assert (f"thinned to {len(shown)} of {len(known)} points" in rest) == (len(shown) < len(known))


def test_labels_and_steps_are_chosen(asked):
    text = asked("metrics", "lr_too_high", names="attn_entropy", label="layer.1/*", first=100, last=200)
    assert sorted(re.findall(r"^(\S+): last", text, re.MULTILINE)) == [f"layer.1/head.{head}" for head in range(4)]
    steps = [int(step) for line in text.splitlines() if line.startswith("  ") for step in re.findall(r"(\d+): ", line)]
    assert (min(steps), max(steps)) == (100, 200)


def test_without_names_every_metric_with_a_value_is_listed(asked):
    text = asked("metrics", "healthy")
    whole = report_of("metrics", RUNS / "healthy")["metrics"]
    assert text.startswith(f"{len(whole)} metrics with a value up to step 2000")
    assert len(text) < 4 * MOST
    assert [line.partition(":")[0] for line in text.splitlines()[1 : len(whole) + 1]] == [metric["name"] for metric in whole]


def test_two_runs_are_compared_as_the_command_compares_them(asked):
    text = asked("diff", runs="healthy,lr_too_high")
    whole = report_of("diff", RUNS / "healthy", RUNS / "lr_too_high")
    assert text.startswith(whole["word"].upper())
    assert "A: fixtures/runs/healthy; B: fixtures/runs/lr_too_high" in text
    assert whole["pairs"][0]["parting"]["message"] in text
    assert asked("diff", runs="healthy@500,healthy@500").startswith("SAME")


def test_names_are_explained_and_gaps_named(asked):
    assert "The loss jumps out of its own noise." in asked("explain", names="LOSS001")
    assert len(asked("explain", names="LOSS001", details=True)) > MOST
    musts = report_of("coverage", RUNS / "healthy")["rows"]
    missing = [row["name"] for row in musts if row["level"] == "must" and not row["recorded"] and not row["not_applicable"]]
    assert all(name in asked("coverage", "healthy") for name in missing)


def test_the_runs_below_the_folders_are_listed_newest_first(tmp_path):
    for age, name in enumerate(("new", "old")):
        run = shutil.copytree(RUNS / "nan_batch", tmp_path / "a" / name)
        for path in run.iterdir():
            os.utime(path, (1e9 - age * 86400,) * 2)
    (tmp_path / "b").mkdir()
    shutil.copy(ROOT / "fixtures/real/hf_trainer/mistral_lora_4ep/trainer_state.json", tmp_path / "b")
    calls = [
        ("runs", {}),
        ("runs", {"below": "a"}),
        ("runs", {"below": "a/old"}),
        ("triage", {"run": "b"}),
        ("triage", {"run": "a/old"}),
    ]
    (everything, below, one, log, old) = answers_of([tmp_path], calls, cwd=tmp_path)
    names = [line.partition(" (")[0] for line in everything[0].splitlines()]
    assert names == ["b", "a/new", "a/old"] or names == [".", "a/new", "a/old"]
    assert [line.partition(" (")[0] for line in below[0].splitlines()] == ["a/new", "a/old"]
    assert "a/old (run folder, 2001-09-08 01:46 UTC)" in one[0]
    assert log[0].startswith("LIMITED")
    assert old[0].startswith("SEV0")


REFUSED = [
    ("../outside", "lies outside"),
    ("/etc/passwd", "lies outside"),
    ("runs/../../outside/secret", "lies outside"),
    ("linked", "lies outside"),
    ("runs/linked/run.json", "lies outside"),
    ("leaky", "the link scalars.jsonl leads out"),
    ("file:///etc/passwd", "is no path below"),
    ("s3://bucket/run", "is no path below"),
    ("https://example.org/run", "is no path below"),
    ("a\0b", "is no path below"),
    ("", "is no path below"),
    ("nothing_here", "there is no folder and no file nothing_here"),
    ("pipe.csv", "there is no folder and no file pipe.csv"),
]


def test_what_lies_outside_is_refused_by_every_tool_in_words_that_show_no_path(odd, odd_server):
    calls = [(tool, {"run": run}) for run, _ in REFUSED for tool in ("triage", "questions", "metrics", "coverage")]
    calls += [("diff", {"runs": ["broken", run]}) for run, _ in REFUSED]
    calls += [("diff", {"runs": ["broken", "inside"], "noise": [run]}) for run, _ in REFUSED]
    calls += [
        ("diff", {"runs": ["broken@last", "/etc/passwd@500"]}),
        ("runs", {"below": "/etc"}),
        ("runs", {"below": "../outside"}),
    ]
    answers = [odd_server.call(*call) for call in calls]
    messages = dict(REFUSED)
    for (tool, arguments), (text, failed) in zip(calls, answers, strict=True):
        run, *_ = arguments.get("noise") or arguments.get("runs", [])[1:] or [arguments.get("run", arguments.get("below"))]
        assert failed, (tool, arguments, text)
        assert text.startswith("error: ")
        assert "\nhint: " in text
        assert messages.get(run, "lies outside") in text
        assert str(odd.parent) not in text
        assert "secret" not in text.replace(run, "")
        assert "Traceback" not in text


def test_the_existence_of_what_lies_outside_is_not_told(odd_server):
    answers = [odd_server.call("triage", {"run": run}) for run in ("/etc/passwd", "/etc/no_such_file")]
    assert len({text.replace("passwd", "X").replace("no_such_file", "X") for text, _ in answers}) == 1


def test_a_hostile_name_is_escaped_and_can_be_named_as_it_is_shown(odd_server):
    calls = [
        ("runs", {}),
        ("triage", {"run": f"runs/{SHOWN}"}),
        ("triage", {"run": HOSTILE, "details": True}),
        ("triage", {"run": f"{HOSTILE}x"}),
    ]
    answers = [odd_server.call(*call) for call in calls]
    (listed, _), (shown, _), (whole, _), (unknown, failed) = answers
    assert f"runs/{SHOWN} (run folder" in listed
    assert shown.startswith("SEV1 at step 300")
    assert SHOWN in whole.replace("\n", "") or SHOWN[:20] in whole
    assert failed
    for text, _ in answers:
        assert not set(re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text))
    assert unknown.startswith("error: there is no folder and no file evil\\x1b[31m\\x0a")


def test_faults_of_files_are_told_as_the_command_tells_them(odd, odd_server):
    calls = [
        ("triage", {"run": "broken"}),
        ("triage", {"run": "inside"}),
        ("triage", {"run": "torn.csv"}),
        ("triage", {"run": "."}),
    ]
    ((broken, failed), (inside, _), (torn, torn_failed), (_, empty_failed)) = [odd_server.call(*call) for call in calls]
    assert not failed
    codes = {finding["code"] for finding in report_of("triage", odd / "broken")["findings"]}
    assert {code for code in codes if code in broken} >= {"SYN005", "GRAD003"}
    assert inside == broken
    warning = ckaudit("triage", odd / "torn.csv").stderr
    assert torn_failed
    assert torn == warning
    assert empty_failed


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("triage", {}, "missing required field `run`"),
        ("triage", {"run": "healthy", "at_step": 5}, "unknown field `at_step`"),
        ("triage", {"run": "healthy", "step": -1}, "$.step"),
        ("triage", {"run": "healthy", "finding": "nonsense"}, "no finding and no cause 'nonsense'"),
        ("metrics", {"run": "healthy", "names": ["vallos"]}, "no metric is called 'vallos'"),
        ("metrics", {"run": "healthy", "names": ["val_loss"], "label": "x"}, "no label is called 'x'"),
        ("metrics", {"run": "healthy", "first": 5, "last": 4}, "lies behind"),
        ("diff", {"runs": ["healthy"]}, "length >= 2"),
        ("diff", {"runs": ["healthy@3", "healthy@last"]}, "has no checkpoint of step 3"),
        ("explain", {"names": ["LOSS0O1"]}, "unknown name 'LOSS0O1'"),
        ("questions", {"run": "healthy", "phases": [8]}, "$.phases[0]"),
        ("train", {}, "there is no tool 'train'"),
    ],
)
def test_a_wrong_call_says_what_is_wrong_and_what_there_is(server, tool, arguments, message):
    text, failed = server.call(tool, arguments)
    assert failed
    assert text.startswith("error: ")
    assert message in text
    assert "\nhint: " in text


def test_words_for_numbers_and_null_are_taken(asked):
    assert asked("triage", "nan_batch", step="150") == asked("triage", "nan_batch", step=150)
    assert asked("triage", "healthy", step=None).startswith("OK at step 2000")


def test_the_policy_of_the_folder_where_it_starts_holds(tmp_path):
    shutil.copytree(RUNS / "overfit_tiny", tmp_path / "runs/a")
    (tmp_path / "ckaudit.toml").write_text('[severities]\nLOSS002 = "note"\n')
    command = json.loads(ckaudit("triage", "runs/a", "--format", "json", cwd=tmp_path).stdout)
    ((text, _),) = answers_of(["runs"], [("triage", {"run": "runs/a"})], cwd=tmp_path)
    assert command["severity"] == "note"
    assert text.startswith("NOTE at step 600")


def test_the_columns_that_the_policy_names_are_read_and_others_can_be_named(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/log.csv").write_text(
        "step,my nll,my cost\n" + "".join(f"{step},{3 - step / 100},{step % 7}\n" for step in range(1, 90))
    )
    call = ("triage", {"run": "runs/log.csv"})
    ((refused, failed),) = answers_of(["runs"], [call], cwd=tmp_path)
    assert failed
    named = re.search(r"hint: columns=(\{.*?\})", refused)
    assert named is not None
    columns = json.loads(named[1])
    assert columns == {"loss": "my nll"}
    (tmp_path / "ckaudit.toml").write_text('[import.map]\nloss = "my nll"\n')
    pair = ("diff", {"runs": ["runs/log.csv", "runs/log.csv"]})
    asked = [("triage", {**call[1], "columns": columns}), call, pair]
    (told, _), (remembered, _), (compared, failed) = answers_of(["runs"], asked, cwd=tmp_path)
    assert told.startswith("LIMITED at step 89")
    assert remembered.startswith("LIMITED at step 89")
    assert (compared.startswith("SAME"), failed) == (True, False)


def test_stdout_carries_the_protocol_alone_and_nothing_is_written(tmp_path):
    shutil.copytree(RUNS / "overfit_tiny", tmp_path / "runs/a")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    calls = [{"name": tool, "arguments": {"run": "runs/a"}} for tool in ("triage", "questions", "metrics", "coverage")]
    sent = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        *({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call} for number, call in enumerate(calls, 2)),
    ]
    server = subprocess.Popen(
        [sys.executable, "-m", "ckaudit", "mcp", "runs"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with server:
        server.stdin.write("".join(json.dumps(each) + "\n" for each in sent))
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(len(calls) + 1)]
        rest, told = server.communicate(timeout=30)
    assert (server.returncode, rest, told) == (0, "", "")
    assert sorted(answer["id"] for answer in answers) == list(range(1, len(calls) + 2))
    assert not any(answer["result"].get("isError") for answer in answers)
    assert before == {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")}


def test_a_folder_that_is_not_there_is_told_at_the_start(tmp_path):
    done = ckaudit("mcp", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no folder" in done.stderr


def test_two_folders_of_one_name_have_a_name_each(tmp_path):
    for parent in ("x", "y"):
        shutil.copytree(RUNS / "nan_batch", tmp_path / parent / "runs/a")
    (tmp_path / "here").mkdir()
    calls = [("runs", {}), ("triage", {"run": "runs/a"}), ("triage", {"run": "runs-2/a"})]
    answers = answers_of([tmp_path / "x/runs", tmp_path / "y/runs"], calls, cwd=tmp_path / "here")
    assert sorted(line.partition(" (")[0] for line in answers[0][0].splitlines()) == ["runs-2/a", "runs/a"]
    assert all(not failed for _, failed in answers)
