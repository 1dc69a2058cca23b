"""The first examples of the documentation of aiohttp's client; `sys.argv[1]` has the URLs."""

import asyncio
import json
import sys

import aiohttp

urls = json.loads(sys.argv[1])
FAILING = {
    "closed": (aiohttp.ClientConnectorError, "closed"),
    "unknown": (aiohttp.ClientConnectorError, "unknown"),
    "wrong": (aiohttp.ClientConnectorCertificateError, "certificate"),
    "denied": (aiohttp.ClientConnectorError, "no rule allows "),
    "slow": (asyncio.TimeoutError, ""),
}


async def fails(kind, text, request):
    try:
        async with request:
            pass
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{kind.__name__} expected")


async def parts():
    for _ in range(100):
        yield bytes(10_000)


async def told(request):
    async with request as answer:
        return await answer.json()


async def text(request):
    async with request as answer:
        return await answer.text()


async def use(session, base):
    get = await told(session.get(f"{base}/get", params={"key1": "value1"}, headers={"X-A": "b"}))
    assert get["args"] == {"key1": "value1"} and get["headers"]["X-A"] == "b"
    assert (await told(session.post(f"{base}/post", data={"k": "v"})))["data"] == "k=v"
    assert (await told(session.post(f"{base}/post", json={"k": "v"})))["data"] == '{"k": "v"}'
    form = aiohttp.FormData()
    form.add_field("file", b"cells", filename="report.xls", content_type="application/vnd.ms-excel")
    assert "cells" in (await told(session.post(f"{base}/post", data=form)))["data"]
    assert (await told(session.post(f"{base}/post", data=parts())))["size"] == 1_000_000
    async with session.get(f"{base}/redirect/2") as answer:
        assert len(answer.history) == 2
    assert await told(session.get(f"{base}/gzip")) == {"gzipped": True}
    async with session.get(f"{base}/bytes/1000000") as answer:
        assert sum([len(chunk) async for chunk in answer.content.iter_chunked(1 << 16)]) == 1_000_000
    async with session.get(f"{base}/chunks/30") as answer:
        assert len([line async for line in answer.content]) == 30
    assert (await told(session.get(f"{base}/cookies/set/a/b")))["headers"]["Cookie"] == "a=b"
    assert len({(await told(session.get(f"{base}/get")))["port"] for _ in range(5)}) == 1
    assert [await text(session.get(f"{base}/last")) for _ in range(2)] == ["last"] * 2
    await fails(aiohttp.ClientResponseError, "404", session.get(f"{base}/status/404", raise_for_status=True))
    await fails(asyncio.TimeoutError, "", session.get(f"{base}/slow", timeout=aiohttp.ClientTimeout(total=0.2)))
    await fails(aiohttp.ServerDisconnectedError, "", session.get(f"{base}/hangup"))
    await fails(aiohttp.ClientOSError, "no rule allows GET ", session.get(f"{base}/forbidden"))
    answers = await asyncio.gather(*(told(session.get(f"{base}/get", params={"i": i})) for i in range(100)))
    assert [answer["args"]["i"] for answer in answers] == [str(i) for i in range(100)]
    task = asyncio.create_task(text(session.get(f"{base}/slow")))
    await asyncio.sleep(0.05)
    task.cancel()
    assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
    assert (await told(session.get(f"{base}/get")))["method"] == "GET"


async def main():
    async with aiohttp.ClientSession() as session:
        for base in urls["http"], urls["https"]:
            await use(session, base)
        for name, (kind, message) in FAILING.items():
            await fails(kind, message, session.get(urls[name], timeout=aiohttp.ClientTimeout(total=0.5)))
        await fails(aiohttp.ClientError, "certificate", session.get(urls["wrong"], ssl=False))


asyncio.run(main())
