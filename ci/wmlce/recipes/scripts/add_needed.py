"""Makes an installed library load others with it: SITE_PACKAGES FILE LIBRARY...

What a library needs by name is loaded before what those need. So a library of NVIDIA's, whose search path
must not be changed, finds the environment's libstdc++ loaded already, and does not take the machine's.
"""

import pathlib
import subprocess
import sys

path = pathlib.Path(sys.argv[1], sys.argv[2])
if not path.is_file():
    sys.exit(f"add_needed: there is no {sys.argv[2]}")
for library in sys.argv[3:]:
    subprocess.run(["patchelf", "--add-needed", library, path], check=True)
