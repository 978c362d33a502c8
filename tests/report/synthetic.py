"""Runs and evidence made up in memory: a report needs no model, nor does its test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from longshot.estimate import Cost, Estimate, Witness
from longshot.report.evidence import Evidence
from longshot.report.page import page
from longshot.study.fits import LeaveOneOut
from longshot.study.losses import ITAKURA_SAITO, SQUARED_LOG
from longshot.study.results import Run
from longshot.study.scores import CellScore, Coverage, LossName, LossScore
from longshot.study.store import Chosen, Key, Row, Target, Tuned
from longshot.study.summary import CONSTANT, Scored

MODELS = ("mini-1l", "mini-2l", "mini-4l")
INPUTS = ("hex", "camel", "colon", "if", "caps", "english", "spanish", "icl")
NOISE = {"naive": 0.3, "conditional": 0.5, "gld": 2.5, "qld": 1.6, "itgis": 0.7, "mhis": 0.9}
"""Standard deviation of each method's log estimate."""
NO_HIT = {"naive": 0.98, "conditional": 0.4, "gld": 0.0, "qld": 0.1, "itgis": 0.1, "mhis": 0.2}
NASTY = (
    "'</script><script>alert(1)</script>'", "'<!--'", '"quo\\"te"', "' two\nlines'",
    "'\x00\x1b[31m'", "'\u2028'", "'\ud800'", "'&amp; <b>'", "'${1}%%DATA%%'", "' é漢字🙂'",
)  # fmt: skip


def estimate(method: str, log_probability: float, spread: float, **other: Any) -> Estimate:
    p = math.exp(log_probability)
    given, wide = method not in ("gld", "qld") and p > 0, math.exp(2 * spread)
    return Estimate(
        method=method,
        settings={"temperature": 1.0},
        event="token:1",
        seed=0,
        budget=4096,
        log_probability=log_probability,
        interval=(p / wide, min(p * wide, 1.0)) if given else (0.0, 1.0),
        no_interval=None if given else "no sample hit",
        hits=7 if p > 0 else 0,
        statistics={"mu": -4.0 + 0.2 * log_probability if p > 0 else -9.0, "sigma": 1.5},
        **other,
    )


def make_run(
    models: Sequence[str] = MODELS,
    inputs: Sequence[str] = INPUTS,
    methods: Sequence[str] = tuple(NOISE),
    targets: int = 64,
    *,
    tuned: bool = True,
    rows: bool = True,
    failed: bool = False,
    nasty: bool = False,
    zeros: bool = False,
) -> Run:
    """A run of made-up estimates around made-up truths."""
    rng = np.random.default_rng(7)
    chosen, made, curves = {}, [], {}
    for m, model in enumerate(models):
        for name in inputs:
            truths = np.exp(rng.uniform(math.log(1e-7), math.log(1e-4), targets))
            cell = tuple(
                Target(
                    token=100 + i,
                    text=NASTY[i % len(NASTY)] if nasty else repr(f" token{i}"),
                    probability=float(p),
                    standard_error=float(p * rng.uniform(0.02, 0.25)),
                )
                for i, p in enumerate(truths)
            )
            chosen["run", model, name] = Chosen(cell, 5 * targets, "conditional, 2^26 leaves")
            for label in methods if rows else ():
                noise = NOISE.get(label, 1.0) * (1 + 0.3 * m)
                for target in cell:
                    key = Key("run", model, name, label, 0.0, target.token)
                    if failed:
                        made.append(Row(key, error="the model gives numbers that are not finite"))
                        continue
                    lost = zeros or rng.random() < NO_HIT.get(label, 0.2)
                    log_q = (
                        -math.inf if lost else math.log(target.probability) + rng.normal() * noise
                    )
                    witness = Witness((1, 2, 3), _text(rng, nasty), -80.0, 0.4)
                    shares = label in ("naive", "conditional", "gld", "qld")
                    cost = Cost(4096, 0 if shares else 4096, int(10 ** (9 + m / 2)), 0.4 * (1 + m))
                    answer = estimate(
                        label, min(log_q, -1e-3), noise,
                        cost=Cost(macs=1000, seconds=0.001) if shares else cost,
                        shared_cost=cost if shares else Cost(),
                        witnesses=() if lost else (witness,),
                    )  # fmt: skip
                    made.append(Row(key, answer))
            for label in [m for m in ("itgis", "mhis") if m in methods] if tuned else ():
                curve = [
                    (t, float(abs(math.log(t)) / 3 + rng.random() / 4)) for t in (0.2, 0.5, 1, 2, 5)
                ]
                best = min(curve, key=lambda pair: pair[1])[0]
                curves[model, name, label] = Tuned(best, tuple(curve))
    study = {
        "name": "synthetic",
        "models": list(models),
        "inputs": list(inputs),
        "methods": {label: {"method": None} for label in methods},
    }
    return Run(Path("run.sqlite"), study, chosen, tuple(made), curves)


def _text(rng: np.random.Generator, nasty: bool) -> str:
    words = [f"Word{number}" for number in rng.integers(0, 5000, 30)]
    return "<|BOS|>" + (NASTY[0] + "\n" if nasty else "") + "".join(words)


def make_evidence(run: Run) -> Evidence:
    """The evidence of a run without the time of real fits: estimates are their own."""
    outcomes = {}
    methods = list(run.methods)
    for model, inputs in run.cells:
        targets = run.chosen["run", model, inputs].targets
        for label in (CONSTANT, *methods):
            answers = [] if label == CONSTANT else run.estimates(model, inputs, label)
            pairs = answers or [(t, None) for t in targets]
            scored = Scored(
                model,
                inputs,
                label,
                tuple(answers),
                _score(pairs),
                tuple(t.token for t, _ in pairs),
            )
            outcomes[model, inputs, label] = scored
    return Evidence(
        run, tuple(run.study["models"]), tuple(run.study["inputs"]), (CONSTANT, *methods), outcomes
    )


@cache
def full_page() -> str:
    """The page of a study as large as the paper's; made once, since it takes seconds."""
    return page(make_evidence(make_run()))


def _score(pairs: Sequence[tuple[Target, Estimate | None]]) -> CellScore:
    log_p = np.log([target.probability for target, _ in pairs])
    relative = np.array([target.standard_error / target.probability for target, _ in pairs])
    level = float(ITAKURA_SAITO.log_constant(log_p))
    log_q = np.array([e.log_probability if e and e.probability > 0 else level for _, e in pairs])
    log_q = np.clip(log_q, log_p - 2, log_p + 2)
    square = float((relative**2).mean())
    losses: dict[LossName, LossScore] = {}
    for name, loss, floor in (("is", ITAKURA_SAITO, square / 2), ("log", SQUARED_LOG, square)):
        lost = loss(log_p, log_q)
        mean, none = float(lost.mean()), np.zeros(len(pairs), dtype=bool)
        left_out = LeaveOneOut(lost, log_q, lost, none)
        losses[name] = LossScore(mean, mean, 0, None, mean, floor, None, left_out, lost)
    given = sum(e is not None and e.is_two_sided for _, e in pairs)
    return CellScore(
        targets=len(pairs),
        unjudged=0,
        losses=losses,
        zeros=sum(e is not None and not e.probability for _, e in pairs),
        coverage=Coverage(given, round(0.9 * given)),
        judged=np.ones(len(pairs), dtype=bool),
        log_p=log_p,
        log_fitted=log_q,
    )
