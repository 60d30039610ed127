"""Agents that learn a policy on a masked state: `base` says what an agent is, `settings` lists them.

Nothing is imported here, so that `cbm.agents.settings` can be read without torch.
"""
