"""The commands of the program `cbm`, one module each: `Options` is its --help, `main(arguments)` runs it.

`main` finds the command. The commands share `arguments` (parsing), `console` (printing and progress), `paths` (checks
of output paths), `world_options`, `variable_names`, `progress` and `results`.
"""
