"""What Debian has fixed in the sources that recipes compile: recipes/debian-fixes.lock.yaml.

Versions alone tell a scanner that Python 3.11.2 is full of holes. Only patches that a recipe applies count.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from wmlce.sources.model import LockedSource, role
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout

FILE = "debian-fixes.lock.yaml"
_HEAD = "# What Debian fixed, by the patches that recipes apply. Renewed by `wmlce lock sources`.\n"
_CVE = re.compile(r"\bCVE-\d{4}-\d{4,}\b")
_NAMED = re.compile(r"^patch .*<\"?debian/patches/([^\s\"$]+)\"?$", re.MULTILINE)
_LOOP = re.compile(
    r"^(?P<command>grep -E|grep -vE|sed -n) '(?P<pattern>[^']+)'(?: \\\n *)? debian/patches/series \| "
    r"while read -r name; do\n"
    r" *patch [^\n]*<\"debian/patches/\$name\"\ndone$",
    re.MULTILINE,
)
_FROM = re.compile(r"^/(.+)/,\$p$")


class Fixed(BaseModel):
    """A source of Debian with fixes.

    packages: those that are compiled of it
    version:  Debian's
    patches:  patch that is applied -> the CVE ids that it fixes
    """

    model_config = ConfigDict(extra="forbid")
    packages: list[str]
    package: str
    version: str
    suite: str
    patches: dict[str, list[str]]

    @property
    def cves(self) -> list[str]:
        return sorted({name for names in self.patches.values() for name in names})


def applied(script: str, series: str, title: str) -> list[str]:
    """The patches of a series that a build script applies, in the forms that our recipes use."""
    lines = series.splitlines()
    names = [match[1] for match in _NAMED.finditer(script)]
    for loop in _LOOP.finditer(script):
        command, pattern = loop["command"], loop["pattern"]
        if start := _FROM.match(pattern):
            at = next((n for n, line in enumerate(lines) if re.search(start[1], line)), len(lines))
            names += lines[at:]
        else:
            names += [line for line in lines if bool(re.search(pattern, line)) == (command == "grep -E")]
    if len(re.findall(r"^ *patch ", script, re.MULTILINE)) != len(_NAMED.findall(script)) + len(
        _LOOP.findall(script)
    ):
        raise WmlceError(
            f"{title} applies patches in a way that is not understood",
            remedy=f"write it like recipes/xz/build.sh, or extend {__name__}",
        )
    return [name.split()[0] for name in names if name.strip() and not name.startswith("#")]


def of_source(archive: Path, script: str, title: str) -> dict[str, list[str]]:
    """The patches of a debian.tar.* that a build script applies, and what each fixes: by its name, by what
    stands above the change, and by what the changelog says beside its name, or the script above it.
    """
    texts: dict[str, str] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            inner = member.name.removeprefix("./")
            if member.isfile() and (inner == "debian/changelog" or inner.startswith("debian/patches/")):
                stream = tar.extractfile(member)
                texts[inner] = stream.read().decode(errors="replace") if stream else ""
    names = applied(script, texts.get("debian/patches/series", ""), title)
    items = list(_items(texts.get("debian/changelog", "")))
    fixes = {}
    for name in names:
        text = texts.get(f"debian/patches/{name}")
        if text is None:
            raise WmlceError(
                f"{title} applies {name}, which {archive.name} does not have", remedy=f"correct {title}"
            )
        head = re.split(r"^(?:--- |diff |Index: )", text, maxsplit=1, flags=re.MULTILINE)[0]
        beside = [item for item in items if name in item or name.rpartition("/")[2] in item]
        fixes[name] = sorted(set(_CVE.findall(" ".join([name, head, _comment(script, name), *beside]))))
    return fixes


def _comment(script: str, name: str) -> str:
    """The comment above the line, or the lines, by which a script applies this patch and others."""
    lines = script.splitlines()
    at = next((n for n, line in enumerate(lines) if f"debian/patches/{name}" in line), 0)
    while at and lines[at].startswith("patch "):
        at -= 1
    return lines[at] if lines[at].startswith("# ") else ""


def _items(changelog: str) -> Iterator[str]:
    """The items of a changelog, each with its continued lines."""
    for item in re.split(r"\n +[*+-] |\n -- ", changelog):
        yield " ".join(item.split())


def update(layout: Layout, sources: Iterable[LockedSource]) -> bool:
    """Write the lock file for these sources, where a recipe uses what Debian adds to them; is it another one
    than before? A source that is not in the cache keeps its entry.
    """
    from wmlce.recipes.recipe_set import RecipeSet

    by_output = RecipeSet(layout).by_output
    before = {(item.package, item.suite, item.version): item for item in read(layout.root)}
    result = []
    for source in sources:
        archive = next((file for file in source.files if role(file.name) == "debian.tar"), None)
        path = layout.root / "recipes" / source.recipes[0] / "build.sh"
        if source.kind != "debian-source" or archive is None or not path.is_file():
            continue
        title = f"recipes/{path.parent.name}/{path.name}"
        place = layout.cache / "sources" / archive.sha256 / archive.name
        earlier = before.get((source.package, str(source.suite), source.version))
        if not place.is_file():
            if earlier is None:
                raise WmlceError(
                    f"{archive.name} is not in the cache: what Debian fixed in it is unknown",
                    remedy=f"wmlce source fetch {source.recipes[0]}",
                )
            result.append(earlier)
            continue
        fixed = Fixed(
            packages=sorted(name for name, recipe in by_output.items() if recipe.name in source.recipes),
            package=source.package,
            version=source.version,
            suite=str(source.suite),
            patches=of_source(place, path.read_text(), title),
        )
        result.append(fixed)
    result.sort(key=lambda item: item.package)
    if result == sorted(before.values(), key=lambda item: item.package):
        return False
    text = yaml.safe_dump([item.model_dump() for item in result], sort_keys=False, width=120)
    write_atomic(layout.recipes / FILE, _HEAD + text)
    return True


def read(root: Path) -> list[Fixed]:
    """The lock file of a clone; empty if it has none."""
    path = root / "recipes" / FILE
    if not path.is_file():
        return []
    try:
        return TypeAdapter(list[Fixed]).validate_python(yaml.safe_load(path.read_text()) or [])
    except (yaml.YAMLError, ValidationError) as error:
        raise WmlceError(
            f"recipes/{FILE} is damaged",
            detail=str(error).splitlines()[:6],
            remedy="restore it from git, or write it again with `wmlce lock sources`",
        ) from error
