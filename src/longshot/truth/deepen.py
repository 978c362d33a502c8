"""The driver of certificates: guess the vocabulary, scout, choose by decade, certify.

1. *Guess* all tokens at once by the extrapolation given the last token (`methods/given_last.py`).
2. *Scout*, on half A. Tokens that the samples of half A know to a half need no scout. Of the
   others those that half A has seen, and then those that are guessed, in a decade that lacks
   candidates get a short run of splitting.
3. *Choose* `per_decade` tokens of each decade by their probability on half A, in an order that
   depends on the seed, those that half A has seen first. For one that is refused the next one is
   tried, up to twice as many in all.
4. *Certify*, on half B: pieces of ITGIS leaf by leaf until it knows the token well, then of
   splitting, which checks it, until it does or all were tried; the last piece is a large one, for
   tokens that nothing else can certify, since one large population of splitting gains more than the
   mean of four small ones, or together know it nearly well enough. Samples of half B are a third
   opinion. What becomes of a candidate, and why, is in its certificate (`certificate.py`).

What to do next follows from the pieces that are done and from nothing else, so that the driver may
be stopped anywhere and goes on. When to stop looks at errors, never at probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise

import torch
from jaxtyping import Float64
from torch import Tensor

from longshot.errors import LongshotError
from longshot.estimate import Cell, Job
from longshot.evaluate import readout
from longshot.events import TokenIs
from longshot.inputs import Tree
from longshot.methods import make_method
from longshot.methods.last_token import PRIOR
from longshot.truth.certificate import (
    CERTAIN,
    ESTIMATORS,
    KNOWN,
    SAMPLES,
    Certificate,
    CertificatePiece,
    Estimator,
    Opinion,
    PieceKey,
)
from longshot.truth.result import Truth
from longshot.truth.store import Store
from longshot.work import Engine

GUESS = 4096  # calls
PIECES = 4 * (2**15,) + (2**17,)  # calls of the pieces of an estimator that certifies
SCOUT = 2**13  # calls of a scout
FINE: dict[Estimator, float] = {"leafwise": 0.2, "splitting": 0.35}  # errors that need no more
SCOUTS = 5  # for each candidate that is wanted, at most
NEARLY = 0.35  # the error of all opinions together that more pieces may bring below what is asked
TRIED = 2  # candidates for each that is wanted, at most
OPTIMISM = 5.0  # a guess may be so many times too high
WAVE = 8  # scouts between two looks at what is still lacking


@dataclass(frozen=True)
class Depths:
    """Which candidates are wanted: so many in each decade between two probabilities."""

    low: float = 1e-9
    high: float = 1e-5
    per_decade: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high <= 1:
            raise LongshotError(f"No probability lies between {self.low} and {self.high}.")
        if self.per_decade < 1:
            raise LongshotError(
                f"At least one token a decade must be wanted, not {self.per_decade}."
            )

    @property
    def decades(self) -> list[tuple[float, float]]:
        """Their ends as natural logarithms, the rarest first."""
        low, high = math.log(self.low), math.log(self.high)
        count = max(1, round((high - low) / math.log(10)))
        ends = [low + i * (high - low) / count for i in range(count + 1)]
        return list(pairwise(ends))


@torch.no_grad()
def guess_vocabulary(cell: Cell, generator: torch.Generator) -> Float64[Tensor, " vocab"]:
    """log of Σ_y p(y)·Φ(μ_y/σ_y) for every token, from prefixes with all their leaves."""
    model, tree = cell.model, Tree(cell.model, cell.inputs)
    leaves = torch.arange(tree.leaf.size)
    call = model.network.macs(cell.inputs.length) + model.unembedding.numel()
    n = max(8, GUESS * call // tree.price())
    mean, squares = torch.zeros(2, len(leaves), model.vocab_size)
    for done, prefix in enumerate(tree.sample(n, generator).split(1)):
        logits = readout(model).logits(tree.leaves(prefix, leaves)[0]).float().cpu()
        top = logits.topk(2)
        gap = logits - top.values[:, :1]
        gap.scatter_(1, top.indices[:, :1], top.values[:, :1] - top.values[:, 1:])
        apart = gap - mean
        mean += apart / (done + 1)
        squares += apart * (gap - mean)
    pooled = squares.sum(0) / ((n - 1) * len(leaves))
    sigma = ((squares + PRIOR * pooled) / (n - 1 + PRIOR)).clamp(min=1e-12).sqrt()
    log_given = torch.special.log_ndtr((mean / sigma).double())
    guess: Tensor = (tree.leaf.log_probs[:, None] + log_given).logsumexp(0)
    return guess


def run_piece(cell: Cell, key: PieceKey) -> CertificatePiece:
    """One estimate of one token."""
    scouts = key.half == 0
    calls = SCOUT if scouts else PIECES[key.part]
    frozen = {
        "frozen": True,
        "relative_error": 1e-6,
    }  # never reached: the piece takes all its calls
    counts = frozen if key.estimator == "splitting" and not scouts else {}
    method = make_method(key.estimator, **counts)
    number = 2 * ESTIMATORS.index(key.estimator) + key.half
    seed = (4 * key.seed + number) * 2**16 + key.part  # no two pieces share one
    job = Job(cell.model, cell.inputs, (TokenIs(key.token),), calls, seed)
    method.check(job)
    (found,) = method.estimate(job)
    error = found.standard_error
    relative = error / found.probability if error and found.probability else None
    spent = found.cost + found.shared_cost
    return CertificatePiece(key, found.log_probability, relative, calls, spent.macs, spent.seconds)


@dataclass(frozen=True)
class PieceRunner:
    """What an engine maps over pieces; it travels to a worker once, with the model in it."""

    cell: Cell

    def __call__(self, key: PieceKey) -> CertificatePiece:
        """Run the piece of that name."""
        return run_piece(self.cell, key)


@dataclass
class CellDeepened:
    """One cell's candidates: what is known of them, and what to run next."""

    cell: Cell
    wanted: Depths
    truth: Truth
    guess: Float64[Tensor, " vocab"]
    pieces: dict[PieceKey, CertificatePiece] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seed, parts = self.wanted.seed, ("truth", "deep", "order")
        order = self.cell.generator(seed, *parts)
        self.order: list[int] = torch.randperm(len(self.guess), generator=order).tolist()
        chooser = self.truth.halves[0]
        known = chooser.known_to(KNOWN).nonzero()[:, 0]
        log_p = chooser.probability.log()
        self.sampled = dict(zip(known.tolist(), log_p[known].tolist(), strict=True))
        seen = chooser.probability > 0
        self.hint = torch.where(seen, log_p, self.guess)
        self.order.sort(key=lambda token: not seen[token])  # the others stay in their order

    @property
    def scouted(self) -> dict[int, float]:
        """log p on half A of the tokens that had a scout."""
        return {k.token: p.log_probability for k, p in self.pieces.items() if k.half == 0}

    def candidates(self) -> list[list[int]]:
        """The tokens of each decade by half A, as many as are wanted and not refused."""
        known, refused = {**self.sampled, **self.scouted}, self.refused()
        found = []
        for low, high in self.wanted.decades:
            fit = [t for t in self.order if low <= known.get(t, math.inf) < high]
            good = accumulate(t not in refused for t in fit)
            enough = next((i for i, n in enumerate(good, 1) if n == self.wanted.per_decade), None)
            found.append(fit[: min(enough or len(fit), self.most)])
        return found

    @property
    def most(self) -> int:
        """How many candidates of a decade are tried."""
        return TRIED * self.wanted.per_decade

    def refused(self) -> set[int]:
        """Candidates that are settled and not certified."""
        found = self.certificates()
        return {c.token for c in found if not c.is_certified and self._next(c.token, c) is None}

    def scouts(self) -> list[PieceKey]:
        """Whom to scout next: tokens whose guess lies where candidates are lacking."""
        wanted, scouted, refused = self.wanted, self.scouted, self.refused()
        lacking = [
            (low, high + math.log(OPTIMISM))
            for (low, high), found in zip(wanted.decades, self.candidates(), strict=True)
            if len(found) < self.most and len({*found} - refused) < wanted.per_decade
        ]
        most = SCOUTS * wanted.per_decade * len(wanted.decades)
        fits = (
            token
            for token in self.order
            if token not in self.sampled
            and token not in scouted
            and any(low <= self.hint[token] < high for low, high in lacking)
        )
        room = max(min(WAVE, most - len(scouted)), 0)
        return [PieceKey("splitting", 0, token, wanted.seed, 0) for token in islice(fits, room)]

    def certificates(self) -> tuple[Certificate, ...]:
        """What half B says of the candidates so far."""
        truth = self.truth
        return Truth(
            truth.cell, truth.tallies, truth.halves, tuple(self.pieces.values())
        ).certificates

    def next_pieces(self) -> list[PieceKey]:
        """What half B needs next, of every candidate that is neither certified nor hopeless."""
        found = {c.token: c for c in self.certificates()}
        keys = []
        for token in (t for decade in self.candidates() for t in decade):
            estimator = self._next(token, found.get(token))
            if estimator is not None:
                part = len(self._calls(token, estimator))
                keys.append(PieceKey(estimator, 1, token, self.wanted.seed, part))
        return keys

    def _calls(self, token: int, estimator: Estimator) -> list[int]:
        """Those of the pieces that an estimator has of a candidate."""
        name = (estimator, 1, token)
        return [piece.calls for key, piece in self.pieces.items() if key[:3] == name]

    def _next(self, token: int, found: Certificate | None) -> Estimator | None:
        """The estimator that a candidate needs next; None if it is settled."""
        opinions = found.opinions if found else {}
        sampled = SAMPLES in opinions and opinions[SAMPLES].relative_error <= KNOWN
        for estimator in ESTIMATORS:
            opinion = opinions.get(estimator)
            spent = self._calls(token, estimator)
            if opinion is None or _worth_another(opinion, spent, FINE[estimator]):
                return estimator
            if opinion.relative_error > KNOWN and not sampled:
                return None  # hopeless, and one opinion alone certifies nothing
        if found and len(found.known) > 1 and CERTAIN < found.relative_error <= NEARLY:
            left = (e for e in ESTIMATORS if len(self._calls(token, e)) < len(PIECES))
            return next(left, None)
        return None


def _worth_another(opinion: Opinion, spent: Sequence[int], fine: float) -> bool:
    """Whether another piece is needed and there is hope that the last one will be enough."""
    error, ahead = opinion.relative_error, PIECES[len(spent) :]
    if not ahead or error <= (KNOWN if ahead[0] > PIECES[0] else fine):
        return False
    in_the_end = error * (sum(spent) / sum((*spent, *ahead))) ** 0.5
    return len(spent) < 2 or in_the_end <= KNOWN


@dataclass
class DeepStatus:
    """How far a cell is; handed to the callback after each piece."""

    cell: str
    scouted: int = 0
    candidates: int = 0
    certified: int = 0
    pieces: int = 0


def deepen(
    cell: Cell,
    store: Store,
    engine: Engine,
    wanted: Depths,
    truth: Truth,
    on_progress: Callable[[DeepStatus], None] = lambda status: None,
) -> tuple[Certificate, ...]:
    """Add to the store the pieces that a cell's certificates lack; its candidates.

    `truth` holds the samples of both halves, from the store or from a table.
    """
    if len(truth.halves) != 2:
        raise LongshotError(
            f"The truth of {truth.cell} has no two halves to choose and certify on."
        )
    generator = cell.generator(wanted.seed, "truth", "deep", "guess")
    own = {piece.key: piece for piece in store.pieces(cell.key) if piece.key.seed == wanted.seed}
    state = CellDeepened(cell, wanted, truth, guess_vocabulary(cell, generator), own)
    status = DeepStatus(str(cell.key), pieces=len(own))
    runner = PieceRunner(cell)
    for keys in _waves(state):
        for piece in engine.map(runner, keys):
            store.add_piece(cell.key, piece)
            state.pieces[piece.key] = piece
            status.pieces += 1
            status.scouted = len(state.scouted)
            on_progress(status)
        found = state.certificates()
        status.candidates, status.certified = len(found), sum(c.is_certified for c in found)
        on_progress(status)
    return state.certificates()


def _waves(state: CellDeepened) -> Iterator[Sequence[PieceKey]]:
    """Scouts while a decade lacks candidates, then certificates until all are settled."""
    while keys := state.scouts() or state.next_pieces():
        yield keys
