"""Packs the binary `hatchery` into a wheel for the systems that it runs on.

The binary is that of the variable `HATCHERY_BINARY`, or of `cargo build --release`. If the variable
`HATCHERY_MODULE` names a file of `hatchery python precompile`, the wheel has that, too, and its
SHA-256, where the binary looks for them, so that the first start unpacks Python instead of compiling
it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parents[2]
SHARED = "share/hatchery"
MODULE = "python.module"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the binary to the wheel's scripts, and the module to its data."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        binary = built_binary()
        self._folder = tempfile.TemporaryDirectory()
        packed = Path(self._folder.name, "hatchery")
        # Symbols are two thirds of it; without `strip` they stay.
        if (strip := shutil.which("strip")) is None:
            shutil.copy2(binary, packed)
        else:
            subprocess.run([strip, "-o", packed, binary], check=True)
        build_data["tag"] = f"py3-none-{system_of(packed)}"
        build_data["pure_python"] = False
        build_data["shared_scripts"] = {str(packed): "hatchery"}
        if (module := compiled_module()) is not None:
            # Where the binary looks for it.
            pinned = Path(self._folder.name, f"{MODULE}.sha256")
            sha256 = hashlib.sha256(module.read_bytes()).hexdigest()
            pinned.write_text(f"{sha256}  {MODULE}\n", encoding="utf-8")
            build_data["shared_data"] = {
                str(module): f"{SHARED}/{MODULE}",
                str(pinned): f"{SHARED}/{pinned.name}",
            }

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._folder.cleanup()


def built_binary() -> Path:
    """Returns the path of the binary."""
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    binary = Path(os.environ.get("HATCHERY_BINARY", Path(target, "release", "hatchery")))
    if not binary.is_file():
        raise FileNotFoundError(
            f"there is no binary {binary}: run `cargo build --release --locked --workspace --bins`, "
            "or name one with HATCHERY_BINARY"
        )
    return binary


def compiled_module() -> Path | None:
    """Returns the path of the compiled module that is to be packed, if one is."""
    named = os.environ.get("HATCHERY_MODULE")
    if not named:
        return None
    module = Path(named)
    if not module.is_file():
        raise FileNotFoundError(
            f"there is no module {module}, which HATCHERY_MODULE names: "
            f"make it with `hatchery python precompile {module}`"
        )
    return module


def system_of(binary: Path) -> str:
    """Returns the tag of the systems with a C library as new as the binary needs."""
    versions = re.findall(rb"GLIBC_2\.(\d+)", binary.read_bytes())
    newest = max(map(int, versions), default=17)
    return f"manylinux_2_{newest}_{platform.machine()}"
