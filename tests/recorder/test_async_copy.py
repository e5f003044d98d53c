import torch

from ckaudit.recorder.loop.step_numbers import AsyncCopy


def test_what_is_sent_arrives_to_the_bit():
    sent = [
        torch.tensor(2.5, requires_grad=True),
        torch.tensor([1.0, float("nan"), float("inf")], dtype=torch.float64),
        torch.tensor([-(2**63), 2**63 - 1]),
        torch.tensor([[1, 2], [3, 4]], dtype=torch.int16).t(),
        torch.tensor([0.1, -3.0], dtype=torch.bfloat16),
        torch.empty(0),
    ]
    found = AsyncCopy(sent).open()
    assert [repr(part.tolist()) for part in found] == [repr(tensor.detach().reshape(-1).tolist()) for tensor in sent]


def test_what_is_changed_after_sending_arrives_as_it_was():
    loss = torch.tensor([3.0])
    copy = AsyncCopy([loss, torch.ones(1)])
    loss.add_(1)
    assert [part.tolist() for part in copy.open()] == [[3.0], [1.0]]
