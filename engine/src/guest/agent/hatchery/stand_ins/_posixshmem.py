"""Named shared memory: files in a folder of their own, which `mmap` maps."""

import os

FOLDER = "/tmp/.shared_memory"


def shm_open(path, flags, mode=0o777):
    os.makedirs(FOLDER, exist_ok=True)
    return os.open(f"{FOLDER}/{path.strip('/')}", flags, mode)


def shm_unlink(path):
    os.unlink(f"{FOLDER}/{path.strip('/')}")
