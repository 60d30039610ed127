"""Agents that learn a policy on a masked state: `base` defines an agent, `settings` lists all of them.

Nothing is imported here, so that `cbm.agents.settings` can be read without torch.
"""
