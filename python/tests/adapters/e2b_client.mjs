// E2B's own client in JavaScript against the server of test_e2b.py, which the environment names.

import assert from 'node:assert/strict';
import { CommandExitError, Sandbox } from '@e2b/code-interpreter';

const sandbox = await Sandbox.create({ metadata: { language: 'js' }, envs: { WHO: 'ada' } });

const figure = await sandbox.runCode(`
import matplotlib.pyplot as plt
plt.plot([1, 4, 9])
plt.show()
print("drawn")
x = 6
x * 7`);
assert.equal(figure.error, undefined);
assert.equal(figure.logs.stdout.join(''), 'drawn\n');
assert.equal(figure.text, '42');
const png = Buffer.from(figure.results.find((result) => result.png).png, 'base64');
assert.equal(png.subarray(1, 4).toString(), 'PNG');
assert.equal((await sandbox.runCode('x + y')).error.name, 'NameError');

await sandbox.files.write('data/a.csv', 'n\n1\n41\n');
await sandbox.files.write('b.bin', new Uint8Array([0, 255]).buffer);
assert.equal(await sandbox.files.read('data/a.csv'), 'n\n1\n41\n');
assert.deepEqual([...await sandbox.files.read('b.bin', { format: 'bytes' })], [0, 255]);
assert.deepEqual((await sandbox.files.list('data')).map((entry) => entry.name), ['a.csv']);

const sum = await sandbox.commands.run('tail -n +2 data/a.csv | sort -rn | head -n 1; echo $WHO >&2');
assert.deepEqual([sum.exitCode, sum.stdout, sum.stderr], [0, '41\n', 'ada\n']);
await assert.rejects(sandbox.commands.run('echo begun; exit 3'), (error) => {
    assert.ok(error instanceof CommandExitError);
    assert.deepEqual([error.exitCode, error.stdout], [3, 'begun\n']);
    return true;
});

const again = await Sandbox.connect(sandbox.sandboxId);
assert.equal((await again.runCode('x')).text, '6');
const listed = () => Sandbox.list({ query: { metadata: { language: 'js' } } }).nextItems();
assert.deepEqual((await listed()).map((found) => found.sandboxId), [sandbox.sandboxId]);
assert.ok(await sandbox.kill());
assert.deepEqual(await listed(), []);
assert.ok(!await Sandbox.kill(sandbox.sandboxId));
