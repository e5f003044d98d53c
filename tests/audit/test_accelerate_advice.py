"""What coverage prints to users of Accelerate, who call a recorder in their own loop, is executed there and keeps its word."""

import pytest

from ckaudit.audit.coverage.recorded import coverage
from ckaudit.metrics import metrics
from ckaudit.run.read import read_run
from tests.audit.test_promises import unkept
from tests.audit.trained import batch, small_gpt

pytest.importorskip("accelerate")

FILLED = {
    "vocabulary": 11,
    "sequence_length": 31,
    "warmup_steps": 5,
    "planned_steps": 40,
    "flops_per_token": 6e3,
    "peak_flops": 1e11,
}
BEFORE, STEP, EVALUATED = ("Once, before the first step",), ("Once per update",), ("After each evaluation", "After the same")
BACKWARD, ANY, NOW = ("After each backward",), ("Whenever",), ("Now and then",)


def train(folder, lines):
    """Train as the example does, with the lines of coverage at their places, and return the run folder."""
    import torch
    from accelerate import Accelerator

    from ckaudit import Recorder

    def follow(starts, **names):
        for where, code in lines:
            if where.startswith(starts):
                exec(
                    code.replace("...", "2.0"), {"recorder": recorder, "model": model, "criterion": criterion, "count": 1} | names
                )

    def criterion(logits, targets):
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = small_gpt()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    made = " ".join(code for where, code in lines if where.startswith("Before the first step"))
    options = {name: value for name, value in FILLED.items() if f"{name}=" in made}
    options |= {"spectral_norms": ("*.q.weight", "*.k.weight")} if "spectral_norms=" in made else {}
    recorder = Recorder(model, folder / "run", optimizer=optimizer, scaler=accelerator.scaler, **options)
    follow(BEFORE, batch=batch(0))
    keywords = [code.removeprefix("recorder.step(..., ").removesuffix(")") for where, code in lines if where.startswith(STEP)]
    total = 0
    for step in range(80):
        inputs, targets = batch(step)
        total += targets.numel()
        with accelerator.accumulate(model):
            if step % 10 == 0:
                follow(NOW, inputs=inputs, targets=targets)
            loss = criterion(model(inputs), targets)
            accelerator.backward(loss)
            follow(BACKWARD, examples=4)
            if accelerator.sync_gradients:
                recorder.after_backward()
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                follow(ANY)
                recorder.step(loss, batch=(inputs, targets), **eval(f"dict({', '.join(keywords)})", {"total": total}))
        if step % 20 == 19:
            follow(EVALUATED)
    recorder.close()
    return folder / "run"


def test_the_lines_of_a_recorder_hold_with_accelerate(tmp_path):
    found = coverage(train(tmp_path / "bare", []))
    python = [each for each in found.remedies if each.lines and not each.code.startswith("ckaudit")]
    assert not [each.code for each in python if "callback" in each.code]
    assert {"recorder", "Recorder"} >= {each.code.partition("(")[0].partition(".")[0] for each in python}
    folder = train(tmp_path / "told", [(each.where, each.code) for each in python])
    numbers = {found.remedies.index(each) + 1 for each in python}
    promised = [each.name for each in found.waiting if each.places and {*each.places} <= numbers]
    assert {"throughput_drop", "noise_scale_jump", "tokens_stand_still", "probe_jump", "schedule_off_plan"} <= {*promised}
    assert not unkept(promised, folder)
    run = read_run(folder)
    rows = {row.name: row for row in coverage(folder).rows}
    assert not [name for each in python for name in each.names if not metrics()[name](run) and not rows[name].unusable]
    assert (run.manifest.sessions[-1].write_errors, run.manifest.sessions[-1].look_errors) == (0, 0)
