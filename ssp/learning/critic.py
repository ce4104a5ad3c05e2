"""The value model of GAE: a copy of the start model with one linear value head, and its optimizer.

The head sees only the positions at which a model token is about to be written, so that no other
position has a value or a gradient (law 1; Search-R1's critic trains on retrieved text). Values
start at exactly 0."""

from pathlib import Path

import torch
from torch import Tensor, nn

from ssp.config.role import CriticConfig, LearnerConfig
from ssp.learning import backends, checkpoint
from ssp.learning.backends.ranks import Ranks
from ssp.learning.batch import Batch, lengths
from ssp.learning.figures import Figures
from ssp.learning.forward import states
from ssp.learning.memory import Job, gradient, measured
from ssp.learning.packing import prepare


class ValueNet(nn.ModuleDict):
    """A model's `body` and a linear `head` that starts at 0."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """[M]: the value before each token of `ids` [B, T] where `mask` is true."""
        hidden = states(self["body"], ids, mask)  # type: ignore[arg-type]
        return self["head"](hidden).squeeze(-1)


class Critic:
    """Values of one role's states. `source`: the start model's folder; trained by the role's
    backend, at its own rate."""

    def __init__(
        self, source: Path, config: CriticConfig, learner: LearnerConfig, ranks: Ranks
    ) -> None:
        """InputError for a model folder that is missing or broken."""
        self._config = config
        model = checkpoint.load_model(source)
        prepare(model, learner)
        head = nn.Linear(model.config.get_text_config().hidden_size, 1)
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
        self.net = ValueNet({"body": model.base_model, "head": head})
        self.backend = backends.make(self.net, learner, config.lr, ranks)

    def values(self, batch: Batch, trained: Tensor) -> Tensor:
        """float32 [N, T]: the value before each token that is true in `trained` [N, T], 0
        elsewhere."""
        return measured(trained, self.backend, batch.ids)

    def step(self, batch: Batch, trained: Tensor, rows: Tensor, figures: Figures) -> None:
        """One optimizer step on `rows`. The loss is 0.5 mean over model tokens of max((V - G)²,
        (clip(V, V_old ± c) - G)²), with V_old `batch.values` and G `batch.targets`, advantage +
        V_old.

        Source: the clipped value loss of PPO's code (Schulman et al. 2017), as verl computes it.
        InvariantError, with nothing changed, when loss or gradient is not finite."""
        rows = rows[trained[rows].any(dim=1)]
        if not len(rows):
            return

        total = int(trained[rows].sum())
        ends = lengths(trained)
        clip = self._config.value_clip
        old = batch.values
        goal = batch.targets
        assert old is not None and goal is not None

        def loss(rows: Tensor, figures: Figures) -> Tensor:
            length = int(ends[rows].max())
            mask = trained[rows, :length]
            value: Tensor = self.backend(batch.ids[rows, :length], mask)
            before = old[rows, :length][mask].to(value.device)
            target = goal[rows, :length][mask].to(value.device)
            plain = (value - target).square()
            moved = before + (value - before).clamp(-clip, clip)
            bounded = (moved - target).square()
            figures.add_values(value, bounded > plain)
            return 0.5 * torch.maximum(plain, bounded).sum() / total

        (whole,) = gradient([Job(batch.ids, ends, rows, loss, figures)], self.backend)
        self.backend.learn(whole, self._config.lr)
        figures.value_loss += whole
