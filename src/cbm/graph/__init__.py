"""The causal graph: its rules, scores, explanations, prior knowledge and file formats. Needs no torch."""

from cbm.graph.graph import ACTION, REWARD_PREFIX, SCHEMA, ActionEffect, CausalGraph, RewardGraph

__all__ = ["ACTION", "REWARD_PREFIX", "SCHEMA", "ActionEffect", "CausalGraph", "RewardGraph"]
