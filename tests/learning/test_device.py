"""The learner with its weights on another device than the host: no operation over both, and the host's numbers."""

from __future__ import annotations

import copy

import pytest
from elsewhere import NAME, there
from solo import SoloLearner, timeless

SETTINGS = [
    {"entropy_coef": 0.01, "minibatch": 4, "loss": "decoupled"},
    {"algorithm": "gae", "lam": 0.9},
    {"packing": True, "checkpointing": True, "kl": ("k3", "loss")},
    {"packing": True, "kl": ("topk_forward", "loss"), "ema_tau": 0.9},
    {"packing": True, "kl": ("k1", "reward"), "rank": 4},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_learner_computes_where_it_is_told(model_dir, make_batch, role, settings):
    role.kl.kind, role.kl.place = settings.get("kl", ("k3", "loss"))
    role.kl.coef, role.kl.ema_tau = 0.1 * ("kl" in settings), settings.get("ema_tau", 1.0)
    for block in (role, role.learner, role.learner.lora):
        for key in settings.keys() & vars(block).keys() - {"kl"}:
            setattr(block, key, settings[key])
    role.learner.token_budget, batch = 128, make_batch(8, noise=0.3)
    away = copy.deepcopy(role)
    away.learner.device = NAME
    here = SoloLearner(model_dir, role)
    with there():
        other = SoloLearner(model_dir, away)
        assert {tensor.device.type for tensor in other.inner.policy.state_dict().values()} == {NAME}
        for _ in range(2):  # the second one sees what the first one learned; kernels of attention differ
            assert timeless(other.update(batch)) == pytest.approx(timeless(here.update(batch)), rel=1e-4, abs=1e-6)
        ours = here.weights()
        assert {name: array.shape for name, array in other.weights().items()} == {n: a.shape for n, a in ours.items()}
