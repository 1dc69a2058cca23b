// Pyodide under Node, for `run.py`: the same lines of JSON as `peers.py`.
//
// A fresh interpreter is a whole Pyodide, loaded again. A session is a namespace of its own in one
// interpreter, which is what is at hand; nothing isolates two of them from each other.
// `node pyodide.mjs --first CODE` runs one program and prints its output.

import { createInterface } from "node:readline";
import { loadPyodide } from "pyodide";

class Unsupported extends Error {}

let output = "";

async function interpreter() {
  const pyodide = await loadPyodide();
  pyodide.setStdout({ batched: (line) => (output += line + "\n") });
  return pyodide;
}

function run(pyodide, code, globals) {
  output = "";
  pyodide.runPython(code, { globals });
  return output;
}

function namespace(pyodide) {
  const globals = pyodide.toPy({});
  return { turn: (code) => run(pyodide, code, globals), close: () => globals.destroy() };
}

function check(printed, expected) {
  if (printed !== expected) throw new Error(`printed ${printed}, not ${expected}`);
}

let shared;

async function answer({ op, count, science, code, expect, setup, turns }) {
  if (science) throw new Unsupported("its npm package has no numpy; the rest comes from a CDN");
  const seconds = [];
  const timed = async (work) => {
    const started = performance.now();
    const printed = await work();
    seconds.push((performance.now() - started) / 1e3);
    return printed;
  };
  shared ??= await interpreter();
  if (op === "fresh") {
    for (let job = 0; job < count; job++) {
      check(await timed(async () => run(await interpreter(), code)), expect);
    }
  } else if (op === "session") {
    for (let job = 0; job < count; job++) {
      let session;
      const printed = await timed(() => {
        session = namespace(shared);
        return turns.map((turn) => session.turn(turn)).pop();
      });
      session.close();
      check(printed, expect);
    }
  } else if (op === "turns") {
    const session = namespace(shared);
    session.turn(setup);
    for (let number = 1; number <= count; number++) {
      check(await timed(() => session.turn(code)), expect.replace("NUMBER", number));
    }
    session.close();
  } else {
    throw new Unsupported("loads a whole Pyodide for each job, on one thread");
  }
  return { seconds };
}

const [flag, program] = process.argv.slice(2);
if (flag === "--first") {
  if (program.includes("pandas")) process.exit(1);
  process.stdout.write(run(await interpreter(), program), () => process.exit(0));
} else {
  console.log(JSON.stringify({ ready: true }));
  for await (const line of createInterface({ input: process.stdin })) {
    let result;
    try {
      result = await answer(JSON.parse(line));
    } catch (error) {
      const kind = error instanceof Unsupported ? "unsupported" : "failed";
      result = { [kind]: error.message };
    }
    console.log(JSON.stringify(result));
  }
  process.exit(0);
}
