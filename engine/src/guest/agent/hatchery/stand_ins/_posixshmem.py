"""Lets `multiprocessing.shared_memory` be imported: there is no other process to share with."""

from hatchery._system import NO_PROCESSES, refusal

shm_open, shm_unlink = refusal("shm_open", NO_PROCESSES), refusal("shm_unlink", NO_PROCESSES)
