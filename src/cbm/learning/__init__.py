"""Learning to act on the state that a reward needs: Algorithm 1, its environments, and its run files.

Nothing is imported here, so that `cbm.learning.settings` can be read without torch.
"""
