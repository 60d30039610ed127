"""One command over seeds, options and data, as jobs: the cells of a grid, their runs, and the table of results."""
