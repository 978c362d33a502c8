"""Files of strangers are read within bounds; our own are written whole and under safe names."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from longshot.errors import LongshotError, first_line

TEXT = 2**28  # bytes of a text file: a corpus, a tokenizer
DIGEST = "digest"
SMALL = 2**24  # bytes of a configuration, a template, a study, or a header


def safe_name(name: str) -> str:
    """A file's name that any file system takes and that stays in its folder.

    Equal names stay equal. Whatever is not kept as it is, or is too long, is told apart by a
    digest.
    """
    kept = "".join(c if c.isalnum() or c in "-._" else "-" for c in name).strip("-.")
    if kept == name and len(os.fsencode(kept)) <= 150:
        return kept
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{os.fsencode(kept)[:140].decode(errors='ignore') or 'unnamed'}-{digest}"


def read_bytes(kind: str, path: Path, most: int = SMALL) -> bytes:
    """A regular file's bytes, or the sentence that says why it cannot be read."""
    try:
        with open(_regular(path.expanduser()), "rb") as file:
            read = file.read(most + 1)
    except (OSError, ValueError, RuntimeError) as error:  # no possible path, no such ~user
        reason = getattr(error, "strerror", None) or error
        raise LongshotError(f"The {kind} {path} cannot be read: {reason}.") from error
    if len(read) > most:
        raise LongshotError(f"The {kind} {path} has more than {most:,} bytes.")
    return read


def read_text(kind: str, path: Path, most: int = SMALL) -> str:
    """The same as UTF-8 text."""
    try:
        return read_bytes(kind, path, most).decode()
    except UnicodeDecodeError as error:
        raise LongshotError(f"The {kind} {path} cannot be read: it is not UTF-8 text.") from error


def _regular(path: Path) -> Path:
    """The path, unless reading it could wait for ever: a pipe, a device."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a folder says so itself
        raise OSError("it is no regular file")
    return path


def unpacked(packed: bytes, most: int) -> bytes:
    """What zlib packed, if it is whole and no more than `most` bytes."""
    unpacking = zlib.decompressobj()
    raw = unpacking.decompress(packed, most + 1)
    if len(raw) > most or not unpacking.eof or unpacking.unused_data:
        raise ValueError("what was packed is cut short, or larger than it can be")
    return raw


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, and its metadata; both as written if it says so."""
    try:
        with open(_regular(path), "rb") as file:
            if int.from_bytes(file.read(8), "little") > SMALL:
                raise ValueError("its header is too long")
        with safe_open(path, "pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            metadata = dict(opened.metadata() or {})
        if metadata.get(DIGEST) not in (None, tensor_digest(tensors, metadata)):
            raise ValueError("it is not what was written, by its checksum")
        return tensors, metadata
    except FileNotFoundError:
        raise LongshotError(f"There is no file {path}.") from None
    except (OSError, SafetensorError, ValueError, TypeError, RuntimeError) as error:
        raise LongshotError(f"{path} is damaged or no safetensors: {first_line(error)}.") from error


def check_archive(path: Path) -> None:
    """Refuse a file of torch that could unpack to more than it holds, before torch reads it."""
    try:
        with zipfile.ZipFile(_regular(path)) as archive:
            entries = archive.infolist()
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError) as error:
        raise LongshotError(
            f"{path} is damaged or was not saved by a torch of today: {first_line(error)}."
        ) from error
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise LongshotError(f"{path} is packed, which no file of torch is.")
        if entry.filename.endswith(".pkl") and entry.file_size > 2**20:
            raise LongshotError(f"{path} describes more than a model's tensors.")
    if sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise LongshotError(f"{path} claims more than it holds.")


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """A safetensors file under a checksum."""
    plain = {name: tensor.contiguous() for name, tensor in tensors.items()}
    path.write_bytes(save(plain, {**metadata, DIGEST: tensor_digest(plain, metadata)}))


def tensor_digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """A checksum of tensors and of the texts beside them, whatever their order in a file."""
    texts = sorted((name, text) for name, text in metadata.items() if name != DIGEST)
    digest = hashlib.sha256(json.dumps(texts).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def writing(path: Path, what: str = "file") -> Iterator[Path]:
    """A place beside `path` to write to; the file then appears there whole, or not at all."""
    path = path.expanduser()
    aside = path.with_name(f".{path.name[:50]}.{os.getpid()}.unfinished")
    _replaceable(path, what)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        with open(aside, "rb+") as file:
            os.fsync(file.fileno())
        aside.replace(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise LongshotError(f"The {what} {path} cannot be written: {reason}.") from error
    finally:
        _forget(aside)


def write_whole(path: Path, content: str | bytes, what: str = "file") -> None:
    """Text as UTF-8, half a surrogate pair as a question mark; whole or not at all."""
    raw = content.encode("utf-8", "replace") if isinstance(content, str) else content
    with writing(path, what) as aside:
        aside.write_bytes(raw)


def try_place(path: Path, what: str = "file") -> None:
    """Refuse a place that cannot be written to, before the work that would end there."""
    _replaceable(path.expanduser(), what)
    aside = path.expanduser().with_name(f".{path.name[:50]}.{os.getpid()}.unfinished")
    try:
        aside.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(b" ")
    except OSError as error:
        raise LongshotError(f"The {what} {path} cannot be written: {error.strerror}.") from error
    finally:
        _forget(aside)


def _replaceable(path: Path, what: str) -> None:
    """Refuse a folder, a device or a pipe: a whole file would take its place."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise LongshotError(f"The {what} {path} cannot be written: it is {kind}.")


def _forget(path: Path) -> None:
    with suppress(OSError):  # it never was there, or the disk is gone: nothing of ours is lost
        path.unlink(missing_ok=True)


def parse_json(text: str, where: Any) -> dict[str, Any]:
    """A JSON object, or the sentence that says why it is none."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:  # endless digits or depth too
        raise LongshotError(f"{where} cannot be read as JSON: {first_line(error)}.") from error
    if not isinstance(raw, dict):
        raise LongshotError(f"{where} must hold a JSON object.")
    return raw
