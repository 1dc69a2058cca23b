"""Uses the server as an agent does, with the official client.

Arguments: the lifecycle (`legacy` or `auto`), then the address of a server, or a command that is one.
"""

import sys

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

LIFECYCLE, *SERVER = sys.argv[1:]
IS_HTTP = SERVER[0].startswith("http://")
TOOLS = ["run_python", "fork_session", "reset_session", "list_packages", "read_file"]
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()\n'drawn'"


def server():
    return SERVER[0] if IS_HTTP else StdioServerParameters(command=SERVER[0], args=SERVER[1:])


async def main():
    async with Client(server(), mode=LIFECYCLE) as client:
        print(client.protocol_version)
        assert "network" in client.instructions
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == TOOLS, tools

        async def run(code, **arguments):
            return await client.call_tool("run_python", {"code": code, **arguments})

        # The client checks structured contents against the tool's schema.
        result = await run("print('said'); 6 * 7")
        assert not result.is_error and result.structured_content["value"] == 42, result
        assert result.content[0].text == "said\nvalue: 42", result
        result = await run("1 / 0")
        assert not result.is_error and "ZeroDivisionError" in result.content[0].text, result
        result = await run("1", nonsense=True)
        assert result.is_error and "`nonsense`" in result.content[0].text, result

        result = await run(PLOT)
        image = next(block for block in result.content if block.type == "image")
        assert image.mime_type == "image/png" and len(image.data) > 1000, result

        result = await run("kept = [1]; open('a.txt', 'w').write('text')", session="new")
        session = result.structured_content["session"]
        assert len(session) == 32, session
        link = next(block for block in result.content if block.type == "resource_link")
        contents = (await client.read_resource(link.uri)).contents
        assert contents[0].text == "text", contents
        listed = (await client.list_resources()).resources
        assert [file.uri for file in listed] == ([] if IS_HTTP else [link.uri]), listed

        heard = []

        async def hear(progress, total, message):
            heard.append((progress, message))

        await client.call_tool(
            "run_python",
            {"code": "import time\nfor n in range(6): print(n, flush=True); time.sleep(0.2)"},
            progress_callback=hear,
        )
        assert 2 <= len(heard) <= 6 and heard == sorted(heard), heard
        assert any(message for _, message in heard), heard

        # Giving up interrupts the program, and the session lives on.
        with anyio.move_on_after(1) as scope:
            await run("kept.append(2)\nwhile True: pass", session=session)
        assert scope.cancelled_caught
        with anyio.fail_after(10):
            result = await run("kept", session=session)
        assert result.structured_content["value"] == [1, 2], result

        fork = await client.call_tool("fork_session", {"session": session})
        result = await run("kept.append(3); kept", session=fork.structured_content["session"])
        assert result.structured_content["value"] == [1, 2, 3], result
    print("done")


anyio.run(main)
