"""Agents that learn a policy on a masked state.

Nothing is imported here, so that `cbm.agents.settings` can be read without torch or Tianshou.
"""
