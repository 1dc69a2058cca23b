// A client of openapi-fetch with the types that openapi-typescript made.

import createClient from 'openapi-fetch';
import type { components, paths } from './schema.d.ts';

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2] });

function check(is: boolean, what: unknown): void {
    if (!is) throw new Error(JSON.stringify(what));
}

const job: components['schemas']['Job'] = { code: '6 * 7', timeout: 20 };
const { data, error } = await client.POST('/v1/run', { body: job });
check(data?.value === 42 && data.success && error === undefined, data ?? error);

const call = { function: 'math:sqrt', args: [16] };
const called = await client.POST('/v1/run', { body: { call }, params: { query: { files: true } } });
check(called.data?.value === 4 && called.data.files.length === 0, called.data);

const refused = await client.POST('/v1/run', { body: {} });
check(refused.error?.error.kind === 'usage', refused.error);

const name = 'typed';
await client.POST('/v1/sessions', { body: { name } });
const path = { params: { path: { name } } };
await client.POST('/v1/sessions/{name}/run', { ...path, body: { code: 'x = 1' } });
const turn = await client.POST('/v1/sessions/{name}/run', { ...path, body: { code: 'x + 1' } });
check(turn.data?.value === 2, turn.data);
await client.DELETE('/v1/sessions/{name}', path);
