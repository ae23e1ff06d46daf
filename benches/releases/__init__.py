"""Ratios against the published releases and SciPy, measured in one run.

`just bench` runs `__main__`. `cases` says what is measured, `worker` does the work inside one environment,
`driver` interleaves the workers and collects their figures, and `report` turns them into a table.
"""
