"""The first examples of requests' documentation, and how it reports what fails; `sys.argv[1]` has the URLs."""

import io
import json
import sys

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

urls = json.loads(sys.argv[1])


def fails(kind, text, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{kind.__name__} expected")


for base in urls["http"], urls["https"]:
    answer = requests.get(f"{base}/get", params={"a": "1", "b": ["2"]}, headers={"user-agent": "my-app/0.0.1"})
    told = answer.json()
    assert answer.ok and answer.status_code == requests.codes.ok and "json" in answer.headers["content-type"]
    assert told["args"] == {"a": "1", "b": "2"} and told["headers"]["user-agent"] == "my-app/0.0.1"
    assert requests.post(f"{base}/post", data={"k": "v"}).json()["data"] == "k=v"
    assert requests.post(f"{base}/post", json={"k": "v"}).json()["data"] == '{"k": "v"}'
    files = {"file": ("report.csv", io.BytesIO(b"some,data\n"), "text/csv", {"Expires": "0"})}
    assert "some,data" in requests.post(f"{base}/post", files=files).json()["data"]
    told = requests.post(f"{base}/post", data=iter([b"hi", b"there"])).json()
    assert told["data"] == "hithere" and told["headers"]["Transfer-Encoding"] == "chunked"
    assert requests.post(f"{base}/post", data=io.BytesIO(bytes(3_000_000))).json()["size"] == 3_000_000
    for method in "put", "patch", "delete", "options":
        assert getattr(requests, method)(f"{base}/x").json()["method"] == method.upper()
    assert requests.head(f"{base}/get").text == ""
    answer = requests.get(f"{base}/redirect/3")
    assert [one.status_code for one in answer.history] == [302] * 3 and answer.url == f"{base}/get"
    assert requests.get(f"{base}/redirect/1", allow_redirects=False).status_code == 302
    fails(requests.HTTPError, "404", requests.get(f"{base}/status/404").raise_for_status)
    with requests.Session() as session:
        session.auth = "user", "pass"
        assert session.get(f"{base}/cookies/set/sessioncookie/123").json()["headers"]["Cookie"] == "sessioncookie=123"
        tell = [session.get(f"{base}/get").json() for _ in range(5)]
        assert len({told["port"] for told in tell}) == 1, "the connection is kept"
        assert tell[0]["headers"]["Authorization"].startswith("Basic ")
        assert [session.get(f"{base}/last").text for _ in range(2)] == ["last"] * 2, "a closed one is replaced"
    assert requests.get(f"{base}/gzip").json() == {"gzipped": True}
    with requests.get(f"{base}/chunks/200", stream=True) as answer:
        assert [line for line in answer.iter_lines()] == [b"line %d" % number for number in range(200)]
    with requests.get(f"{base}/bytes/10000000", stream=True) as answer:
        assert sum(map(len, answer.iter_content(1 << 16))) == 10_000_000
    fails(requests.ReadTimeout, "timed out", requests.get, f"{base}/slow", timeout=0.2)
    fails(requests.ConnectionError, "without response", requests.get, f"{base}/hangup")
    fails(requests.ConnectionError, "no rule allows GET ", requests.get, f"{base}/forbidden")
fails(requests.ConnectionError, "closed", requests.get, urls["closed"])
fails(requests.ConnectionError, "NameResolutionError", requests.get, urls["unknown"])
fails(requests.ConnectionError, "no rule allows ", requests.get, urls["denied"])
fails(requests.ConnectTimeout, "timed out", requests.get, urls["slow"], timeout=0.2)
for verify in True, False:
    fails(requests.exceptions.SSLError, "certificate", requests.get, urls["wrong"], verify=verify)
with requests.Session() as session:
    session.mount("https://", HTTPAdapter(max_retries=Retry(total=2, status_forcelist=[503], backoff_factor=0)))
    fails(requests.exceptions.RetryError, "503", session.get, f"{urls['https']}/status/503")
