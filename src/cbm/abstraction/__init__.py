"""From a causal graph, or without one, to the state variables a policy needs: one file for each method.

`method` has the protocol and the table of methods. Nothing is imported here, so that the wrapper needs no torch.
"""
