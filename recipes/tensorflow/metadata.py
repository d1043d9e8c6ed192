"""Writes the metadata of a distribution `tensorflow` that is nothing but its need for tensorflow-cpu."""

import os
from pathlib import Path

version = os.environ["PKG_VERSION"]
folder = Path(os.environ["SP_DIR"], f"tensorflow-{version}.dist-info")
folder.mkdir(parents=True)
files = {
    "METADATA": f"Metadata-Version: 2.1\nName: tensorflow\nVersion: {version}\n"
    "Summary: The build that this environment holds is the distribution tensorflow-cpu\n"
    f"License: Apache-2.0\nRequires-Python: >=3.11\nRequires-Dist: tensorflow-cpu=={version}\n",
    "INSTALLER": "conda\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: conda\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
for name, text in files.items():
    (folder / name).write_text(text)
(folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in [*files, "RECORD"]))
