"""Network models of a masked prediction, and how their inputs are encoded.

`base` defines the interface, `registry` builds a model from the settings; each other file is one model or a part of
one.
"""
