"""Predicts next states from the causes alone: the best candidate on a grid, refined around it.

Scores of all candidates are one matrix product. Around the best one the density gives the prediction's position between
the grid's points, so thousands of random candidates are not needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cbm.data.factors import Factors
from cbm.discovery.models.candidates import CandidateNetworks
from cbm.discovery.models.trunk import NOTHING
from cbm.discovery.targets import TABLE, action_columns, wrap
from cbm.discovery.tensor_dataset import Dynamics

WINDOW = 6  # knots on either side of the best one that refine it
ROWS = 2048  # predicted at once


@dataclass(frozen=True)
class Predictor:
    """One-step and many-step predictions from the causes found."""

    factors: Factors
    dynamics: Dynamics
    model: CandidateNetworks
    """Restricted to the causes of each variable."""

    def step(self, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Next states (n, d) from states (n, d) and actions (n, a)."""
        result = np.array(obs, dtype=np.float64)
        for start in range(0, len(obs), ROWS):
            rows = slice(start, start + ROWS)
            result[rows] = self._chunk(result[rows], action[rows])
        return result

    def rollout(self, obs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """(n, d) starting states and (n, steps, a) actions -> (n, steps, d) predicted states."""
        states = []
        for t in range(actions.shape[1]):
            obs = self.step(obs, actions[:, t])
            states.append(obs)
        return np.stack(states, 1)

    @torch.no_grad()
    def _chunk(self, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        dataset = self.dynamics.dataset
        if not dataset.targets:
            return obs.copy()
        x = self.columns(obs, action)
        heads = self.model.heads(
            self.model.encoder(x), torch.full((len(dataset.targets), len(x)), NOTHING, device=x.device)
        )
        raw = self._explicit(heads) if self.model.explicit else self._implicit(torch.bmm(heads, self.model.curve))
        result = obs.copy()
        for k, target in enumerate(dataset.targets):
            base = obs[:, target.index] if target.changes else 0.0
            value = base + raw[k]
            result[:, target.index] = wrap(value) if target.kind == "angle" else value
        return result

    def columns(self, obs: np.ndarray, action: np.ndarray) -> Tensor:
        """Standardised input columns; shadows stay zero, since they are never causes."""
        dataset = self.dynamics.dataset
        inputs = np.concatenate([obs, action_columns(action, self.factors.discrete_actions)], 1)
        x = np.zeros((len(obs), dataset.encoder.columns), np.float32)
        x[:, : inputs.shape[1]] = dataset.columns(inputs)
        return torch.from_numpy(x).to(self.model.slots.device)

    def _explicit(self, heads: Tensor) -> np.ndarray:
        dataset = self.dynamics.dataset
        raw = heads[..., 0].double().cpu().numpy() * dataset.outputs.std[:, None] + dataset.outputs.mean[:, None]
        for k, target in enumerate(dataset.targets):
            if target.levels:
                raw[k] = target.coordinate.values[heads[k, :, : target.levels].argmax(-1).cpu().numpy()]
        return raw

    def _implicit(self, scores: Tensor) -> np.ndarray:
        """(K, B, knots) scores -> (K, B) predicted values or changes."""
        u = refine(scores).double().cpu().numpy()
        raw = np.empty_like(u)
        grid = np.linspace(0, 1, TABLE)
        for k, target in enumerate(self.dynamics.dataset.targets):
            raw[k] = np.interp(u[k], grid, self.inverse[k])
            if target.levels:
                raw[k] = target.coordinate.values[_likeliest_level(scores[k], target.coordinate.upper)]
        return raw

    @cached_property
    def inverse(self) -> np.ndarray:
        """(K, TABLE) the value at each u."""
        return np.stack([target.coordinate.inverse_table() for target in self.dynamics.dataset.targets])


def refine(scores: Tensor) -> Tensor:
    """(K, B, knots) -> (K, B): the best grid point, moved to the mean of the density around it."""
    last = scores.shape[-1] - 1
    best = scores.argmax(-1, keepdim=True)
    around = (best + torch.arange(-WINDOW, WINDOW + 1, device=scores.device)).clamp(0, last)
    weight = torch.softmax(scores.gather(-1, around), -1)
    return (weight * around).sum(-1) / last


def _likeliest_level(scores: Tensor, upper: np.ndarray) -> np.ndarray:
    """(B, knots) -> (B,): the level whose interval of u holds the most probability."""
    knots = np.linspace(0, 1, scores.shape[-1])
    level = torch.from_numpy(np.minimum(np.searchsorted(upper, knots), len(upper) - 1)).to(scores.device)
    mass = scores.new_zeros(len(scores), len(upper)).index_add_(1, level, torch.softmax(scores, -1))
    return mass.argmax(-1).cpu().numpy()
