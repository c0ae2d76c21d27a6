"""A folder keeps the rules of every file store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.file_suite import FileSuite
from turngate.files import ObjectFiles
from turngate.protocols import FileStore


class TestFolderFiles(FileSuite):
    """Each rule, in a folder of its own that is not there yet."""

    @pytest.fixture
    def files(self, tmp_path: Path) -> FileStore:
        return ObjectFiles(tmp_path / "files")
