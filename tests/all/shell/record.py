"""Records again what Debian's dash with busybox does with the lines of `lines.ndjson`.

Run it as root where both are installed (`apt-get install busybox dash`); it makes a folder with them, into which
it changes its root. A line's `here` stays as it is: what the sandbox's shell does instead, and why.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

LINES = pathlib.Path(__file__).with_name("lines.ndjson")


def install(root):
    """Copies the programs and what they are linked with."""
    for folder in ("bin", "dev", "home", "tmp", "workspace"):
        (root / folder).mkdir()
    for name in ("dash", "busybox"):
        program = shutil.which(name)
        shutil.copy(program, root / "bin" / name)
        linked = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for word in linked.split():
            if word.startswith("/"):
                target = root / word[1:]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, target)
    (root / "bin/sh").symlink_to("dash")
    for name in subprocess.run(["busybox", "--list"], capture_output=True, text=True).stdout.split():
        if not (root / "bin" / name).exists():
            (root / "bin" / name).symlink_to("busybox")
    os.mknod(root / "dev/null", 0o20666, os.makedev(1, 3))


def run(root, files, line):
    for folder in ("workspace", "tmp"):
        shutil.rmtree(root / folder)
        (root / folder).mkdir()
    for name, text in files.items():
        path = root / "workspace" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    inside = 'cd /workspace; unset PWD OLDPWD; exec sh -c "$1"'
    command = ["chroot", str(root), "/bin/busybox", "env", "-i", "HOME=/home", "PATH=/bin", "/bin/sh", "-c", inside, "sh", line]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return {"out": ended.stdout.decode(), "status": ended.returncode, "complains": bool(ended.stderr)}


def main():
    first, *rows = map(json.loads, LINES.read_text().splitlines())
    root = pathlib.Path(tempfile.mkdtemp())
    try:
        install(root)
        rows = [{"line": row["line"], **run(root, first["files"], row["line"]), **{key: row[key] for key in ("here", "why") if key in row}} for row in rows]
    finally:
        shutil.rmtree(root)
    LINES.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in [first, *rows]))


main()
