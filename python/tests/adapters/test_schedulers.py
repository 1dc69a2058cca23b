"""Pools as arguments of other schedulers' tasks, with the real packages."""

import os

import pytest


def doubled(pool, number):
    return os.getpid(), pool.run(f"{number} * 2").value


def check(results):
    results = list(results)
    assert sorted(value for _, value in results) == [number * 2 for number in range(40)]
    assert os.getpid() not in {pid for pid, _ in results}


def test_joblib(pool):
    joblib = pytest.importorskip("joblib")
    with joblib.parallel_config("loky", n_jobs=2):
        check(joblib.Parallel()(joblib.delayed(doubled)(pool, n) for n in range(40)))


def test_dask(pool):
    distributed = pytest.importorskip("distributed")
    # Its processes start afresh and look for this module.
    folder = os.path.dirname(__file__)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    options = {"processes": True, "n_workers": 2, "threads_per_worker": 4, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        futures = client.map(lambda number: doubled(pool, number), range(40), pure=False)
        check(client.gather(futures))
