"""Small clones with their own recipes and cache, worked on by the real command in processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tree import ROOT
from wmlce.builder import build_root
from wmlce.recipes.recipe_set import load_source_lock
from wmlce.util.layout import Layout

CI = Path(__file__).resolve().parents[1]
LIMIT_S = 150.0


class Clone:
    """A temporary clone: write recipes, run wmlce, look at what came out."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root = root
        self.cache = cache
        self.env: dict[str, str] = {}
        (root / "recipes").mkdir(parents=True)
        (root / "VERSION").write_text("1.0.0\n")
        # the build root of this tree, unpacked once for all tests: nothing here writes into it
        for name in ("build-root.yaml", "build-root.lock.yaml"):
            shutil.copy(ROOT / "recipes" / name, root / "recipes" / name)
        layout = Layout.locate(ROOT)
        lock = load_source_lock(layout)
        made = build_root.make(layout, build_root.read(layout), lock, lambda _: None)
        cache.mkdir(parents=True, exist_ok=True)
        if not (cache / "build-roots").exists():  # another clone with this cache may have it
            (cache / "build-roots").symlink_to(made.parent)

    def without_build_root(self) -> Clone:
        """For tests that build nothing: the sources are then those that the test locks, and no others."""
        for path in (self.root / "recipes").glob("build-root*"):
            path.unlink()
        return self

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def site(self, commit: str | None = None) -> None:
        """Write a site of this version, as ci/docs makes it."""
        self.write("build/site/index.html", "<p>Documentation</p>\n")
        record = {"version": (self.root / "VERSION").read_text().strip(), "commit": commit}
        self.write("build/site/site.json", json.dumps(record))

    def recipe(
        self,
        name: str,
        *,
        host: Sequence[str] = (),
        run: Sequence[str] = (),
        script: Sequence[str] = (),
        test: Sequence[str] = ("true",),
        source: Sequence[Mapping[str, Any]] = (),
        license_: str | None = "MIT",
        extra: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write recipes/NAME/recipe.yaml; by default a package with one file that names it."""
        body: dict[str, Any] = {
            "schema_version": 1,
            "package": {"name": name, "version": "1.0"},
            "source": list(source),
            "build": {
                "script": list(script) or ["mkdir -p $PREFIX/share", f"echo {name} > $PREFIX/share/{name}"]
            },
            "requirements": {"host": list(host), "run": list(run)},
            "tests": [{"script": list(test)}],
            "about": {"license": license_} if license_ else {"summary": "nothing"},
        }
        for key, value in (extra or {}).items():
            body[key] = {**body.get(key, {}), **value} if isinstance(value, dict) else value
        return self.write(f"recipes/{name}/recipe.yaml", json.dumps(body, indent=1))

    def library_for_glibc_2_27(self, name: str, *, run: Sequence[str] = ()) -> None:
        """A recipe of lib/libNAME.so, which calls a function that glibc 2.27 was the first to have."""
        self.write(
            f"recipes/{name}/{name}.c",
            "#define _GNU_SOURCE\n#include <sys/mman.h>\nint answer(void) { return memfd_create(0, 0); }\n",
        )
        self.recipe(
            name,
            source=[{"path": f"{name}.c"}],
            script=["mkdir -p $PREFIX/lib", f"gcc -shared -fPIC -o $PREFIX/lib/lib{name}.so {name}.c"],
            run=run,
        )

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(CI), *sys.path]),
            "WMLCE_CACHE": str(self.cache),
            **self.env,
        }

    def command(self, *arguments: str) -> list[str]:
        """The words that call wmlce on this clone."""
        return [sys.executable, "-m", "wmlce", "--root", str(self.root), *arguments]

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """The command as a running process."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Tests in the background of a shell are deaf to this signal, and so would be the command.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **options,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command to its end, whatever that is."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def ok(self, *arguments: str) -> Any:
        """The command's JSON result; it must succeed."""
        result = self.run("--json", *arguments)
        assert result.returncode == 0, result.stdout + result.stderr
        return json.loads(result.stdout)

    def fails(self, *arguments: str) -> str:
        """What the command says on standard error; it must end with exit code 1 and one error, without a
        traceback.
        """
        result = self.run(*arguments)
        assert result.returncode == 1, result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        assert result.stderr.count("error: ") == 1, result.stderr
        return result.stderr

    def built(self, *arguments: str) -> set[str]:
        """Recipes that `channel build` built now, rather than took from the cache."""
        recipes = self.ok("channel", "build", *arguments)["recipes"]
        return {name for name, result in recipes.items() if result["built"]}

    def published(self) -> set[str]:
        """File names of the current builds in build/channel."""
        document = json.loads((self.root / "build/channel/channel.json").read_text())
        return {key.split("/")[1] for key in document["packages"]}

    def earlier(self) -> set[str]:
        """File names of the builds before, which build/channel still has."""
        document = json.loads((self.root / "build/channel/channel.json").read_text())
        return {key.split("/")[1] for key in document["earlier"]}

    def channel_state(self) -> dict[str, tuple[int, int]]:
        """Every file of the channel with inode and time of change: equal states mean an untouched channel."""
        folder = self.root / "build" / "channel"
        return {
            str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in folder.rglob("*")
            if path.is_file()
        }
