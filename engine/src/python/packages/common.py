"""Writes common.txt, the pins of `--packages common`, from common.in: `python3 common.py`.

pip resolves the newest pure-Python wheels that run on every CPython from 3.12 on, beside what the
default build has, and takes the wheels whose machine code is left out. Each line of the result ends with the modules that the wheel brings.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).parent
OLDEST = "3.12"
# What can't run, but which what needs it imports only for some features; with versions that suit.
# Trio needs a system's sockets, and Hypothesis imports it wherever it is.
OPTIONAL = {
    **dict.fromkeys(("cffi", "greenlet", "jedi", "pexpect"), "9999"), "trio": "0.99", "trio-websocket": "0.99"
}
PURE = ["--platform=any", "--implementation=py", "--abi=none"]
NATIVE = ["--platform=manylinux2014_x86_64", "--platform=manylinux_2_28_x86_64",
          "--implementation=cp", "--abi=cp312", "--abi=abi3", "--abi=none"]
# The comment in common.in before the packages whose machine code is left out.
WITH_MACHINE_CODE = "# Those with machine code"


def main():
    build = packages_of_build()
    pure, native = (HERE / "common.in").read_text().split(WITH_MACHINE_CODE)
    native = native.partition("\n")[2]
    left_out = [name_of(line) for line in native.split()]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        stubs = OPTIONAL | dict.fromkeys(left_out, "9999") | build
        for name, version in stubs.items():
            write_stub(folder, name, version)
        constraints = folder / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in build.items()))
        lines = []
        for kind, wanted, options in (
            (PURE, pure, ["--constraint", constraints, "--find-links", folder]),
            (NATIVE, native, ["--no-deps"]),
        ):
            requirements = folder / "requirements.txt"
            requirements.write_text(wanted)
            report = pip("install", kind, "--dry-run", "--ignore-installed", "--target", folder,
                         "--report=-", "--requirement", requirements, *options)
            pins = []
            for one in json.loads(report)["install"]:
                name, version = normalized(one["metadata"]["name"]), one["metadata"]["version"]
                if kind is NATIVE or name not in stubs:
                    hashed = one["download_info"]["archive_info"]["hashes"]["sha256"]
                    pins.append(f"{name}=={version} --hash=sha256:{hashed}")
            requirements.write_text("\n".join(pins))
            wheels = folder / "wheels"
            pip("download", kind, "--no-deps", "--require-hashes", "--dest", wheels,
                "--requirement", requirements)
            brought = {normalized(path.name.split("-")[0]): modules(path) for path in wheels.iterdir()}
            lines += [f"{pin}  # {' '.join(brought[name_of(pin)])}\n" for pin in pins]
    lines.sort(key=name_of)
    (HERE / "common.txt").write_text("# Written by common.py: pins, and the modules of each.\n" + "".join(lines))


def packages_of_build():
    """Returns the versions of the packages of the default build, as its page lists them."""
    page = (HERE.parents[3] / "docs/python-build.md").read_text()
    section = page.split("## Packages\n")[1].split("\n## ")[0]
    return {normalized(name): version for name, version in re.findall(r"^- (\S+) (\S+)$", section, re.M)}


def write_stub(folder, name, version):
    """Writes a wheel without files, by which pip knows that there is a package already."""
    name = name.replace("-", "_")
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def modules(wheel):
    """Returns the names of the modules and packages that a wheel brings."""
    names = {re.match(r"([A-Za-z_]\w*)(/.*)?\.(py|cp\S+so)$", name) for name in zipfile.ZipFile(wheel).namelist()}
    return sorted({name[1] for name in names if name} - {"tests", "test", "docs", "examples"})


def name_of(pin):
    return pin.split("==")[0].split()[0]


def normalized(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pip(command, kind, *arguments):
    command = [sys.executable, "-m", "pip", command, "--quiet", "--only-binary=:all:", *kind,
               f"--python-version={OLDEST}"]
    return subprocess.run([*command, *map(str, arguments)], check=True, stdout=subprocess.PIPE).stdout


main()
