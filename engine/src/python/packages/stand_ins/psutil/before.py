"""Makes the sandbox a platform of psutil: this comes before the file of that package."""

import sys

platform, sys.platform = sys.platform, "linux"
try:
    from . import _ntuples, _sandbox
finally:
    sys.platform = platform
sys.modules["psutil._pslinux"] = _pslinux = _sandbox
del platform
