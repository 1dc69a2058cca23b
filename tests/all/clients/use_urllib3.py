"""The first examples of urllib3's documentation; `sys.argv[1]` has the URLs."""

import io
import json
import sys

import urllib3

urls = json.loads(sys.argv[1])
http = urllib3.PoolManager()


def fails(kind, text, url, **options):
    try:
        http.request("GET", url, **options)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{kind.__name__} expected")


for base in urls["http"], urls["https"]:
    told = http.request("GET", f"{base}/get", fields={"arg": "value"}, headers={"X-Something": "value"}).json()
    assert told["args"] == {"arg": "value"} and told["headers"]["X-Something"] == "value"
    assert http.request("POST", f"{base}/post", json={"a": 1}).json()["data"] == '{"a":1}'
    assert "data" in http.request("POST", f"{base}/post", fields={"file": ("example.txt", "data")}).json()["data"]
    assert http.request("POST", f"{base}/post", body=io.BytesIO(bytes(1_000_000))).json()["size"] == 1_000_000
    answer = http.request("GET", f"{base}/bytes/1000000", preload_content=False)
    assert sum(map(len, answer.stream(1 << 12))) == 1_000_000
    answer.release_conn()
    assert http.request("GET", f"{base}/redirect/2").geturl().endswith("/get")
    assert http.request("GET", f"{base}/gzip").json() == {"gzipped": True}
    assert len({http.request("GET", f"{base}/get").json()["port"] for _ in range(5)}) == 1
    assert [http.request("GET", f"{base}/last").data for _ in range(2)] == [b"last"] * 2
    fails(urllib3.exceptions.ReadTimeoutError, "timed out", f"{base}/slow", timeout=0.2, retries=False)
    timeout = urllib3.Timeout(connect=1, read=0.1)
    fails(urllib3.exceptions.MaxRetryError, "timed out", f"{base}/slow", timeout=timeout, retries=1)
    fails(urllib3.exceptions.ProtocolError, "no rule allows GET ", f"{base}/forbidden", retries=False)
fails(urllib3.exceptions.NewConnectionError, "closed", urls["closed"], retries=False)
fails(urllib3.exceptions.NameResolutionError, "unknown", urls["unknown"], retries=False)
fails(urllib3.exceptions.SSLError, "certificate", urls["wrong"], retries=False)
fails(urllib3.exceptions.NewConnectionError, "no rule allows ", urls["denied"], retries=False)
fails(urllib3.exceptions.ConnectTimeoutError, "timed out", urls["slow"], timeout=0.2, retries=False)
http.clear()
