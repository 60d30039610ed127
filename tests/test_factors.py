"""Names, kinds and groups of variables, and where they come from."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from cbm.data.factors import KINDS, Factors, Variable, infer_kinds
from cbm.errors import DataError


def box(*shape: int, low: float = -1, high: float = 1) -> spaces.Box:
    return spaces.Box(low, high, shape)


def make(*names: str) -> Factors:
    return Factors(tuple(Variable(name) for name in names), ("action",))


def test_names_kinds_length_and_index() -> None:
    factors = Factors((Variable("x"), Variable("door", "binary")), ("u", "v"))
    assert len(factors) == 2
    assert factors.names == ("x", "door")
    assert factors.kinds == ("continuous", "binary")
    assert factors.index("door") == 1


def test_unknown_name_lists_close_ones() -> None:
    with pytest.raises(DataError, match=r"no variable is called 'gripper_y'.*'gripper_x'"):
        make("gripper_x", "block_z").index("gripper_y")
    with pytest.raises(DataError, match="there are 2 variables"):
        make("x", "y").index("quaternion")


def test_groups_keep_order_and_lone_variables_stand_for_themselves() -> None:
    factors = Factors(
        (Variable("a0", group="a"), Variable("lone"), Variable("a1", group="a"), Variable("b0", group="b")),
        ("u",),
    )
    assert factors.groups() == {"a": [0, 2], "lone": [1], "b": [3]}


def test_dict_space_has_the_order_of_flatten() -> None:
    space = spaces.Dict({"pos": box(2), "light": spaces.Discrete(3), "bits": spaces.MultiBinary(2), "angle": box(1)})
    factors = Factors.from_spaces(space, spaces.Discrete(4))
    values = {
        "pos": np.array([0.1, 0.2], np.float32), "light": np.int64(1), "bits": np.array([1, 0], np.int8),
        "angle": np.array([0.5], np.float32),
    }  # fmt: skip
    flat = dict(zip(factors.names, np.asarray(spaces.utils.flatten(space, values)).tolist(), strict=True))
    expected = {
        "pos_0": 0.1, "pos_1": 0.2, "light_0": 0, "light_1": 1, "light_2": 0, "bits_0": 1, "bits_1": 0,
        "angle": 0.5,
    }  # fmt: skip
    assert flat == pytest.approx(expected)
    assert factors.discrete_actions == 4
    assert factors.action_names == ("action",)
    assert factors.variables[factors.index("light_1")] == Variable("light_1", "binary", "light", 0.0, 1.0)
    assert set(factors.groups()) == {"pos", "light", "bits", "angle"}


def test_box_space_bounds_names_and_actions() -> None:
    space = spaces.Box(np.array([-1, -np.inf, -3.4e38]), np.array([2, np.inf, 3.4e38]), dtype=np.float64)
    factors = Factors.from_spaces(space, box(2))
    assert factors.names == ("obs_0", "obs_1", "obs_2")
    assert [(v.low, v.high) for v in factors.variables] == [(-1, 2), (None, None), (None, None)]
    assert factors.action_names == ("action_0", "action_1")
    assert factors.discrete_actions is None
    named = Factors.from_spaces(space, box(1), names=["x", "y", "z"])
    assert named.names == ("x", "y", "z")
    assert named.action_names == ("action",)
    assert named.variables[0].high == 2


def test_integer_boxes_are_binary_or_categorical_when_small() -> None:
    space = spaces.Box(np.array([0, 0, 0]), np.array([1, 5, 255]), dtype=np.int64)
    assert Factors.from_spaces(space, box(1)).kinds == ("binary", "categorical", "continuous")


def test_registered_environment() -> None:
    with gymnasium.make("CartPole-v1") as env:
        factors = Factors.from_spaces(env.observation_space, env.action_space, ["x", "v", "angle", "spin"])
    assert len(factors) == 4
    assert factors.discrete_actions == 2


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (spaces.Tuple([box(1)]), box(1), "Tuple"),
        (spaces.Text(5), box(1), "Text"),
        (spaces.Dict({"inner": spaces.Dict({"a": box(1)})}), box(1), "'inner'.*Dict"),
        (spaces.Dict({"pixels": spaces.Sequence(box(1))}), box(1), "'pixels'.*Sequence"),
        (spaces.MultiDiscrete([2, 3]), box(1), "MultiDiscrete"),
        (box(2), spaces.MultiDiscrete([2, 3]), "action space MultiDiscrete"),
        (box(2), spaces.MultiBinary(3), "action space MultiBinary"),
        (box(2), spaces.Dict({"a": box(1)}), "action space Dict"),
        (box(2), spaces.Discrete(3, start=1), "Discrete"),
        (box(2), box(0), "no action"),
        (box(0), box(1), "no state variable"),
        (spaces.Dict({"a": box(2), "a_0": box(1)}), box(1), "'a_0' is used twice"),
        (spaces.Dict({"action": box(1)}), box(1), "reserved"),
    ],
)
def test_other_spaces_are_refused_by_name(observation: Any, action: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        Factors.from_spaces(observation, action)
    assert "\n" not in str(caught.value)


def test_wrong_number_of_names_for_a_space() -> None:
    with pytest.raises(DataError, match="2 names for 3 variables"):
        Factors.from_spaces(box(3), box(1), ["a", "b"])


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "empty"), ("  ", "empty"), ("a\nb", "newline"), ("a\x00b", "control"), ("\x1b[31m", "control"),
     (" a", "space"), ("action", "reserved"), (3, "not text")],
)  # fmt: skip
def test_bad_names(name: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Variable(name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variables": (Variable("x"), Variable("x"))}, "'x' is used twice: columns 0 and 1"),
        ({"action_names": ("u", "u")}, "action name 'u' is used twice"),
        ({"action_names": ("",)}, "empty"),
        ({"action_names": ()}, "no action"),
        ({"variables": ()}, "no state variable"),
        ({"discrete_actions": 0}, "at least 1"),
        ({"discrete_actions": True}, "whole number"),
        ({"discrete_actions": 10**9}, "quantity"),
        ({"discrete_actions": 3, "action_names": ("u", "v")}, "one column"),
    ],
)
def test_bad_factors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Factors(**({"variables": (Variable("x"),), "action_names": ("u",)} | arguments))


def test_bad_kind_and_bounds() -> None:
    with pytest.raises(DataError, match=r"variable 'x': unknown kind 'vector' \(one of continuous"):
        Variable("x", "vector")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="low 2 is above high 1"):
        Variable("x", low=2, high=1)
    with pytest.raises(DataError, match="not a finite number"):
        Variable("x", low=float("nan"))


NAMES = st.text("abc_éα 0", min_size=1, max_size=6).filter(lambda text: text == text.strip())


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_json_round_trip(data: st.DataObject) -> None:
    names = data.draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    bound = st.none() | st.floats(0, 1)
    variables = tuple(
        Variable(name, data.draw(st.sampled_from(KINDS)), data.draw(st.just("") | NAMES), None, data.draw(bound))
        for name in names
    )
    factors = Factors(variables, ("u",), data.draw(st.none() | st.integers(1, 9)))
    assert Factors.from_json(json.loads(json.dumps(factors.to_json()))) == factors


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("variables"),
        lambda d: d.pop("action_names"),
        lambda d: d.update(more=1),
        lambda d: d.update(variables=3),
        lambda d: d.update(action_names="abc"),
        lambda d: d.update(action_names=[1]),
        lambda d: d["variables"][0].update(colour="red"),
        lambda d: d["variables"][0].update(kind=[]),
        lambda d: d["variables"][0].update(low="0"),
        lambda d: d.update(discrete_actions="2"),
    ],
)
def test_damaged_json(damage: Any) -> None:
    data = make("x", "y").to_json()
    damage(data)
    with pytest.raises(DataError):
        Factors.from_json(data)


def columns(rows: int) -> np.ndarray:
    """One column of each sort: two values, five, five with a rare sixth, twenty, noise."""
    rng = np.random.default_rng(0)
    five = rng.integers(0, 5, rows)
    rare = np.where(np.arange(rows) == 3, 5, five)
    return np.stack([rng.integers(0, 2, rows), five, rare, rng.integers(0, 20, rows), rng.normal(size=rows)], 1)


@pytest.mark.parametrize(("scale", "offset"), [(1, 0), (1000, 100), (1e-9, 0), (0.1, -7.3), (-3, 1e6)])
def test_kinds_do_not_depend_on_scale_or_offset(scale: float, offset: float) -> None:
    values = columns(400) * scale + offset
    kinds = infer_kinds(values[:-1], values[1:])
    assert kinds == ("binary", "categorical", "continuous", "continuous", "continuous")


def test_short_logs_have_no_categories() -> None:
    values = columns(150)
    assert infer_kinds(values[:-1], values[1:])[:2] == ("binary", "continuous")


def test_values_of_next_obs_count_too() -> None:
    obs, next_obs = np.zeros((300, 1)), np.ones((300, 1))
    assert infer_kinds(obs, next_obs) == ("binary",)
    next_obs[:10] = 2
    assert infer_kinds(obs, next_obs) == ("categorical",)


def test_sixteen_values_are_categorical_and_seventeen_are_not() -> None:
    for count, kind in ((16, "categorical"), (17, "continuous")):
        values = (np.arange(10_000) % count)[:, None].astype(float)
        assert infer_kinds(values, values) == (kind,)


def test_rare_values_after_a_long_constant_stretch_are_seen() -> None:
    values = np.zeros((20_000, 1))
    values[7_001:7_101, 0] = np.arange(100)
    assert infer_kinds(values, values) == ("continuous",)
