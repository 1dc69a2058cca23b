"""`%pip` and similar commands: they list packages and install nothing."""

import re

from hatchery_notebook.errors import UsageError


def pip(command, line):
    """Prints what `pip` prints about installed packages; otherwise raises with advice."""
    words = line.split()
    if words[:1] == ["list"]:
        return print_table(found())
    if words[:1] == ["freeze"]:
        return print("\n".join(f"{name}=={version}" for name, version in found()))
    if words[:1] == ["show"] and len(words) > 1:
        return show(words[1:])
    install(command, line, words)


def found():
    """Returns the names and versions of all packages that can be imported."""
    import importlib.metadata

    packages = {}
    for one in importlib.metadata.distributions():
        name = one.metadata["Name"]
        if name:
            packages.setdefault(name.lower(), (name, one.version))
    return [packages[name] for name in sorted(packages)]


def print_table(packages):
    rows = [("Package", "Version"), *packages]
    width = max(len(name) for name, _ in rows)
    most = max(len(version) for _, version in rows)
    rows.insert(1, ("-" * width, "-" * most))
    for name, version in rows:
        print(f"{name:{width}} {version}".rstrip())


def show(names):
    import importlib.metadata

    for at, name in enumerate(names):
        try:
            data = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"WARNING: Package(s) not found: {name}")
            continue
        if at:
            print("---")
        for field in ("Name", "Version", "Summary", "Home-page", "Author", "License"):
            print(f"{field}: {data.get(field) or ''}")


def install(command, line, words):
    """Succeeds if everything requested is installed, as pip does."""
    names = [word.strip("'\"") for word in words[1:] if not word.startswith("-")]
    reads_files = any(word.startswith(("-r", "-c", "-e", "--req", "--con", "--edit")) for word in words)
    if words[:1] != ["install"] or reads_files or not all(map(is_installed, names or [""])):
        message = f"`{command} {line.strip()}` can't run here: packages come from outside the sandbox"
        raise UsageError(message, "package")
    for name in names:
        print(f"Requirement already satisfied: {name}")


def is_installed(requirement):
    import importlib.metadata
    import importlib.util

    name, relation, version = re.fullmatch(r"([^<>=!~;[ ]*) *(==|>=)? *(.*)", requirement).groups("")
    if version and not relation:
        return False
    if not name.replace("-", "_").replace(".", "_").isidentifier():
        return False
    try:
        there = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        try:
            return not version and importlib.util.find_spec(name.replace("-", "_")) is not None
        except (ImportError, ValueError):
            return False
    if relation == ">=":
        return numbers_of(there) >= numbers_of(version)
    return not version or there == version


def numbers_of(version):
    return [int(number) for number in re.findall(r"\d+", version)]
