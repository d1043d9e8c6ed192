"""Every shared object has an owner: nobody answers for the licence and the holes of a library that came along
unnoticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from wmlce.channel import published, shared_objects
from wmlce.channel.verify.check import Check
from wmlce.recipes import third_party
from wmlce.util.host import cpu_count
from wmlce.util.layout import Layout


def every_object(layout: Layout, folder: Path, say: Callable[[str], None]) -> Check:
    """Each shared object of each package is a module of Python that a RECORD lists, its package's own, or
    that of a project in third_party.yaml.
    """
    check = Check("every shared object has an owner", "")
    jobs = sorted(published.entries(folder).items())
    counts: Counter[str] = Counter()

    def examine(job: tuple[str, dict[str, Any]]) -> shared_objects.Held | None:
        return shared_objects.of_package(layout, folder / job[0], job[1])

    with ThreadPoolExecutor(cpu_count()) as pool:
        for done, ((key, entry), held) in enumerate(zip(jobs, pool.map(examine, jobs), strict=True), 1):
            package, version = str(entry["name"]), str(entry["version"])
            for path, shared_object in sorted(held.objects.items()) if held is not None else ():
                owner = held.extension_of(path) if held is not None else None
                owner = owner or third_party.owner(package, path, shared_object.soname)
                if owner is not None:
                    counts[owner] += 1
                    continue
                name = f" (SONAME {shared_object.soname})" if shared_object.soname else ""
                check.findings.append(
                    f"{key}: {path}{name}: nobody says whose it is: leave it out, or declare it in "
                    f"{third_party.FILE}"
                )
            seen = third_party.declared().contents(package).seen
            if held is not None and held.objects and seen not in (None, version):
                check.notes.append(
                    f"{key}: what is linked into it was looked up in {seen}: look again, and correct "
                    f"{third_party.FILE}"
                )
            if done % 25 == 0:
                say(f"looked into {done} of {len(jobs)} packages")
    check.summary = f"{sum(counts.values())} shared objects of {len(counts)} owners"
    return check
