"""The clients of Python's own library; `sys.argv[1]` has the URLs."""

import asyncio
import http.client
import http.cookiejar
import json
import sys
import urllib.error
import urllib.parse
import urllib.request

urls = json.loads(sys.argv[1])


def fails(kind, text, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        assert text in str(error), error
        return error
    raise AssertionError(f"{kind.__name__} expected")


def of_http_client(base):
    parts = urllib.parse.urlsplit(base)
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    connection = kinds[parts.scheme](parts.hostname, parts.port, timeout=10)
    ports = set()
    for _ in range(3):
        connection.request("GET", "/get?a=1", headers={"X-A": "b"})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        assert (answer.status, answer.reason, told["args"], told["headers"]["X-A"]) == (200, "OK", {"a": "1"}, "b")
        ports.add(told["port"])
    assert len(ports) == 1
    connection.request("POST", "/post", body=iter([b"abc", b"def"]), encode_chunked=True)
    assert json.loads(connection.getresponse().read())["data"] == "abcdef"
    connection.request("PUT", "/put", body=bytes(1_000_000))
    assert json.loads(connection.getresponse().read())["size"] == 1_000_000
    connection.request("GET", "/chunks/3")
    assert connection.getresponse().read() == b"line 0\nline 1\nline 2\n"
    connection.request("GET", "/bytes/1000000")
    answer, size = connection.getresponse(), 0
    while chunk := answer.read(1 << 14):
        size += len(chunk)
    assert size == 1_000_000
    connection.close()
    connection.request("GET", "/hangup")
    fails(http.client.RemoteDisconnected, "", connection.getresponse)
    connection.close()
    connection.timeout = 0.1
    connection.request("GET", "/slow")
    fails(TimeoutError, "timed out", connection.getresponse)
    connection.close()
    connection.request("GET", "/forbidden")
    fails(PermissionError, "no rule allows GET ", connection.getresponse)
    connection.close()


def of_urllib(base):
    with urllib.request.urlopen(f"{base}/get?x=1") as answer:
        assert answer.status == 200 and json.load(answer)["args"] == {"x": "1"}
    data = urllib.parse.urlencode({"spam": 1}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{base}/post", data, {"X-A": "b"})) as answer:
        assert json.load(answer)["data"] == "spam=1"
    with urllib.request.urlopen(f"{base}/redirect/2") as answer:
        assert answer.url == f"{base}/get"
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    with opener.open(f"{base}/cookies/set/a/b") as answer:
        assert json.load(answer)["headers"]["Cookie"] == "a=b"
    fails(urllib.error.HTTPError, "404", urllib.request.urlopen, f"{base}/status/404").close()


async def of_asyncio(base):
    parts = urllib.parse.urlsplit(base)
    is_tls = parts.scheme == "https"

    async def last():
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or (443 if is_tls else 80), ssl=is_tls or None)
        writer.write(f"GET /last HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        await writer.drain()
        body = (await reader.read()).partition(b"\r\n\r\n")[2]
        writer.close()
        await writer.wait_closed()
        return body

    bodies = await asyncio.gather(*(last() for _ in range(100)))
    assert bodies == [b"last"] * 100, set(bodies)


for base in urls["http"], urls["https"]:
    of_http_client(base)
    of_urllib(base)
    asyncio.run(of_asyncio(base))
fails(urllib.error.URLError, "closed", urllib.request.urlopen, urls["closed"])
fails(urllib.error.URLError, "unknown", urllib.request.urlopen, urls["unknown"])
fails(urllib.error.URLError, "certificate", urllib.request.urlopen, urls["wrong"])
fails(urllib.error.URLError, "no rule allows ", urllib.request.urlopen, urls["denied"])
fails(urllib.error.URLError, "timed out", urllib.request.urlopen, urls["slow"], timeout=0.2)
