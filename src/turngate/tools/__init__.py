"""Tools: what a model may call, from typed Python functions."""

from turngate.tools.function import FunctionTool, tool
from turngate.tools.threads import ToolThreads

__all__ = ["FunctionTool", "ToolThreads", "tool"]
