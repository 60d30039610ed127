"""One part of a target on one fold: its rows, the columns of the inputs in view, and the closed form's results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cbm.discovery.contact import between_angles, differences
from cbm.discovery.dataset import Dataset
from cbm.discovery.forms import Structure
from cbm.discovery.screen import Additive, additive
from cbm.discovery.settings import BUNDLED, MOST_SEEN
from cbm.discovery.split import Rows, rows_of


class Part:
    """One part of a target on one fold, before anything is fitted."""

    def __init__(
        self, data: Dataset, screened: Additive, part: int, fold: int, own: int, pairs: bool, value: bool = False
    ):  # fmt: skip
        self.data, self.screened, self.part, self.fold, self.own = data, screened, part, fold, -1 if value else own
        self.past = own
        """The variable's own past, if the part belongs to one variable; an ordinary input if the next value is
        predicted."""
        self.columns, self.within = data.columns_of(part), int(data.within[part])
        self.rows = rows_of(data, fold, part)
        self.y = np.array(data.y[:, self.columns])
        self.wald, self.grouped = screened.wald[self.columns].max(0), screened.grouped[self.columns].max(0)
        self.bundle = screened.bundle
        self.shows_action = screened.repeats
        """Inputs that merely repeat the action, or the previous action: that is in view anyway."""
        self.candidates: list[int] = []
        self.structure, self.every_form = Structure(), True
        self.discrete = bool(data.discrete[part])
        self.always = [*([self.own] if self.own >= 0 else []), *range(data.action, data.inputs)]
        self.shadows = [int(j) for j in np.arange(data.inputs, int(data.owner.max()) + 1)]
        self.seen = self._seen()
        self.before = data.before(part, self.own)
        self.about_exceptions = False
        """Whether it predicts the exceptions to another part's law; it then shares its trees with no other part."""
        self.value = value
        if value:
            after = self.y[:, 0] + data.before(part, own)
            self.y = ((after - after.mean()) / after.std())[:, None]
        self.pairs = pairs
        self.x, self.owner = self._table()
        self._use_rows(self.rows)

    def _use_rows(self, rows: Rows) -> None:
        """New rows outside the range of the training rows are left out or, if most are, moved to its edge."""
        self.rows = rows.inside(self.x)
        seen, new = self.x[rows.fit], np.concatenate([self.rows.kept, self.rows.test])
        self.x[new] = np.clip(self.x[new], seen.min(0), seen.max(0))
        self.cluster = np.unique(self.data.cluster[self.rows.test], return_inverse=True)[1]

    def _seen(self) -> list[int]:
        """Inputs in view: all, or in a wide log the most useful ones and their bundles, those always in view, and
        shadows."""
        inputs = self.data.inputs
        if inputs <= MOST_SEEN:
            return [*range(inputs), *self.shadows]
        best = np.argsort(-self.wald[:inputs], kind="stable")[:MOST_SEEN].tolist()
        return sorted({*best, *self._mates(best), *self.always, *self.shadows})

    def _mates(self, chosen: list[int]) -> list[int]:
        """Inputs that hardly vary independently of the chosen ones, or of each other where they matter as a group."""
        inputs = self.data.inputs
        bundles = set(self.bundle[chosen]) | set(self.bundle[:inputs][self.grouped[:inputs] > BUNDLED])
        mates = np.flatnonzero(np.isin(self.bundle[:inputs], list(bundles - {-1})) & ~self.shows_action[:inputs])
        return [int(j) for j in mates]

    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """(T, C) columns of the inputs in view, and differences of two of them; (C, 2) the inputs that each column
        belongs to."""
        data = self.data
        chosen = np.flatnonzero(np.isin(data.owner, self.seen))
        x, owner = data.columns[:, chosen], data.owner[chosen]
        owners = np.stack([owner, owner], 1)
        if not self.pairs:
            return x, owners
        variables = np.flatnonzero(owner < data.action)
        pairs, more = differences(x[:, variables], self.y, self.rows.fit)
        angles = np.flatnonzero(np.isin(data.angle_owner, self.seen))
        turned, between = between_angles(data.angles[:, angles], self.y, self.rows.fit)
        owners = np.concatenate([owners, owner[variables[pairs]], data.angle_owner[angles[turned]]])
        return np.concatenate([x, more, between], 1), owners

    def _look(self) -> None:
        """Set the closed form's results: known already, unless the part covers some rows only or predicts the next
        value."""
        if self.within < 0 and not self.value:
            self.residual, self.nats = self.screened.residual[:, self.columns], self.screened.nats[self.columns].max(0)
            return
        plain = self.owner[:, 0] == self.owner[:, 1]
        view = replace(self.data, columns=self.x[:, plain], owner=self.owner[plain, 0], y=self.y)
        found = additive(view, np.sort(np.concatenate([self.rows.fit, self.rows.kept])), self.bundle)
        self.residual, self.wald = found.residual, found.wald.max(0)
        self.grouped, self.nats = found.grouped.max(0), found.nats.max(0)
