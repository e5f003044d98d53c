"""Errors in text logs: what is one, of what kind, on which rank, how often a day, and what a pure crash log says."""

import pytest

from ckaudit.audit import triage
from ckaudit.errors import UnreadableError
from ckaudit.importers.text.error_lines import error_line

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def log(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def at(hour: int, text: str) -> str:
    return f"2024-05-{1 + hour // 24:02d} {hour % 24:02d}:00:00 {text}"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (OOM, "oom"),
        ("RuntimeError: CUDA out of memory.", "oom"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=12.0", "oom"),
        ("MemoryError", "oom"),
        ("OSError: [Errno 12] Cannot allocate memory", "oom"),
        ("node1:12:34 [0] misc/socket.cc:484 NCCL WARN Net : Call to recv failed : Connection reset by peer", "nccl"),
        (
            "[rank3]:[E501 12:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: Work",
            "nccl",
        ),
        ("torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1333, unhandled system error", "nccl"),
        ("OSError: [Errno 28] No space left on device", "io"),
        ("OSError: [Errno 116] Stale file handle: '/data/x'", "io"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x'", "io"),
        ("RuntimeError: [enforce fail at inline_container.cc:603] . PytorchStreamWriter failed writing file data/1", "io"),
        ("RuntimeError: CUDA error: device-side assert triggered", "cuda"),
        ("NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.", "cuda"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`", "cuda"),
        ("srun: error: node12: task 3: Killed", "killed"),
        ("Segmentation fault (core dumped)", "killed"),
        ("failed (exitcode: -9) local_rank: 0 (pid: 123) of binary: /usr/bin/python", "killed"),
        ("ValueError: too many values to unpack (expected 2)", "python"),
        ("KeyboardInterrupt", "python"),
        ("mypkg.errors.LoaderException: shard 3 is broken", "python"),
        ("[PG 0 Rank 7] ProcessGroupNCCL's watchdog got stuck for 600 seconds", "heartbeat"),
    ],
)
def test_kinds(line, kind):
    found = error_line(1, line)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    "line",
    [
        "node1:12:34 [0] NCCL INFO NCCL_ASYNC_ERROR_HANDLING set by environment to 1.",
        '    raise RuntimeError("CUDA out of memory")',
        "        except torch.cuda.OutOfMemoryError:",
        "# to avoid CUDA out of memory we split the batch",
        "  TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
        "/usr/lib/python3/x.py:12: UserWarning: NCCL timeout is deprecated",
        "  error_on_nan .................................... True",
        "step:1 loss:2.0",
        "finished with no error: NCCL timeout was 600 s",
        "error: 0.12",
        "",
    ],
)
def test_what_is_no_error(line):
    assert error_line(1, line) is None


def test_who_and_when():
    found = error_line(7, f"[rank3]: 2024-05-01 12:00:00,500 - INFO - {OOM}")
    assert found is not None
    assert (found.line, found.mark.rank, found.mark.time) == (7, 3, 1_714_564_800.5)
    found = error_line(1, f"worker-2: {OOM}")
    assert found is not None
    assert found.mark.node == "worker-2"


def test_a_rate_is_the_events_of_24_hours(imported):
    text = log(
        at(0, "step:1 loss:3.0"),
        at(1, OOM),
        at(2, "step:2 loss:2.9"),
        at(3, OOM),
        at(4, "step:3 loss:2.8"),
        at(24, "step:4 loss:2.7"),
        at(26, "step:5 loss:2.6"),
        at(28, "step:6 loss:2.5"),
    )
    rates = curve(imported(text, "x.log"), "error_event_rate/oom")
    assert rates == {1: 1.0, 2: 2.0, 3: 2.0, 4: 2.0, 5: 1.0, 6: 0.0}


def test_lines_of_one_trouble_are_one_event(imported):
    failing = [f"[rank{rank}]: {OOM}" for rank in range(8)]
    text = log("step:1 loss:3.0 dt:1.0s", "step:2 loss:3.0 dt:1.0s", "Traceback (most recent call last):", *failing)
    run = imported(text, "x.log")
    assert curve(run, "error_event_rate/oom") == {1: 0.0, 2: 1.0}
    assert "error_event_rate/python" not in run.table.names
    assert any("out of memory once, 8 lines on 8 ranks or nodes, first in line 4 on rank 0" in note for note in run.notes)
    assert any(OOM[:60] in note for note in run.notes)


def test_without_times_the_durations_of_steps_make_the_day(imported):
    steps = [f"step:{step} loss:3.0 dt:40000.0s" for step in range(1, 7)]
    run = imported(log(steps[0], OOM, *steps[1:]), "x.log")
    assert curve(run, "error_event_rate/oom") == {1: 1.0, 2: 1.0, 3: 1.0, 4: 0.0, 5: 0.0, 6: 0.0}
    assert any("counted by the durations" in note for note in run.notes)


def test_without_any_clock_errors_are_only_told(imported):
    run = imported(log("step:1 loss:3.0", OOM, "step:2 loss:3.0"), "x.log")
    assert not any(name.startswith("error_event_rate") for name in run.table.names)
    assert any("out of memory once" in note for note in run.notes)
    assert any("not counted by the day" in note for note in run.notes)


def test_what_only_notices_counts_where_nothing_else_is_said(imported):
    text = log("step:1 loss:3.0 dt:1.0s", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:")
    assert curve(imported(text, "x.log"), "error_event_rate/python") == {1: 1.0}


def test_lost_heartbeats_are_counted_by_ranks(imported):
    lost = [f"[rank{rank}]: Heartbeat monitor timed out! Process will be terminated" for rank in (3, 4)]
    run = imported(log("step:1 loss:3.0 dt:1.0s", *lost, "step:2 loss:2.9 dt:1.0s"), "x.log")
    assert curve(run, "heartbeat_missing") == {1: 2.0, 2: 0.0}


def test_starts_within_a_day(imported):
    text = log(
        at(0, "step:10 loss:3.0"),
        at(1, "step:20 loss:2.9"),
        at(2, "step:15 loss:2.9"),
        at(3, "step:20 loss:2.8"),
        at(4, "step:12 loss:2.9"),
        at(5, "step:20 loss:2.8"),
    )
    run = imported(text, "x.log")
    assert run.table.sessions.tolist() == [0, 0, 1, 1, 2, 2]
    assert [session.start for session in run.manifest.sessions or []] == [1_714_521_600.0 + 3600 * hour for hour in (0, 2, 4)]


def test_errors_reach_the_verdict(tmp_path):
    path = tmp_path / "x.log"
    lines = [
        line
        for hour in range(20)
        for line in (at(hour, f"step:{hour + 1} loss:3.{20 - hour:02d}"), *([at(hour, OOM)] if hour % 5 == 4 else []))
    ]
    path.write_text(log(*lines))
    (finding,) = [each for each in triage(path).findings if each.code == "SYS008" and each.severity == "sev2"]
    assert finding.where == "oom"


def test_a_pure_crash_log_names_what_it_tells(imported):
    text = log("[rank0]: Traceback (most recent call last):", f"[rank0]: {OOM}", "srun: error: node12: task 3: Killed")
    with pytest.raises(UnreadableError, match="holds no step of a training that is known, but errors") as raised:
        imported(text, "crash.log")
    assert "out of memory once, first in line 2 on rank 0" in str(raised.value)
    assert "killed processes once, first in line 3 on rank 3, node12" in str(raised.value)


def test_quoted_lines_are_short_and_harmless(imported):
    with pytest.raises(UnreadableError) as raised:
        imported(f"ValueError: \x07{'x' * 5000}\n", "crash.log")
    assert len(str(raised.value)) < 400
    assert str(raised.value).isprintable()


def test_an_accelerator_that_fails_behind_the_last_step_is_found_without_any_time(tmp_path):
    steps = log(*(f"epoch: {epoch} step: 2502, loss is {7 - epoch / 4}" for epoch in range(1, 9)))
    path = tmp_path / "train.log"
    path.write_text(steps + log("[ERROR] SyncStream] failed, ret[710], device-side assert triggered"))
    [finding] = [each for each in triage(path).findings if each.code == "SYS008"]
    assert (finding.severity, finding.message) == ("sev2", "the accelerator failed at step 20016, and no step follows")
    path.write_text(log("[ERROR] device-side assert triggered") + steps)
    assert not [each for each in triage(path).findings if each.code == "SYS008"]
