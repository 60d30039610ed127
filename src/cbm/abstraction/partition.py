"""Every variable in one of K classes: a distribution over partitions that can be learned by gradient descent.

The logits (d, K) are its only parameters. A hard Gumbel-softmax sample (Jang et al. 2017) assigns each variable to a
class, separately in each row of a batch; gradients are those of the soft sample. The temperature only scales these
gradients and does not influence which class is drawn. Which class sees which, and what is predicted, is defined by TIA
and Denoised MDP.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


class Partition:
    """Class probabilities of d variables, and samples of partitions."""

    def __init__(self, start: Tensor, seed: int):
        self.logits = nn.Parameter(start.clone())  # (d, K)
        self.generator = torch.Generator().manual_seed(seed)

    @property
    def classes(self) -> int:
        return self.logits.shape[1]

    def sample(self, rows: int, temperature: float) -> Tensor:
        """(B, d, K) one-hot members, one partition per row; the gradient is that of the soft sample."""
        noise = torch.empty(rows, *self.logits.shape).exponential_(generator=self.generator).log()
        soft = ((self.logits - noise) / temperature).softmax(-1)
        hard = functional.one_hot(soft.detach().argmax(-1), self.classes).to(soft.dtype)
        return hard + (soft - soft.detach())

    def probabilities(self) -> np.ndarray:
        """(d, K)."""
        return np.asarray(self.logits.detach().softmax(-1).numpy())

    def lead(self) -> np.ndarray:
        """(d,) probability of class 0 relative to the most likely other class: 1 at a tie, which keeps the variable."""
        logits = self.logits.detach()
        return np.asarray((logits[:, 0] - logits[:, 1:].amax(1)).exp().numpy())
