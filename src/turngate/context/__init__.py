"""What a call shows its model: windows, the working memory, and the assembler."""

from turngate.context.assembler import RequestAssembler
from turngate.context.memory import ThreadMemory
from turngate.context.recall import FactSearch
from turngate.context.tokens import TokenEstimator
from turngate.context.windows import RecentWindow, SummaryWindow

__all__ = [
    "FactSearch",
    "RecentWindow",
    "RequestAssembler",
    "SummaryWindow",
    "ThreadMemory",
    "TokenEstimator",
]
