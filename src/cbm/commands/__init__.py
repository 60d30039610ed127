"""The commands of the program `cbm`, one module each: `Options` is its --help, `main(arguments)` runs it.

Shared by them: `arguments` (parsing), `console` (printing and progress), `places` (where output may go).
"""
