// Requests, and streams of events.

/** A request that failed. */
class Problem extends Error {
    /** The token that was refused, if one was sent. */
    token = null;

    constructor(message, status = 0, reason = null) {
        super(message);
        this.status = status;
        this.reason = reason;
    }

    static async of(response) {
        let error = {};
        try {
            error = (await response.json()).error ?? {};
        } catch {
            // What is between the page and the server can answer something else.
        }
        const message = error.message ?? `the server answered ${response.status}`;
        return new Problem(short(message), response.status, error.reason ?? null);
    }
}

/** Sends requests, with the token once the server has asked for one. */
class Server {
    #base;
    #key;
    #token;
    /** Whether the server has refused a request without a token. */
    asks = false;

    constructor(base) {
        this.#base = base;
        this.#key = `hatchery-token ${base}`;
        try {
            this.#token = sessionStorage.getItem(this.#key);
        } catch {
            // Storage can be off; the token is in memory then.
        }
    }

    get hasToken() {
        return Boolean(this.#token);
    }

    /** Takes a token, or with `null` forgets it. */
    use(token) {
        this.#token = token;
        try {
            if (token) sessionStorage.setItem(this.#key, token);
            else sessionStorage.removeItem(this.#key);
        } catch {
            // As above.
        }
    }

    /** Whether it was the present token that was refused. */
    refuses(problem) {
        return problem.status === 401 && this.hasToken && problem.token === this.#token;
    }

    async send(path, { method = 'GET', body, accept = 'application/json', signal }) {
        let token = null;
        const request = async () => {
            const headers = { Accept: accept };
            token = this.asks ? this.#token : null;
            if (token) headers.Authorization = `Bearer ${token}`;
            if (body !== undefined) headers['Content-Type'] = 'application/json';
            try {
                return await fetch(new URL(path, this.#base), {
                    method,
                    headers,
                    body: body === undefined ? undefined : JSON.stringify(body),
                    signal,
                    cache: 'no-store',
                    credentials: 'omit',
                    redirect: 'error',
                });
            } catch (error) {
                if (signal.aborted) throw error;
                throw new Problem('The server can’t be reached');
            }
        };
        let response = await request();
        if (response.status === 401 && !this.asks) {
            this.asks = true;
            if (this.#token) response = await request();
        }
        if (!response.ok) throw Object.assign(await Problem.of(response), { token });
        return response;
    }

    async json(path, options) {
        const response = await this.send(path, options);
        return response.json();
    }

    /** Yields server-sent events as their names and their data. */
    async *events(path, options) {
        const response = await this.send(path, { ...options, accept: 'text/event-stream' });
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        try {
            let text = '';
            for (;;) {
                const { done, value } = await reader.read();
                if (done) return;
                // Only what is new can have the end of an event, but for its first half.
                let from = Math.max(0, text.length - 1);
                text += value;
                let begin = 0;
                for (let end; (end = text.indexOf('\n\n', from)) >= 0; from = begin) {
                    const event = parsed(text.slice(begin, end));
                    begin = end + 2;
                    if (event) yield event;
                }
                text = text.slice(begin);
            }
        } finally {
            reader.cancel().catch(() => {});
        }
    }
}

/** Reads an event; `null` for a comment. The server sends data as one line of JSON. */
function parsed(text) {
    let [name, data] = ['message', null];
    for (const line of text.split('\n')) {
        if (line.startsWith('event: ')) name = line.slice(7);
        if (line.startsWith('data: ')) data = line.slice(6);
    }
    return data === null ? null : { name, data: JSON.parse(data) };
}

