"""What a run starts from besides its environment: a model of the dynamics, and a log to pretrain on."""

from __future__ import annotations

from cbm.abstraction.dynamics import FrozenDynamics, JointDynamics, joint_settings
from cbm.abstraction.method import Dynamics
from cbm.abstraction.table import method_row
from cbm.data.transitions import Transitions
from cbm.discovery.settings import preset as discovery_preset
from cbm.errors import DataError, unknown_name
from cbm.graph.checks import check_same_names
from cbm.learning.learner import derived
from cbm.learning.plan import Plan
from cbm.learning.task_env import TaskEnv


def make_dynamics(plan: Plan, task_env: TaskEnv) -> Dynamics | None:
    """Those of a discovery run, unchanged; otherwise jointly learned ones for methods that need a graph; None for all
    others."""
    if plan.dynamics is not None:
        return FrozenDynamics.load(plan.dynamics, task_env.factors, plan.settings.weakest_effect, plan.certain_only)
    if method_row(plan.method).needs != "graph":
        return None
    settings = discovery_preset("debug", plan.model) if plan.preset == "debug" else joint_settings(plan.model)
    seed = derived(plan.seed, len(plan.tasks), 5)
    steady = plan.settings
    return JointDynamics(
        task_env.factors, settings, seed, steady.on, steady.off, steady.weakest_effect, steady.last_action, plan.device
    )


def load_log(plan: Plan, task_env: TaskEnv) -> Transitions | None:
    """The log to pretrain on, if there is one; it must be of this world and contain the rewards."""
    if plan.pretrain is None:
        return None
    log = Transitions.load(plan.pretrain, allow_constant=True)
    try:
        check_same_names(log.factors.names, task_env.factors.names)
    except DataError as error:
        raise DataError(f"{plan.pretrain}: {str(error).replace('graph', 'log')}") from None
    for task in plan.tasks:
        if task not in log.rewards:
            raise unknown_name(f"{plan.pretrain}: unknown reward", task, log.rewards)
    return log
