"""From a causal graph, or without one, to the state variables that a policy needs: one file for each method.

`method` has the protocol, `table` the list of methods. Nothing is imported here, so that the wrapper needs no torch.
"""
