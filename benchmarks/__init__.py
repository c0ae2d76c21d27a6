"""What Turngate costs, beside a floor of the same run: `python -m benchmarks [name ...]`.

A measurement is a module with ``run(rounds)``, which gives rows. Contenders take turns in each
round, so that a slow moment of the machine meets all of them, and of the rounds the best counts
(CPU time) or the median (rates and waits). docs/reference/performance.md says what each means.
"""
