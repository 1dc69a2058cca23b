"""Streams a body of `sys.argv[2]` bytes through each client; `sys.argv[1]` is the URL of a server of HTTPS."""

import asyncio
import http.client
import sys
import urllib.parse
import urllib.request

import aiohttp
import httpx
import requests
import urllib3

base, size = sys.argv[1], int(sys.argv[2])
url, piece = f"{base}/bytes/{size}", 1 << 16


def length_of(answer):
    return sum(map(len, iter(lambda: answer.read(piece), b"")))


def http_client():
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPSConnection(parts.netloc)
    connection.request("GET", parts.path)
    return length_of(connection.getresponse())


def urllib_request():
    with urllib.request.urlopen(url) as answer:
        return length_of(answer)


def by_urllib3():
    answer = urllib3.request("GET", url, preload_content=False)
    return sum(map(len, answer.stream(piece)))


def by_requests():
    with requests.get(url, stream=True) as answer:
        return sum(map(len, answer.iter_content(piece)))


def by_httpx():
    with httpx.stream("GET", url) as answer:
        return sum(map(len, answer.iter_bytes(piece)))


async def by_httpx_later():
    length = 0
    async with httpx.AsyncClient() as client, client.stream("GET", url) as answer:
        async for chunk in answer.aiter_bytes(piece):
            length += len(chunk)
    return length


async def by_aiohttp():
    length = 0
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        async for chunk in answer.content.iter_chunked(piece):
            length += len(chunk)
    return length


for client in http_client, urllib_request, by_urllib3, by_requests, by_httpx:
    assert client() == size, client
for client in by_httpx_later, by_aiohttp:
    assert asyncio.run(client()) == size, client
