"""Jupyter's server, over REST and WebSockets: opens a notebook's session on the kernel `hatchery`, runs
a cell, interrupts another one, and restarts. Ends with `all as expected`.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

TOKEN = uuid.uuid4().hex
PATIENCE = 120


async def call(address, path, method="GET", body=None):
    """Calls the server's REST API."""
    headers = {"Authorization": f"token {TOKEN}"}
    data = json.dumps(body or {}) if method == "POST" else None
    request = HTTPRequest(address + path, method, headers, body=data, request_timeout=PATIENCE)
    response = await AsyncHTTPClient().fetch(request)
    return json.loads(response.body) if response.body else None


class Channels:
    """The channels of one kernel, over a WebSocket."""

    def __init__(self, socket):
        self.socket, self.session = socket, uuid.uuid4().hex

    async def send(self, code):
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "", "date": "",
                  "session": self.session, "version": "5.4"}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {},
                   "allow_stdin": False, "stop_on_error": True}
        message = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {},
                   "content": content, "buffers": []}
        await self.socket.write_message(json.dumps(message))
        return header["msg_id"]

    async def until(self, request, kind):
        """Returns the next message of a kind about a request, and the text before it."""
        text = ""
        while True:
            heard = await asyncio.wait_for(self.socket.read_message(), PATIENCE)
            message = json.loads(heard)
            if message["parent_header"].get("msg_id") != request:
                continue
            text += message["content"].get("text", "")
            if message["msg_type"] == kind:
                return message["content"], text


async def when_it_listens(address, path):
    """Calls the API of a server that says where it listens before it does."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await call(address, path)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


async def converse(address):
    specs = await when_it_listens(address, "/api/kernelspecs")
    assert "hatchery" in specs["kernelspecs"], specs
    body = {"path": "a.ipynb", "name": "", "type": "notebook", "kernel": {"name": "hatchery"}}
    session = await call(address, "/api/sessions", "POST", body)
    kernel = session["kernel"]["id"]
    url = f"{address.replace('http', 'ws', 1)}/api/kernels/{kernel}/channels?token={TOKEN}"
    channels = Channels(await websocket_connect(url, connect_timeout=PATIENCE))
    request = await channels.send("x = 42\nprint('hello')")
    reply, text = await channels.until(request, "execute_reply")
    if not text:
        _, text = await channels.until(request, "stream")
    assert reply["status"] == "ok" and text == "hello\n", (reply, text)
    request = await channels.send("print('endless', flush=True)\nwhile True: pass")
    await channels.until(request, "stream")
    await call(address, f"/api/kernels/{kernel}/interrupt", "POST")
    reply, _ = await channels.until(request, "execute_reply")
    assert reply["ename"] == "KeyboardInterrupt", reply
    request = await channels.send("x")
    result, _ = await channels.until(request, "execute_result")
    assert result["data"]["text/plain"] == "42", result
    await call(address, f"/api/kernels/{kernel}/restart", "POST")
    request = await channels.send("x")
    reply, _ = await channels.until(request, "execute_reply")
    assert reply["ename"] == "NameError", reply
    await call(address, f"/api/sessions/{session['id']}", "DELETE")
    assert await call(address, "/api/kernels") == []


def main():
    with tempfile.TemporaryDirectory() as folder:
        options = ["--no-browser", "--allow-root", "--ServerApp.port=0", "--ServerApp.open_browser=False",
                   f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}"]
        server = subprocess.Popen([sys.executable, "-s", "-m", "jupyter_server", *options],
                                  env={**os.environ, "JUPYTER_RUNTIME_DIR": folder},
                                  stderr=subprocess.PIPE, text=True)
        try:
            # It says where it listens.
            lines = []
            for line in server.stderr:
                lines.append(line)
                if "http://127.0.0.1:" in line or "http://localhost:" in line:
                    break
            port = lines[-1].rpartition(":")[2].partition("/")[0]
            assert port.isdecimal(), "".join(lines)
            # Its log has to go somewhere.
            drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)
            asyncio.run(converse(f"http://127.0.0.1:{port}"))
        finally:
            server.terminate()
            server.wait(PATIENCE)
        drain.wait(PATIENCE)
    print("all as expected")


main()
