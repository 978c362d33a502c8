"""What writers and judges do is charged: against torch's own counter of operations."""

from __future__ import annotations

import pytest
from torch.utils.flop_counter import FlopCounterMode

import longshot as ls

MODEL = ls.load_model("mini-1l")
JUDGED = ls.Judged("They say:{output}. It is", 2, "mini-2l", answers=("a", "not"))
TEXTS = [(f" {word} {other}", word < other) for word in "abcdefgh" for other in "stuvabcd"]
EVENTS = {
    "written": 300,
    "judged": JUDGED,
    "both": JUDGED,
    "sampled": ls.Sampled(JUDGED, 1.0),
    "examples": ls.Judged(
        "They say:{output}. It is", 2, "mini-2l", examples=TEXTS, answers=("a", "not")
    ),
}


def counted(kind: str, method: str) -> tuple[ls.Estimate, int]:
    """An answer, and the multiply-accumulates that torch counted for it."""
    inputs: ls.Inputs = ls.load_inputs("camel", MODEL)
    if kind in ("written", "both"):
        inputs = ls.generated(MODEL, "The", tokens=4, writer="mini-1l")
    with FlopCounterMode(display=False) as counter:
        answer = ls.estimate(MODEL, inputs, EVENTS[kind], method=method, budget=500)
    return answer, counter.get_total_flops() // 2


@pytest.mark.parametrize("method", ["naive", "auto", "splitting"])
@pytest.mark.parametrize("kind", EVENTS)
def test_every_pass_is_charged(method: str, kind: str) -> None:
    answer, seen = counted(kind, method)
    spent = answer.cost + answer.shared_cost
    # Short batches are filled up, and of a short input the last layer multiplies many zeros.
    assert spent.macs == pytest.approx(seen, rel=0.18)


def test_each_of_several_events_is_charged_its_own() -> None:
    inputs = ls.generated(MODEL, "The", tokens=4, writer="mini-1l")
    alone = [ls.estimate(MODEL, inputs, t, method="splitting", budget=400) for t in (300, 500)]
    both = ls.estimate_many(MODEL, inputs, [300, 500], method="splitting", budget=400)
    assert [a.cost.macs for a in both] == [a.cost.macs for a in alone]


def test_rounds_are_charged_as_much_as_the_whole() -> None:
    inputs = ls.generated(MODEL, "The", tokens=4, writer="mini-1l")
    whole = ls.estimate(MODEL, inputs, 300, budget=700)
    *_, last = ls.estimate_steps(MODEL, inputs, 300, budget=700)
    assert last.cost.macs == whole.cost.macs
