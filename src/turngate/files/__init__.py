"""File stores, each an implementation of `turngate.protocols.FileStore`.

`objects` is the one that is there: a folder, or a bucket behind a URL.
"""

from turngate.files.objects import ObjectFiles

__all__ = ["ObjectFiles"]
