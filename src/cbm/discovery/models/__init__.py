"""Network models of a masked prediction, and how their inputs are encoded.

`base` says what a model is, `registry` builds one from the settings, the rest are one model or one part each.
"""
