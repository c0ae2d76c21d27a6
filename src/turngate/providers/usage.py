"""The tokens of one answer, as its chunks report them."""

from __future__ import annotations

from turngate.providers.chunks import TokenDetails, WireUsage
from turngate.values import Usage

__all__ = ["UsageTally"]


class UsageTally:
    """The last complete report stands: servers that report with every chunk count upwards.

    A report without one of its two counts fills in what no complete one has told; the output may
    then follow from the total.
    """

    def __init__(self) -> None:
        self._complete: WireUsage | None = None
        self._input: int | None = None
        self._output: int | None = None
        self._total: int | None = None

    def take(self, report: WireUsage) -> None:
        tokens_in = _count(report.prompt_tokens)
        tokens_out = _count(report.completion_tokens)
        if tokens_in is not None and tokens_out is not None:
            # Zeros after real counts are a placeholder: no request has an empty prompt.
            if self._complete is None or tokens_in or tokens_out:
                self._complete = report
            return
        self._input = tokens_in if tokens_in is not None else self._input
        self._output = tokens_out if tokens_out is not None else self._output
        total = _count(report.total_tokens)
        self._total = total if total is not None else self._total

    def usage(self) -> Usage | None:
        """The tokens, or None where input or output was never told."""
        report = self._complete
        if report is None:
            return self._derived()
        of_input = report.prompt_tokens_details or TokenDetails()
        of_output = report.completion_tokens_details or TokenDetails()
        return Usage(
            input_tokens=_count(report.prompt_tokens) or 0,
            output_tokens=_count(report.completion_tokens) or 0,
            cached_tokens=_count(of_input.cached_tokens)
            or _count(report.prompt_cache_hit_tokens)
            or 0,
            reasoning_tokens=_count(of_output.reasoning_tokens) or 0,
        )

    def _derived(self) -> Usage | None:
        tokens_in, tokens_out = self._input, self._output
        if self._total is not None:
            if tokens_out is None and tokens_in is not None:
                tokens_out = max(self._total - tokens_in, 0)
            elif tokens_in is None and tokens_out is not None:
                tokens_in = max(self._total - tokens_out, 0)
        if tokens_in is None or tokens_out is None:
            return None
        return Usage(input_tokens=tokens_in, output_tokens=tokens_out)


def _count(value: int | None) -> int | None:
    """A count of tokens; what is negative or beyond any count is none."""
    return value if value is not None and 0 <= value < 1 << 53 else None
