"""The commands of the program `cbm`, one module each: `Options` is its --help, `main(arguments)` runs it.

`main` finds the command. Shared by them: `arguments` (parsing), `console` (printing and progress), `paths` (where
output may go), `world_options`, `variable_names`, `progress` and `results`.
"""
