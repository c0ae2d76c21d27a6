"""A bucket of S3 keeps the rules of every file store; its server is moto, where that is installed.

moto brings more packages than all other tests together, so it is in no lock file. Make an
environment of its own with ``moto[s3,server]``, and name its Python in TURNGATE_MOTO_PYTHON.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.file_suite import FileSuite
from tests.integration.files.support import gateway_over
from turngate.files import ObjectFiles
from turngate.identity import new_id
from turngate.protocols import FileStore

_PYTHON = os.environ.get("TURNGATE_MOTO_PYTHON", sys.executable)


def _is_there() -> bool:
    look = [_PYTHON, "-c", "import moto.server"]
    return subprocess.run(look, capture_output=True, check=False).returncode == 0


if not _is_there():
    pytest.skip("no S3 server: see TURNGATE_MOTO_PYTHON in the file", allow_module_level=True)
pytestmark = pytest.mark.optional


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of a running S3 server."""
    command = [_PYTHON, "-u", "-m", "moto.server", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            found = None
            while found is None:
                line = server.stderr.readline()
                assert line, "the server ended"
                found = re.search(r"http://127\.0\.0\.1:\d+", line)
            yield found[0]
        finally:
            server.kill()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket, with its server named where obstore looks for it."""
    name = new_id("bucket").replace("_", "-")
    request = urllib.request.Request(f"{endpoint}/{name}", method="PUT")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(request, timeout=10).close()
    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    return f"s3://{name}/files"


class TestBucketFiles(FileSuite):
    """Each rule, in a bucket of its own."""

    @pytest.fixture
    def files(self, bucket: str) -> FileStore:
        return ObjectFiles(bucket)


async def test_a_gateway_keeps_its_files_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    """[F7] The URL is all that it takes, and the next process finds the files again."""
    data = os.urandom(12_000_000)
    async with gateway_over(tmp_path, files=bucket) as gateway:
        ref = await gateway.tenant("acme").files.put(data, name="a")
        same = await gateway.tenant("acme").files.put(data, name="b")
    async with gateway_over(tmp_path, files=bucket) as gateway:
        files = gateway.tenant("acme").files
        await files.delete(ref.id)
        assert await files.get(same.id) == data
