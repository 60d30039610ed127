"""All numbers that steer discovery: options in one frozen record with its presets, then those that are no options."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from cbm.checks import above, at_least, check_record, record_from_json
from cbm.errors import DataError

ModelName = Literal["implicit", "explicit", "demi"]
Preset = Literal["fast", "paper", "debug"]
Rule = Literal["calibrated", "threshold"]


@dataclass(frozen=True)
class Settings:
    """How models are built, trained and judged."""

    model: ModelName = "implicit"
    """implicit: contrastive critics (CBM). explicit: Gaussian and categorical heads (CDL).
    demi: a learned conditional critic."""
    architecture: Literal["trunk", "pairwise"] = "trunk"
    """trunk: one network for all targets. pairwise: the paper's one network per (target, input) pair."""
    width: int = 512
    """Hidden units of the trunk (of each pair network, with `pairwise`). More: finer functions, slower."""
    depth: int = 2
    """Hidden layers of the trunk."""
    code: int = 16
    """Size of the code in which a context and a candidate meet. More: richer densities."""
    knots: int = 65
    """Points on which a target's density is represented; bounds a CMI at log(knots - 1)."""
    candidates: int = 512
    """Negative samples per positive (`pairwise` only; the trunk scores its whole grid)."""
    score_penalty: float = 1e-6
    """Weight of the squared scores (lambda_1 of Eq. 5)."""
    slope_penalty: float = 1e-6
    """Weight of the squared slope of the score along the candidate (lambda_2 of Eq. 5)."""
    batch: int = 160
    """Transitions per update."""
    teaching: bool = True
    """Whether leave-one-out models learn from the full model's density, or from outcomes like the full model."""
    full_share: float = 0.1
    """Without teaching: share of each batch that sees all inputs; in the rest one is dropped per transition."""
    learning_rate: float = 3e-3
    """Peak of a warm-up and cosine schedule."""
    weight_decay: float = 0.1
    """Pull of the weights towards zero, times the learning rate; raised during training where it overfits."""
    updates: int = 2000
    """Of the published networks (preset `paper`, model `demi`), where no number of steps is given."""
    prediction_updates: int = 400
    """Of the small networks that predict from the causes found."""
    last_action: Literal["auto", "on", "off"] = "auto"
    """Whether models of the dynamics see the action before, too. auto: where most rows continue another one."""
    folds: int = 3
    """Parts into which episodes are divided; each is tested by models fitted to the others."""
    most_rows: int = 240_000
    """Rows of a log that are used, in whole episodes. More: weaker effects are seen, in more time and memory."""
    kept_one_in: int = 6
    """Of the episodes that models are fitted to, one in so many is kept out to choose between models."""
    false_discovery_rate: float = 0.01
    """Share of false ones among all edges that are claimed, at most. Lower: fewer edges, more undecided cells."""
    miss_rate: float = 0.02
    """Share of effects at the limit of detection that are missed. Lower: a higher limit."""
    shadows: int = 12
    """Time-shifted copies of real variables, added as inputs that cannot matter, to calibrate decisions."""
    differences: bool = True
    """Whether models also see differences of two variables that the data relate: in refits, those that go together
    while a target is active; in networks, the same quantity of two objects (`hand_x`, `block_x`)."""
    held_out: float = 0.2
    """Share of the episodes kept for measuring CMI."""
    evaluation_rows: int = 20_000
    """Held-out transitions used for CMI, at most."""
    expected: bool = True
    """Whether decisions are made on the mean of what the full model expects a dropped input to cost, as long as
    outcomes do not contradict it, or on what it did cost at the outcomes (the paper): the former is far less noisy."""
    rule: Rule = "calibrated"
    """calibrated: per-target thresholds from the shadows, with an undecided zone.
    threshold: CMI >= epsilon (the paper)."""
    epsilon: float = 0.02
    """Threshold in nats of the paper's rule."""
    smallest_effect: float = 0.001
    """Calibrated rule: effects below this many nats are never called edges."""
    strongest_share: float = 0.015
    """Calibrated rule: nor are those below this share of the target's strongest one, by which leave-one-out models of
    well-predicted targets may err."""
    reward_inputs: Literal["next-state", "state-action", "both"] = "next-state"
    """What a reward may depend on, beside the action: the state after the step, the state before it, or both."""

    def __post_init__(self) -> None:
        one, zero, share = at_least(1), at_least(0), at_least(0, 1)
        check_record(
            self, width=one, depth=one, code=one, knots=at_least(3), candidates=one, batch=at_least(2), updates=one,
            prediction_updates=zero, folds=at_least(2), most_rows=one, kept_one_in=at_least(2), evaluation_rows=one,
            score_penalty=zero, slope_penalty=zero, learning_rate=above(0), weight_decay=zero, shadows=zero,
            false_discovery_rate=above(0, 1), miss_rate=above(0, 1), held_out=above(0, 1), full_share=share,
            epsilon=zero, smallest_effect=zero, strongest_share=share,
        )  # fmt: skip
        if self.held_out == 1 or self.full_share == 1:
            raise DataError("settings held_out and full_share must be less than 1")
        if self.rule == "calibrated" and self.shadows < 2:
            raise DataError(f"the calibrated rule needs at least 2 shadows, got {self.shadows}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Settings:
        return record_from_json(cls, data)


def preset(name: Preset, model: ModelName = "implicit") -> Settings:
    """`fast` for real use, `paper` for the published networks and losses, `debug` to try the plumbing."""
    if name not in get_args(Preset):
        raise DataError(f"unknown preset {name!r}; choose one of {', '.join(get_args(Preset))}")
    if model not in get_args(ModelName):
        raise DataError(f"unknown model {model!r}; choose one of {', '.join(get_args(ModelName))}")
    base = Settings(model=model)
    if model == "explicit":  # as published: log-likelihoods of outcomes
        base = replace(base, expected=False, smallest_effect=0.005)
    if model == "demi":  # as published: its own estimate against a fixed threshold
        base = replace(base, rule="threshold", shadows=0, differences=False, expected=False, teaching=False, batch=320)
    if name == "debug":
        return replace(
            base, width=64, code=8, knots=33, batch=128, shadows=min(4, base.shadows), evaluation_rows=1000,
            prediction_updates=100,
        )  # fmt: skip
    if name == "paper":
        return replace(
            base,
            architecture="pairwise",
            differences=False,
            expected=False,
            shadows=0,
            teaching=False,
            width=128,
            code=128,
            batch=32,
            full_share=0.5,
            learning_rate=3e-4,
            weight_decay=0.0,
            rule="threshold",
        )
    return base


# Numbers that are no options: the same for every log.

# Rows, folds and targets
LONGEST_CLUSTER = 200  # rows; a longer episode counts as several
FEWEST_UNITS = 24  # episodes; with fewer, episodes are cut into blocks before they are divided into folds
USUAL_SHARE = 0.1  # share of the rows with one value, from which on a target has two parts
ROUNDING = 1e-6  # deviations by which that value may differ from row to row
AT_REST = 0.01  # deviations up to which what lies next to it counts as having it, too: less movement is rest
FEWEST_APART = 500  # rows that must have that value, and as many another one
SAME_EVENT = 0.03  # share of their rows in which two targets may move alone and still count as moving together
ATOM = 1 / 32  # a value that makes up more than this share of the data is treated as discrete
SELF_MEMORY = 0.7  # nats of self-memory above which the change is predicted (half the residual)
LOG_WORTH = 0.05  # nats by which a variable's logarithm must be predicted better than itself to take its place
LOG_ROWS = 20_000  # rows on which the two are compared, at most
FEWEST_WRAPS = 10  # jumps by its whole range that a variable must make to count as one that wraps
RARE_STEP = 0.005  # share of its other steps that may be anything, on either side ...
OTHER_JUMPS = 0.1  # ... and of its jumps
USUAL_STEP = 0.25  # share of its range up to which such a variable moves in one step otherwise
PERIODS = (2 * math.pi, 360.0, 24.0, 1.0)  # looked for first, since the values seen seldom reach both ends
REPETITION = 1e-3  # share of its variance that a repetition may have of its own: rounding, clipping
CONTINUED = 0.8  # share of the rows that must continue another, for the last action to be looked at unasked
ROWS_PER_COLUMN = 10  # of the action, from which on repetitions are told: with fewer, anything can be fitted
LAST_ACTION_WORTH = 0.1  # nats that the action before must be worth to some target, given the state

MOST_FITTED = 40_000  # rows that one model is fitted to and chosen on. More: finer models, slower
MOST_TESTED = 20_000  # rows that one model is tested on, where each of them has hundreds of features; trees need none
MOST_NUMBERS = 24_000_000  # rows times columns that are held, beyond what is fitted to and tested on at least

# The look at all inputs
MOST_FEATURES = 4000  # of the closed form; wider logs get fewer hinges per column. More: slower, with the cube
RIDGE = 1e-8  # of a feature's variance: enough to invert what repeats itself
MOST_SEEN = 64  # inputs that trees look at; in wider logs those that the closed form finds most useful
SIGNIFICANT = 4.0  # deviations of a chi-square that make a candidate. Lower: more candidates, slower
LOOK_ROUNDS = 30  # of boosting, at most, when trees look at everything
ROWS_PER_FEATURE = 4  # of the closed form, from which on it may tell that an input follows from others
OWN_VARIATION = 0.02  # share of its variance below which an input hardly varies by itself

# Differences
CLOSER = 0.5  # share of one that the other leaves unexplained while the target is active, in units of the usual share
ACTIVE = 0.1  # share of the rows in which a continuous target is farthest from its median
FEWEST_ACTIVE = 100  # rows of activity; with fewer, nothing is said
MOST_DIFFERENCES = 8  # differences at most
COPY = 1e-6  # share that may be left unexplained by a variable that merely repeats another

# Closed forms
HINGES = 7  # per column in the look at all inputs, and at least in refits. More: finer bends, slower
TAIL = 0.001  # share of the rows beyond the outermost of evenly spaced hinges, on either side
MOST_PRODUCTS = 480  # features of order two; beyond it, only plain products
MOST_TRIPLES = 220  # products of three, of which there are none beyond it
MOST_POWERS = 500  # monomials
POWER_REACH = 8.0  # deviations of a column at which its powers are cut off
CONSTANT = 1e-12  # variance, in units of the column's, below which a feature says nothing

# Refits
BENDS = 15  # of a linear prediction: limits at which it is cut off
MOST_HINGES = 31  # of one column in refits: what is not fitted looks like an effect of all that goes with it
MOST_SINGLES = 400  # functions of one column each, of all columns together
ROWS_PER_SINGLE = 20  # at least, beyond the usual number of hinges
RIDGES = (1e-8, 1e-3, 1e-1)  # among which kept-out rows choose
RIDGE_ROWS = 20_000  # from which on the smallest ridge is taken without asking
CHOOSING = 10_000  # rows on which closed forms are compared, and as many kept-out ones, at most
WORTH_TRYING = 4.0  # deviations of the clearest product or power in what a simpler closed form leaves over
BETTER = 0.998  # share of the loss on kept-out rows that a richer model must get below
BOOST_ROUNDS = 60  # of boosting in refits, at most
FLOOR = 1e-8  # variance, in units of the target's: what is below is rounding
SLOPES = (0.25, 0.5, 0.75)  # quantiles of an input between which the slope of its own small part may change
TAIL_DEGREES = 3.0  # of freedom of Student's distribution, for residuals with heavy tails ...
TAIL_WORTH = 0.02  # ... where it is worth so many nats a row
TAME = 0.3  # share of the squared error in a thousandth of the rows, from which on outliers are drawn in
FEW_OUTSIDE = 0.05  # share of new rows outside the range that models have seen, up to which they are left out
FEW_FITTED = 10_000  # rows, below which all boosting is careful
CAREFUL = 2  # times smaller steps of boosting, where a weak effect is looked at again
BOOST_PATIENCE = 6  # rounds without progress on kept-out rows

# Candidates and controls
MOST_CANDIDATES = 24  # of a part; each is refitted without. More: slower, in proportion
PAIRED = 5.5  # deviations of the best of all products, from which on a pair is looked at
TINY = 1e-4  # share of all gain, below which nobody looks
FOUND = 1.5  # times a shadow's gain, from which on trees have found something
SURE = 6.0  # errors above zero: no second opinion is needed ...
SURE_WITHOUT_NOISE = 12.0  # ... and where a law has no noise, so that a few rows may make up an effect and its error
NEGLIGIBLE = 2e-4  # nats that nobody looks for
FEW_CANDIDATES = 6  # that are not worth pruning
PRUNED_ROWS = 5000  # below which a group's effect is too uncertain for pruning
MOST_ADDED = 6  # candidates that the third look brings back
BUNDLED = 20.0  # deviations of a chi-square, for inputs that hardly vary apart and show only together
WEAK = 0.1  # nats, below which an effect must also hold against better models without the input ...
WEAK_SHARE = 0.25  # ... as it must below this share of all that is known of the target: where there is no noise, a
# little misfit is worth many nats
HARMFUL = 3.0  # errors below zero, from which on a candidate makes the model worse and is dropped
CONCEIVABLE = 1.7  # errors of one fold, below which three folds together cannot make an edge: no stand-in is needed
CONTROLS = 2  # shadows among the candidates of each target
PLANTED = 0.02  # nats of the planted effect
LITTLE = 0.98  # share of a target's variance, above which nothing of its mean is explained
SPREAD_ROUNDS = 3  # rounds of boosting that the spread of a target must be worth before its causes are sought
UNFITTED = 0.1  # nats gained by twice the rows, from which on what a model leaves over is no noise ...
UNFITTED_SHARE = 0.25  # ... and the share of them that an input which merely goes with the causes may be worth
NOISY = 1e-4  # of a target's variance: less is no noise either ...
MISFIT = 0.2  # ... and there, nats that such an input may be worth
MOST_MISFIT = 0.4  # the most that it may be worth anywhere: true causes of such laws are worth several nats
EXCEPTIONAL = 6.0  # usual deviations from which on a row is an exception to a law ...
MOST_EXCEPTIONS = 0.25  # ... and the share of the rows up to which they are
SHOWN = 3.0  # times a shadow's gain, for causes of a target's spread

# Verdicts
DEGREES = 10  # of freedom of Student's t: an error rests on about ten shadows, a target's own and those of others
MOST_SCATTER = 25.0  # squared errors by which shadows of one part make others doubt theirs, at most
PRIOR_SHADOWS = 4  # shadows of other targets that count as many as a target's own
PRIOR_FOLDS = 4  # folds that a cell's error counts as much as, beside how far its own folds lie apart
LEAST_EFFICIENCY = 0.1  # share of a planted effect that counts as found at least: a limit is at most ten times higher
BLIND = 0.1  # nats: with a higher limit of detection "none" would say little, unless the target owes far more ...
BLIND_SHARE = 0.5  # ... to its inputs: half of all that is known of it is no high limit
FEW_TESTED = (
    2000  # rows of a fold: with fewer, all folds look at everything, and what they cannot rule out is undecided
)
RARE = 30  # rows in which something must change for its absence of effects to count
DOMINANT = 3.0  # times the effect of an input: a mate in its bundle with a larger one casts doubt on it
HIDDEN = 5.0  # errors of a typical cell: what may have a larger effect than that is looked at on other folds, too
ASKED = 0.5  # errors above zero on the first fold, from which on the other folds are asked
LITTLE_MISFIT = 30.0  # times less than what models do not fit: as little is ruled out together with it
DOUBTFUL = 1.3  # errors above zero from which on a cell that all folds do not settle is undecided

# Networks: verdicts
SHADOW_DEVIATIONS = 4.0  # how far beyond the scatter of the shadows an effect must lie
NORMAL = 1.25  # standard deviations in a mean absolute one: a single odd shadow counts less than in a mean square
SURE_ABOVE_ZERO = 3.0  # its own standard errors that an effect must exceed
STANDARD_ERRORS = 2.0  # distance from the threshold below which a cell is undecided

# Networks: evidence
SETTLED = 5e-4  # nats: a cell surely below this is not looked at again
SHARP = 5.0  # standard errors above zero from which on outcomes are reported as they are ...
REFUTED = 5.0  # ... and below zero from which on the prediction is better without the input
KNOWN = 4.0  # standard errors above zero that some input of a target must reach
PEAK_ROWS = 20_000  # looked at for differences of the same quantity
PEAK = 0.03  # share of the rows in the narrowest interval that is compared
CONCENTRATED = 1.4  # times narrower than for unrelated values
PER_VARIABLE = 1  # pairs at most, per variable

# Networks: the second look
SECOND_LOOKS = 3  # at most, where a target is looked at until nothing more is left out
MOST_SLOTS = 2400  # candidates of all targets together that local networks look at
LOCAL_RATE = 3.0  # small networks bear a higher learning rate than the trunk
CONFIRMED = 0.5  # of the edges of the first look, for its verdicts on what found no room in the second
MOST_SECOND = 24  # candidates of a target; on what ranks behind so many others the first look decides

# Networks: while data come in
ONLINE_RATE = 0.0  # where on the learning-rate schedule online updates stay: at its peak, which sharp steps need
ONLINE_MEMORY = 0.5  # share of the running CMI that stays when a new measurement comes
GROWTH = 2.0  # how many times more rows there must be for a new fit
FIT_ROWS = 40_000  # rows that scales, knots and targets are fitted to, at most
POOL_ROWS = 40_000  # rows that one call trains on, at most
FIRST_UPDATES = 3  # times as many updates in the first call, when there is nothing to go on from
ONLINE_SMALLEST = 0.005  # smallest effect in nats, while in training
UNCONFIRMED_SHARE = 0.05  # share of the strongest cause that an effect must exceed where no second look confirms it
ONLINE_SURE = 1.0  # standard errors that an effect must exceed: to leave out a cause costs more than one too many
DOUBT = 1.0  # standard errors that an effect may lack, where inputs in doubt are kept
ONLINE_WATCHED = 1000  # rows on which overfitting is watched
REWARD_SHARE = 0.05  # of the strongest cause that others must reach: few rows, and what is in doubt is kept anyway
LOCAL_WIDTH = 48  # hidden units of a small network
MOST_PAIRS = 12  # differences that one target's network sees
CANDIDATE = 1e-3  # nats above a typical shadow: anything that may reach this is looked at again

# Networks: training
WARM_UP = 200  # updates until the learning rate has reached its peak
AVERAGE_EVERY = 4  # updates between two steps of the averaged weights
AVERAGE_LENGTH = 250  # such steps over which weights are averaged
REFOCUS = (0.25, 0.4, 0.6, 0.8)  # points of training at which the dropping of inputs is redistributed
FOCUS_CELLS = 12_000_000  # inputs times targets times rows that such a redistribution looks at
FOCUS_ROWS = (32, 500)  # at least, at most
HARD_TO_TELL = 0.01  # nats around which an effect is hard to tell from none
WATCH_EVERY = 100  # updates between two looks at rows kept out of training
WATCHED = (1000, 20_000)  # of those rows: at least, and targets times rows
HARDER = 2.0  # factor by which weight decay follows what such a look shows
STRONGEST_DECAY = 30.0  # times the one it starts from

# Networks: inputs
BINS = 8  # pieces of a scalar's encoding
NEAR_PEAK = 0.3  # share of the values of a difference that are near its peak
EVALUATION_CANDIDATES = 4  # times the number of training candidates
