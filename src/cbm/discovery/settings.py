"""All numbers that steer discovery: first the options, in one frozen record with its presets, then constants that
cannot be set."""

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
    """How models are built and trained, and how decisions are made."""

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
    """Size of the codes whose dot product scores a candidate value in a context. More: richer densities."""
    knots: int = 65
    """Points on which a target's density is represented; a CMI cannot exceed log(knots - 1)."""
    candidates: int = 512
    """Negative samples per positive (`pairwise` only; the trunk scores its whole grid)."""
    score_penalty: float = 1e-6
    """Weight of the squared scores (lambda_1 of Eq. 5)."""
    slope_penalty: float = 1e-6
    """Weight of the squared slope of the score with respect to the candidate value (lambda_2 of Eq. 5)."""
    batch: int = 160
    """Transitions per update."""
    teaching: bool = True
    """Whether leave-one-out models are distilled from the full model's density, instead of being fitted to the outcomes
    as the full model is."""
    full_share: float = 0.1
    """Only without `teaching`: share of each batch that sees all inputs; in every other row one input is dropped."""
    learning_rate: float = 3e-3
    """Peak learning rate, reached after a warm-up and followed by a cosine decay."""
    weight_decay: float = 0.1
    """Weight decay of AdamW (multiplied by the learning rate). It is raised during training where the model
    overfits."""
    updates: int = 2000
    """Gradient steps of the published networks (preset `paper`, model `demi`) if `steps` is not given."""
    prediction_updates: int = 400
    """Gradient steps of the small networks that predict each variable from the causes found."""
    last_action: Literal["auto", "on", "off"] = "auto"
    """Whether models of the dynamics also see the previous action. auto: where most rows continue another row, and the
    previous action improves the prediction of some target."""
    folds: int = 3
    """Number of folds into which the episodes are divided (cross-fitting); each fold is tested by models fitted to the
    others."""
    most_rows: int = 240_000
    """Rows of the log that are used at most, in whole episodes. More: weaker effects can be detected, for more time and
    memory."""
    kept_one_in: int = 6
    """Of the episodes available for fitting, one in this many is set aside as validation rows for model selection."""
    false_discovery_rate: float = 0.01
    """Largest expected share of false edges among all edges claimed. Lower: fewer edges, more undecided cells."""
    miss_rate: float = 0.02
    """Share of effects exactly at the limit of detection that may be missed. Lower: a higher limit of detection."""
    shadows: int = 12
    """Number of time-shifted copies of real variables. They are added as inputs that cannot matter, to calibrate
    decisions."""
    differences: bool = True
    """Whether models also see differences of two related variables: in refits, of two that agree closely while a target
    is active; in networks, of the same quantity of two objects (`hand_x`, `block_x`)."""
    held_out: float = 0.2
    """Share of the episodes held out from the training of networks, to measure their CMI and their prediction error."""
    evaluation_rows: int = 20_000
    """Held-out transitions used at most to measure CMI with networks."""
    expected: bool = True
    """Whether networks decide by the loss that the full model expects from dropping an input, as long as the outcomes
    do not contradict it (much less noisy), or by the loss at the observed outcomes (the paper)."""
    rule: Rule = "calibrated"
    """calibrated: per-target thresholds from the shadows, with a zone of undecided cells. threshold: CMI >= epsilon
    (the paper)."""
    epsilon: float = 0.02
    """Threshold of the paper's rule, in nats."""
    smallest_effect: float = 0.001
    """Calibrated rule: effects below this many nats are never called edges."""
    strongest_share: float = 0.015
    """Calibrated rule, networks: neither are effects below this share of the target's strongest effect, since
    leave-one-out models of a well-predicted target can be off by that much."""
    reward_inputs: Literal["next-state", "state-action", "both"] = "next-state"
    """The inputs of a reward besides the action: the state after the step, the state before it, or both."""

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
    """`fast` for real use, `paper` for the published networks and losses, `debug` for a quick test of the whole
    pipeline."""
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


# Constants that are not options: the same for every log.

# Rows, folds and targets
LONGEST_CLUSTER = 200  # rows; a longer episode is split into several clusters when standard errors are computed
FEWEST_UNITS = 24  # episodes; with fewer, episodes are cut into blocks before they are assigned to folds
USUAL_SHARE = 0.1  # share of rows with one and the same value above which a target is modelled in two parts
ROUNDING = 1e-6  # standard deviations by which that value may differ between rows because of rounding
AT_REST = 0.01  # standard deviations within which nearby values count as that value too: smaller movement is rest
FEWEST_APART = 500  # rows that must have that value, and rows that must have another one
SAME_EVENT = 0.03  # share of their active rows in which two targets may move alone and still count as one event
ATOM = 1 / 32  # a value that makes up a larger share of the data than this is treated as discrete
SELF_MEMORY = 0.7  # nats of self-memory above which the change is predicted, not the next value (half the residual)
LOG_WORTH = 0.05  # nats by which the logarithm must be predicted better than the variable itself to replace it
LOG_ROWS = 20_000  # rows on which the two are compared, at most
FEWEST_WRAPS = 10  # jumps across its whole range that a variable must make to be recognised as one that wraps around
RARE_STEP = 0.005  # share of its ordinary steps ignored as outliers, at either end ...
OTHER_JUMPS = 0.1  # ... and share of its jumps that may be something other than wrapping
USUAL_STEP = 0.25  # largest ordinary step of such a variable, as a share of its range
PERIODS = (2 * math.pi, 360.0, 24.0, 1.0)  # tried first, since rarely visited values may not reach both ends
REPETITION = 1e-3  # largest share of its variance that a repetition may have of its own, from rounding or clipping
CONTINUED = 0.8  # share of rows that must continue another one for last_action="auto" to consider the previous action
ROWS_PER_COLUMN = 10  # of the action, needed to detect repetitions: with fewer rows a regression fits anything
LAST_ACTION_WORTH = 0.1  # nats that the previous action must be worth to some target, given the state

MOST_FITTED = 40_000  # rows for one model, fitting and model selection together. More: finer models, slower
MOST_TESTED = 20_000  # test rows of a model whose rows need hundreds of features each; trees alone have no such limit
MOST_NUMBERS = 24_000_000  # rows times columns in memory at most, but no fewer rows than are fitted to and tested on

# Screening of all inputs
BLOCK = 4096  # rows whose features are computed at a time. More: more memory
MOST_FEATURES = 4000  # of the closed form at most; wider logs get fewer hinges per column. More: slower, cubically
RIDGE = 1e-8  # as a share of a feature's variance: enough to invert the Gram matrix of repeated columns
MOST_SEEN = 64  # inputs shown to the trees; of more inputs, those that the closed form ranks highest
SIGNIFICANT = 4.0  # standard deviations of a chi-square that make a candidate. Lower: more candidates, slower
LOOK_ROUNDS = 30  # boosting rounds at most when trees screen all inputs
ROWS_PER_FEATURE = 4  # rows per feature from which on the closed form can say that an input follows from the others
OWN_VARIATION = 0.02  # share of an input's variance, unexplained by others, below which it hardly varies by itself

# Differences
CLOSER = 0.5  # factor by which a pair's unexplained share must shrink while the target is active
ACTIVE = 0.1  # share of rows, those farthest from the median, in which a continuous target counts as active
FEWEST_ACTIVE = 100  # active rows; with fewer, no difference is proposed
MOST_DIFFERENCES = 8  # differences per target at most
COPY = 1e-6  # unexplained share up to which one variable merely repeats another

# Closed forms
HINGES = 7  # per column: in screening, and the least number in refits. More: finer bends, slower
TAIL = 0.001  # share of rows beyond the outermost evenly spaced hinge, at either end
MOST_PRODUCTS = 480  # features of order two; with more, only plain products of columns are used
MOST_TRIPLES = 220  # products of three columns; with more, none are used
MOST_POWERS = 500  # monomials
POWER_REACH = 8.0  # standard deviations at which a column is clipped before powers are taken
CONSTANT = 1e-12  # variance, in units of the column's, below which a feature counts as constant

# Refits
BENDS = 15  # hinges on a linear prediction, for limits at which it is cut off
INDEX_HINGES = 63  # hinges on a quadratic form of the inputs, for outcomes that are functions of a distance ...
INDEX_OUTCOMES = 20  # ... and hinges of the function of the outcome that the form goes with
MOST_HINGES = 31  # per column in refits; whatever is not fitted looks like an effect of all correlated inputs
MOST_SINGLES = 400  # functions of single columns, over all columns together
ROWS_PER_SINGLE = 20  # rows needed for each function beyond the usual number of hinges
RIDGES = (1e-8, 1e-3, 1e-1)  # candidates for the ridge penalty; validation rows choose among them
RIDGE_ROWS = 20_000  # rows from which on the smallest ridge is taken without a comparison
CHOOSING = 10_000  # rows on which closed forms are compared, and validation rows, at most
WORTH_TRYING = 4.0  # z-score that the clearest product or power must reach in the residual of a simpler closed form
BETTER = 0.998  # a richer model must reduce the validation loss to less than this fraction
BOOST_ROUNDS = 60  # boosting rounds in refits at most
FLOOR = 1e-8  # variance, in units of the target's, below which everything is rounding
SLOPES = (0.25, 0.5, 0.75)  # quantiles of an input at which the slope of its own small variation may change
TAIL_DEGREES = 3.0  # degrees of freedom of Student's t distribution, used for residuals with heavy tails ...
TAIL_WORTH = 0.02  # ... if it is worth this many nats per row
TAME = 0.3  # share of the squared error in a thousandth of the rows above which outliers are drawn in
MOST_OUTSIDE = 0.5  # if at most this share of new rows lies outside the fitted range, those rows are left out
BEYOND = 0.1  # share of the range of an outcome by which predictions of closed forms may leave it
FEW_FITTED = 10_000  # rows; with fewer, all boosting uses smaller steps
CAREFUL = 2  # factor by which boosting steps shrink where rows are few, and when a weak effect is checked again
BOOST_PATIENCE = 6  # boosting rounds without progress on validation rows

# Candidates and controls
MOST_CANDIDATES = 24  # per part of a target; each needs a refit without it. More: proportionally slower
PAIRED = 5.5  # z-score of the best product above which its inputs become candidates
MOST_SIGNS = 32  # columns with two values of which products of three are looked at, too. More: slower, cubically
TINY = 1e-4  # share of the total gain below which an input is ignored
FOUND = 1.5  # multiple of a shadow's gain above which trees have found something
SURE = 6.0  # standard errors above zero at which no second opinion is needed ...
SURE_WITHOUT_NOISE = 12.0  # ... and without noise in the law, where a few rows can make up an effect and its error
NEGLIGIBLE = 2e-4  # nats; smaller effects are not looked for
FEW_CANDIDATES = 6  # no pruning with no more candidates than this
PRUNED_ROWS = 5000  # rows; with fewer, the effect of half of the candidates is too uncertain to prune them together
MOST_ADDED = 6  # candidates that the look at the residual may bring back
BUNDLED = 20.0  # standard deviations of a chi-square, for inputs that hardly vary independently and show only together
WEAK = 0.1  # nats below which an effect must also hold against better models without the input ...
WEAK_SHARE = 0.25  # ... or below this share of all nats explained: without noise a little misfit costs many nats
HARMFUL = 3.0  # standard errors below zero at which a candidate makes the model worse and is dropped
CONCEIVABLE = 1.7  # standard errors on one fold; below, three folds cannot make an edge, and no stand-in is needed
CONTROLS = 2  # shadows among the candidates of each target
PLANTED = 0.02  # least size of the planted effect, in nats
LITTLE = 0.98  # residual share of a target's variance above which its mean is practically unexplained
SPREAD_ROUNDS = 3  # boosting rounds that the spread of a target must be worth before its causes are tested
UNFITTED = 0.1  # nats gained by doubling the rows above which the residual is not all noise ...
UNFITTED_SHARE = 0.25  # ... and the share of them that an input merely correlated with the causes may seem to be worth
NOISY = 1e-4  # share of a target's variance; a smaller residual is not noise either ...
MISFIT = 0.08  # ... and there such an input may seem to be worth this many nats, for all that its stand-in shows
MOST_MISFIT = 0.4  # nats that such an input may seem to be worth at most
EXCEPTIONAL = 6.0  # typical residuals (robust standard deviations) above which a row is an exception to a law ...
MOST_EXCEPTIONS = 0.25  # ... unless more than this share of all rows is
SHOWN = 3.0  # multiple of a shadow's gain that a cause of a target's spread must exceed

# Verdicts
DEGREES = 10  # of freedom of Student's t: an error rests on about ten shadows, those of other parts included
MOST_SCATTER = 25.0  # limit on a part's ratio of squared scatter to squared error, in the mean over parts
PRIOR_SHADOWS = 4  # the mean scatter over all parts counts like this many shadows of the part itself
PRIOR_FOLDS = 4  # a cell's own error counts like this many folds against the scatter between its folds
LEAST_EFFICIENCY = 0.1  # least share of a planted effect that counts as found: a limit rises tenfold at most
BLIND = 0.1  # nats; with a higher limit of detection "none" says little, unless far more is explained ...
BLIND_SHARE = 0.5  # ... a limit below this share of all nats explained is never too high
FEW_TESTED = 2000  # test rows of a fold; with fewer, all folds test all candidates, and what stays open is undecided
RARE = 30  # rows; of a variable that changes in fewer, the absence of an effect is not claimed
DOMINANT = 3.0  # a member of the same bundle whose effect is larger by this factor casts doubt on an input
HIDDEN = 5.0  # standard errors of a typical cell; if a larger effect is possible, the other folds look at the cell too
ASKED = 0.5  # standard errors above zero on the first fold at which the other folds are measured
LITTLE_MISFIT = 30.0  # factor; an effect this much smaller than the misfit is ruled out together with it
DOUBTFUL = 1.3  # standard errors above zero at which a cell that all folds leave open is undecided

# Networks: verdicts
SHADOW_DEVIATIONS = 4.0  # standard deviations of the shadows that an effect must exceed
NORMAL = 1.25  # standard over mean absolute deviation of a normal; outlying shadows count less than in a mean square
SURE_ABOVE_ZERO = 3.0  # standard errors of its own that an effect must exceed
STANDARD_ERRORS = 2.0  # distance from the threshold, in standard errors, below which a cell is undecided

# Networks: evidence
SETTLED = 5e-4  # nats; a cell that is surely below this needs no more rows
SHARP = 5.0  # standard errors above zero from which on the loss at the outcomes is reported ...
REFUTED = 5.0  # ... and below zero from which on predictions are better without the input
KNOWN = 4.0  # standard errors above zero that some input of a target must reach
PEAK_ROWS = 20_000  # rows used to find differences of the same quantity
PEAK = 0.03  # share of rows in the narrowest interval that is compared
CONCENTRATED = 1.4  # how many times narrower than for unrelated values that interval must be
PER_VARIABLE = 1  # pairs per variable, on average, at most

# Networks: refinement by small networks on candidates
SECOND_LOOKS = 3  # rounds of refinement at most; each leaves out the inputs that the last one found useless
MOST_SLOTS = 2400  # candidates of all targets together that the small networks see
LOCAL_RATE = 3.0  # factor on the learning rate: small networks tolerate more than the trunk
CONFIRMED = 0.5  # share of the first pass's edges to be confirmed, for it to decide on inputs that were not refined
MOST_SECOND = 24  # candidates per target; inputs ranked lower keep the verdict of the first pass

# Networks: online, on growing data
ONLINE_RATE = 0.0  # position of all online updates on the learning-rate schedule: its peak, which sharp steps need
ONLINE_MEMORY = 0.5  # weight of the running CMI when a new measurement is averaged in
GROWTH = 2.0  # factor by which the rows must have grown for a new fit of scales, knots and targets
FIT_ROWS = 40_000  # rows to which scales, knots and targets are fitted, at most
POOL_ROWS = 40_000  # rows that one call trains on, at most
FIRST_UPDATES = 3  # factor on the updates of the first call, which has no earlier weights to start from
ONLINE_SMALLEST = 0.005  # nats; smallest effect while models are still in training
UNCONFIRMED_SHARE = 0.05  # share of the strongest cause that an effect must exceed if no refinement confirms it
ONLINE_SURE = 1.0  # standard errors that an effect must exceed; missing a cause costs more than one too many
DOUBT = 1.0  # standard errors that an effect may lack where inputs in doubt are kept
ONLINE_WATCHED = 1000  # rows on which overfitting is watched
REWARD_SHARE = 0.05  # of the strongest cause, for other causes: rows are few, and inputs in doubt are kept anyway
LOCAL_WIDTH = 48  # hidden units of a small network
MOST_PAIRS = 12  # differences that one target's network sees
CANDIDATE = 1e-3  # nats above a typical shadow; any input that may reach this becomes a candidate

# Networks: training
WARM_UP = 200  # updates until the learning rate reaches its peak
AVERAGE_EVERY = 4  # updates between two steps of the weight average
AVERAGE_LENGTH = 250  # steps over which weights are averaged
REFOCUS = (0.25, 0.4, 0.6, 0.8)  # fractions of training at which the probabilities of dropping each input are revised
FOCUS_CELLS = 12_000_000  # inputs times targets times rows evaluated for such a revision
FOCUS_ROWS = (32, 500)  # rows for it, at least and at most
HARD_TO_TELL = 0.01  # nats; effects of about this size are the hardest to tell from none
WATCH_EVERY = 100  # updates between two evaluations on held-out rows
WATCHED = (1000, 20_000)  # at least this many rows, and targets times rows if that allows more
HARDER = 2.0  # factor by which weight decay changes after such an evaluation
STRONGEST_DECAY = 30.0  # largest weight decay, in multiples of the initial one

# Networks: inputs
BINS = 8  # intervals into which the encoding of a scalar is divided
NEAR_PEAK = 0.3  # share of the values of a difference that count as near its peak
EVALUATION_CANDIDATES = 4  # factor on the number of training candidates
