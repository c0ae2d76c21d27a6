"""What a call shows its model: windows, the working memory, and the assembler."""

from turngate.context.assembler import RequestAssembler
from turngate.context.memory import ThreadMemory
from turngate.context.windows import RecentWindow

__all__ = ["RecentWindow", "RequestAssembler", "ThreadMemory"]
