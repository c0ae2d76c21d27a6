"""Stores of threads, each an implementation of `turngate.protocols.ThreadStore`.

`sqlite` is the store of one process. Its parts, from the outside in: `sqlite` (the seam's methods),
`writer` (the loop's side of the one writing thread), `group_commit` (the thread's side), `changes`
(one change in SQL), `connections` (opening, migrating, errors), `lock` (one process writes), and
the two that another database shares: `statements` (SQL) and `rows` (pure: values and rows).
"""
