"""Learning to act on the state a reward needs: Algorithm 1, the environments it learns in, and its run files.

Nothing is imported here, so that `cbm.learning.settings` can be read without torch or Tianshou.
"""
