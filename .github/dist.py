"""Writes the files of a release that aren't wheels; `dist.sh` runs it, and says which they are.

`dist.py crates TARGET` lists what the binary consists of, in the form of CycloneDX. `dist.py files TARGET`
takes the binary and the compiled Python out of the wheels in `dist`, and makes everything else of them.
All times are that of SOURCE_DATE_EPOCH, and all orders fixed.
"""

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
import zipfile
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
MANIFEST = tomllib.loads((ROOT / "Cargo.toml").read_text())
VERSION = MANIFEST["workspace"]["package"]["version"]
# What the names of licences begin with.
LICENCE = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)
# Parts of the Python build that aren't packages of PyPI.
LIBRARIES = {
    "bzip2", "freetype", "harfbuzz", "libraqm", "libxml2", "libxslt", "openblas", "qhull", "sheenbidi",
    "sqlite-autoconf", "xz", "zlib",
}  # fmt: skip
# The Debian packages of the libraries that a binary for manylinux_2_28 may need.
DEPENDENCIES = {
    "ld-linux-x86-64.so.2": "libc6 (>= 2.28)",
    "libc.so.6": "libc6 (>= 2.28)",
    "libdl.so.2": "libc6 (>= 2.28)",
    "libgcc_s.so.1": "libgcc-s1",
    "libm.so.6": "libc6 (>= 2.28)",
    "libpthread.so.0": "libc6 (>= 2.28)",
    "librt.so.1": "libc6 (>= 2.28)",
    "libutil.so.1": "libc6 (>= 2.28)",
}
# Where shells look for completions, below `share`; for zsh that is Debian's folder.
COMPLETIONS = {
    "bash": "bash-completion/completions/hatchery",
    "fish": "fish/vendor_completions.d/hatchery.fish",
    "zsh": "zsh/vendor-completions/_hatchery",
}


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


# What something consists of.


def write_sbom(name: str, subject: dict[str, Any], parts: list[dict[str, Any]], uses: dict[str, list[str]]) -> None:
    """Writes and validates an SBOM: the subject, its parts, and which uses which, by their purl."""
    for component in [subject, *parts]:
        component["bom-ref"] = component["purl"]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(EPOCH, UTC).isoformat().replace("+00:00", "Z"),
            "component": subject,
        },
        "components": sorted(parts, key=lambda part: str(part["purl"])),
        "dependencies": [{"ref": ref, "dependsOn": sorted(used)} for ref, used in sorted(uses.items())],
    }
    # The same content has the same number.
    bom["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(bom)).urn
    text = json.dumps(bom, indent=1, ensure_ascii=False) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"{name} is invalid: {error}")
    (DIST / name).write_text(text)


def crates(target: str, of_macros: bool = False) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Returns Cargo's packages that end up in the binary, it first, and which uses which, by their ids.

    With `of_macros`, also what proc macros use.
    """
    options = ["--locked", "--format-version=1", f"--filter-platform={target}", "--manifest-path=cli/Cargo.toml"]
    metadata = json.loads(run("cargo", "metadata", *options))
    packages = {package["id"]: package for package in metadata["packages"]}
    used = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    # From the command line on; a proc macro is built for the compiler, and with all that it uses.
    order = [next(package["id"] for package in packages.values() if package["name"] == "hatchery-cli")]
    for package in order:
        is_macro = any("proc-macro" in found["kind"] for found in packages[package]["targets"])
        used[package] = [] if is_macro and not of_macros else used[package]
        order += [other for other in dict.fromkeys(used[package]) if other not in order]
    return [packages[package] for package in order], {package: used[package] for package in order}


def list_crates(target: str) -> None:
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sums = {(package["name"], package["version"]): package.get("checksum") for package in locked}
    packages, used = crates(target)
    purls = {package["id"]: f"pkg:cargo/{package['name']}@{package['version']}" for package in packages}
    components = []
    for package in packages:
        component = {
            "type": "library",
            "name": package["name"],
            "version": package["version"],
            "purl": purls[package["id"]],
        }
        if licence := package["license"]:
            # Old crates write `/` for a choice.
            component["licenses"] = [{"expression": licence.replace("/", " OR ")}]
        if checksum := sums[package["name"], package["version"]]:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    subject, *parts = components
    subject["type"] = "application"
    uses = {purls[package]: [purls[other] for other in others] for package, others in used.items()}
    write_sbom(f"hatchery-{VERSION}.crates.cdx.json", subject, parts, uses)


def list_python(binary: Path) -> None:
    """Lists the parts of the Python build, which its manifest names with the hashes of their sources."""
    info = dict(line.split(maxsplit=1) for line in run(binary, "python", "info").splitlines())
    [manifest] = Path(info["cache"], "builds").glob(f"{info['build']}-*/MANIFEST")
    lines = [line.split() for line in manifest.read_text().splitlines()]
    pins = (words for kind, *words in lines if kind == "pin")
    sums = {re.sub(r"[-_.]+", "-", file).lower(): found for found, file in pins}
    components = []
    for kind, *words in lines:
        if kind not in ("python", "package"):
            continue
        name, version = words if kind == "package" else ("python", *words)
        registry = "generic" if name in LIBRARIES | {"python"} else "pypi"
        component: dict[str, Any] = {"type": "library", "name": name, "version": version}
        component["purl"] = f"pkg:{registry}/{name}@{version}"
        source = re.sub(r"[-_.]+", "-", f"{name}-{version}-")
        if found := next((found for file, found in sorted(sums.items()) if file.startswith(source)), None):
            component["hashes"] = [{"alg": "SHA-256", "content": found}]
        components.append(component)
    name, version = info["build"].split("==")
    subject = {"type": "application", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
    uses = {subject["purl"]: [component["purl"] for component in components]}
    write_sbom(f"hatchery-{VERSION}.python.cdx.json", subject, components, uses)


def check_audited(binary: Path, target: str) -> None:
    """Compares what the binary says of its crates, by `cargo auditable`, with the SBOM.

    Where a target is named, it counts what proc macros use, too.
    """
    section = ELFFile(io.BytesIO(binary.read_bytes())).get_section_by_name(".dep-v0")
    if section is None:
        sys.exit("the binary doesn't list its crates")
    audited = json.loads(zlib.decompress(section.data()))["packages"]
    names = {f"pkg:cargo/{part['name']}@{part['version']}" for part in audited if part.get("kind") != "build"}
    bom = json.loads((DIST / f"hatchery-{VERSION}.crates.cdx.json").read_text())
    listed = {part["purl"] for part in (bom["metadata"]["component"], *bom["components"])}
    of_macros = {f"pkg:cargo/{part['name']}@{part['version']}" for part in crates(target, of_macros=True)[0]}
    if not names or names - listed - of_macros:
        sys.exit(f"the SBOM lacks crates of the binary: {sorted(names - listed - of_macros)}")
    print(f"the binary lists {len(audited)} crates; the SBOM has {len(listed)}")


# Archive and package.


def licences(target: str) -> bytes:
    """Returns the licences of all crates in the binary, each text once."""
    texts: dict[str, list[str]] = {}
    for package in crates(target)[0]:
        # Those of this repository are files of their own.
        if package["source"] is None:
            continue
        name = f"{package['name']} {package['version']} ({package['license']})"
        found = [file for file in Path(package["manifest_path"]).parent.iterdir() if LICENCE.match(file.name)]
        for text in sorted(file.read_text(errors="replace").strip() for file in found if file.is_file()):
            texts.setdefault(text, []).append(name)
        if not found:
            texts.setdefault(f"{package['license']}. This crate has no file with it.", []).append(name)
    rule = "-" * 80
    return "\n\n".join(f"{rule}\n" + "\n".join(names) + f"\n{rule}\n\n{text}" for text, names in texts.items()).encode()


def installed(binary: Path, target: str) -> dict[str, bytes]:
    """Returns the files of an installation by their paths below `/usr` or an archive."""
    files = {"bin/hatchery": binary.read_bytes()}
    for shell, path in COMPLETIONS.items():
        files[f"share/{path}"] = run(binary, "completions", shell).encode()
    with tempfile.TemporaryDirectory() as folder:
        run(binary, "--quiet", "man", "--out", folder)
        for page in Path(folder).iterdir():
            files[f"share/man/man1/{page.name}.gz"] = gzip.compress(page.read_bytes(), mtime=0)
    for name in ("LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"):
        files[f"share/doc/hatchery/{name}"] = (ROOT / name).read_bytes()
    files["share/doc/hatchery/LICENSES-OF-CRATES"] = licences(target)
    return dict(sorted(files.items()))


def mode(path: str) -> int:
    return 0o755 if path.startswith("bin/") else 0o644


def write_archive(name: str, files: dict[str, bytes]) -> None:
    with tempfile.NamedTemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path, content in files.items():
                entry = tarfile.TarInfo(f"{name}/{path}")
                entry.size, entry.mtime, entry.mode = len(content), EPOCH, mode(path)
                archive.addfile(entry, io.BytesIO(content))
        file.flush()
        # Into a file that is made here, since zstd would make one as private as its source.
        with (DIST / f"{name}.tar.zst").open("wb") as packed:
            subprocess.run(["zstd", "--quiet", "-19", "--threads=1", "--stdout", file.name], check=True, stdout=packed)


def write_package(files: dict[str, bytes]) -> None:
    dynamic: Any = ELFFile(io.BytesIO(files["bin/hatchery"])).get_section_by_name(".dynamic")
    # pip fetches the Python build at the first start.
    depends = sorted({"python3-pip", *(DEPENDENCIES[tag.needed] for tag in dynamic.iter_tags("DT_NEEDED"))})
    control = {
        "Package": "hatchery",
        "Version": VERSION,
        "Architecture": "amd64",
        "Maintainer": "The Hatchery contributors",
        "Installed-Size": str(sum(map(len, files.values())) // 1024),
        "Depends": ", ".join(depends),
        "Section": "interpreters",
        "Priority": "optional",
        "Description": "runs untrusted Python in a pool of sandboxed interpreters",
    }
    with tempfile.TemporaryDirectory() as folder:
        for path, content in files.items():
            file = Path(folder, "usr", path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(mode(path))
        debian = Path(folder, "DEBIAN")
        debian.mkdir()
        (debian / "control").write_text("".join(f"{key}: {value}\n" for key, value in control.items()))
        sums = (f"{hashlib.md5(content).hexdigest()}  usr/{path}\n" for path, content in files.items())
        (debian / "md5sums").write_text("".join(sums))
        # The umask of the builder is of no interest.
        for entry in (Path(folder), *Path(folder).rglob("*")):
            if entry.is_dir():
                entry.chmod(0o755)
        for file in debian.iterdir():
            file.chmod(0o644)
        package = DIST / f"hatchery_{VERSION}_amd64.deb"
        run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", folder, package)


def of_wheel(name: str, ends: Iterable[str]) -> dict[str, bytes]:
    [path] = DIST.glob(f"{name}-*.whl")
    with zipfile.ZipFile(path) as wheel:
        return {end: wheel.read(file) for file in wheel.namelist() for end in ends if file.endswith(f"/{end}")}


def write_files(target: str) -> None:
    runtime = of_wheel("hatchery_sandbox_runtime", ["scripts/hatchery", "python.module.sha256"])
    module = of_wheel("hatchery_sandbox_module", ["python.module"])
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder, "hatchery")
        binary.write_bytes(runtime["scripts/hatchery"])
        binary.chmod(0o755)
        check_audited(binary, target)
        list_python(binary)
        files = installed(binary, target)
    write_archive(f"hatchery-{target}-v{VERSION}", files)
    del runtime["scripts/hatchery"]
    write_package(files | {f"share/hatchery/{name}": content for name, content in (runtime | module).items()})
    made = sorted(file for file in DIST.iterdir() if file.name != "SHA256SUMS")
    sums = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in made)
    (DIST / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    {"crates": list_crates, "files": write_files}[sys.argv[1]](sys.argv[2])
