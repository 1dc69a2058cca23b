"""The first examples of httpx' documentation, with both of its clients; `sys.argv[1]` has the URLs."""

import asyncio
import json
import sys

import httpx

urls = json.loads(sys.argv[1])
FAILING = {
    "closed": (httpx.ConnectError, "closed"),
    "unknown": (httpx.ConnectError, "unknown"),
    "wrong": (httpx.ConnectError, "certificate"),
    "denied": (httpx.ConnectError, "no rule allows "),
    "slow": (httpx.ConnectTimeout, "timed out"),
}


def fails(kind, text, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{kind.__name__} expected")


async def fails_later(kind, awaitable):
    try:
        await awaitable
    except kind:
        return
    raise AssertionError(f"{kind.__name__} expected")


def plain(base):
    answer = httpx.get(f"{base}/get", params={"key1": "value1"}, headers={"user-agent": "my-app/0.0.1"})
    assert answer.status_code == httpx.codes.OK and answer.http_version == "HTTP/1.1"
    assert answer.json()["args"] == {"key1": "value1"}
    assert httpx.post(f"{base}/post", data={"key": "value"}).json()["data"] == "key=value"
    assert httpx.post(f"{base}/post", json={"a": [1]}).json()["data"] == '{"a":[1]}'
    files = {"upload-file": ("report.xls", b"cells", "application/vnd.ms-excel")}
    assert "cells" in httpx.post(f"{base}/post", files=files).json()["data"]
    assert httpx.post(f"{base}/post", content=(bytes(1000) for _ in range(1000))).json()["size"] == 1_000_000
    assert len(httpx.get(f"{base}/redirect/2", follow_redirects=True).history) == 2
    fails(httpx.HTTPStatusError, "404", httpx.get(f"{base}/status/404").raise_for_status)
    assert httpx.get(f"{base}/gzip").json() == {"gzipped": True}
    with httpx.stream("GET", f"{base}/bytes/1000000") as answer:
        assert sum(map(len, answer.iter_bytes())) == 1_000_000
    with httpx.stream("GET", f"{base}/chunks/50") as answer:
        assert len(list(answer.iter_lines())) == 50
    with httpx.Client(base_url=base) as client:
        client.get("/cookies/set/a/b", follow_redirects=True)
        assert client.get("/get").json()["headers"]["Cookie"] == "a=b"
        assert len({client.get("/get").json()["port"] for _ in range(5)}) == 1
        assert [client.get("/last").text for _ in range(2)] == ["last"] * 2
    fails(httpx.ReadTimeout, "timed out", httpx.get, f"{base}/slow", timeout=0.2)
    fails(httpx.RemoteProtocolError, "", httpx.get, f"{base}/hangup")
    fails(httpx.ReadError, "no rule allows GET ", httpx.get, f"{base}/forbidden")


async def concurrent(base):
    async def parts():
        for _ in range(100):
            yield bytes(10_000)

    async with httpx.AsyncClient(base_url=base, timeout=60) as client:
        assert (await client.get("/get", params={"a": "b"})).json()["args"] == {"a": "b"}
        assert len({(await client.get("/get")).json()["port"] for _ in range(5)}) == 1
        async with client.stream("GET", "/bytes/1000000") as answer:
            assert sum([len(chunk) async for chunk in answer.aiter_bytes()]) == 1_000_000
        assert (await client.post("/post", content=parts())).json()["size"] == 1_000_000
        assert [(await client.get("/last")).text for _ in range(2)] == ["last"] * 2
        await fails_later(httpx.ReadTimeout, client.get("/slow", timeout=0.2))
        await fails_later(httpx.ReadError, client.get("/forbidden"))
        answers = await asyncio.gather(*(client.get("/get", params={"i": i}) for i in range(100)))
        assert [answer.json()["args"]["i"] for answer in answers] == [str(i) for i in range(100)]
        task = asyncio.create_task(client.get("/slow"))
        await asyncio.sleep(0.05)
        task.cancel()
        await fails_later(asyncio.CancelledError, task)
        assert (await client.get("/get")).status_code == 200


async def refused():
    async with httpx.AsyncClient(timeout=0.5) as client:
        for name, (kind, _) in FAILING.items():
            await fails_later(kind, client.get(urls[name]))


for base in urls["http"], urls["https"]:
    plain(base)
    asyncio.run(concurrent(base))
for name, (kind, text) in FAILING.items():
    fails(kind, text, httpx.get, urls[name], timeout=0.5)
fails(httpx.ConnectError, "certificate", httpx.get, urls["wrong"], verify=False)
asyncio.run(refused())
