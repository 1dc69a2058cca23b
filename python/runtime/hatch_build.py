"""Packs the binary `hatchery` into a wheel for the systems that it runs on.

The binary is that of the variable `HATCHERY_BINARY`, or of `cargo build --release`.
"""

from __future__ import annotations

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


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the binary to the wheel's scripts."""

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


def system_of(binary: Path) -> str:
    """Returns the tag of the systems with a C library as new as the binary needs."""
    versions = re.findall(rb"GLIBC_2\.(\d+)", binary.read_bytes())
    newest = max(map(int, versions), default=17)
    return f"manylinux_2_{newest}_{platform.machine()}"
