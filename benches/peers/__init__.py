"""Ratios against other stores and loaders, measured in one run.

`just bench-peers` runs `__main__`. `data` makes what everybody stores, `cases` says who does what, `driver` prepares
and measures in turns through a `session` per contender, `fio` asks what the disk can do, `bars` holds what
must be reached, `report` and `plot` show what was found, and `tables` borrows some cases from `just bench`. The folder
`worker` runs inside the contenders' environments: `actions` times, `stores` and `loaders` have a module per library.
"""
