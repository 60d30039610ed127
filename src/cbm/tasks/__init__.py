"""Learning to act on the state a reward needs: SAC behind a mask, and the loop that finds the mask meanwhile.

Nothing is imported here, so that `cbm.tasks.settings` can be read without torch or Tianshou.
"""
