// The component: when the server is asked, and what is known of it.

/** The shortest time between two requests for the status, in milliseconds. */
const SHORTEST_INTERVAL = 500;
/** How long a notice is there to be read, in milliseconds. */
const TIME_TO_READ = 8000;
/** The time between two requests of the small form, in milliseconds. */
const SMALL_INTERVAL = 3000;
const TOKEN_FORM = /^[A-Za-z0-9._~+/=-]{16,512}$/;

const STYLE_SHEET = new CSSStyleSheet();
STYLE_SHEET.replaceSync(STYLE);

class HatcheryPool extends HTMLElement {
    #server;
    #view = null;
    /** Ends requests and streams when the component is taken away. */
    #life = null;
    #timer = null;
    #hideNotice = null;
    #isAsking = false;
    /** Whether something has happened since the server was asked. */
    #isStale = false;
    #isFollowing = false;
    #askedAt = 0;
    #history = new History();
    #status = null;
    #packages = null;
    /** What a cluster does; `undefined` until the server has said, `null` if it knows of none. */
    #cluster = undefined;
    #problem = null;
    #lastActivity = null;
    #ended = null;
    #canRetire = true;

    connectedCallback() {
        const base = new URL(
            this.getAttribute('server') ?? '..',
            this.hasAttribute('server') ? document.baseURI : import.meta.url,
        );
        this.#server ??= new Server(base.href);
        this.#life = new AbortController();
        if (!this.#view) this.#build();
        this.#ask();
    }

    /** Gives it the token of a server, as the user of the full form does. */
    set token(token) {
        if (!this.#view) throw new Error('Put the component into a page first.');
        this.#enter(token);
    }

    /** Whether it has the small form: one panel, and no question for a token. */
    get #isSmall() {
        return this.hasAttribute('small');
    }

    disconnectedCallback() {
        this.#life?.abort();
        this.#life = null;
        clearTimeout(this.#timer);
        clearTimeout(this.#hideNotice);
        this.#timer = this.#hideNotice = null;
        this.#view.runner.end();
        this.#view.close();
    }

    /** Returns what a host of widgets shows in a line. */
    getStatus() {
        const status = this.#status;
        const made = (state, message) => ({
            state,
            primaryMetric: status && `${rate(status.jobs_per_second ?? 0)} jobs/s`,
            secondaryMetric:
                status && `${count(status.running)} running, ${count(waiting(status))} waiting`,
            lastActivity: this.#lastActivity,
            message,
        });
        if (!this.#life) return made('disabled', 'The component isn’t part of a page.');
        if (this.#access === 'refused') return made('disabled', 'The server needs a token.');
        if (this.#problem) return made('error', this.#problem);
        if (!status) return made('disabled', 'Waiting for the server.');
        if (status.phase === 'drained') return made('disabled', 'The pool has ended.');
        const isActive = status.running > 0 || waiting(status) > 0;
        if (status.phase === 'draining') return made('active', 'The pool ends once its jobs have.');
        if (isActive) return made('active', 'Programs are running.');
        const failure = FAILURES[status.last_ended?.outcome];
        return failure ? made('error', failure) : made('idle', 'No program is running.');
    }

    /** Who the server takes this page for. */
    get #access() {
        if (this.#server?.asks && !this.#server.hasToken) return 'refused';
        if (this.#status?.tenant !== undefined) return 'tenant';
        return this.#server?.asks ? 'administrator' : 'anybody';
    }

    // -- What the server says --

    /** Asks for the status now, unless somebody does already. */
    async #ask() {
        const life = this.#life;
        if (!life || this.#isAsking) return;
        clearTimeout(this.#timer);
        this.#isAsking = true;
        this.#isStale = false;
        try {
            if (!document.hidden || !this.#status) await this.#read(life.signal);
        } catch (error) {
            if (!life.signal.aborted) this.#failed(error);
        } finally {
            this.#isAsking = false;
        }
        if (this.#life !== life) {
            // It was taken away meanwhile, and maybe put back.
            this.#ask();
            return;
        }
        this.#show();
        // The small form asks nobody for a token, so it says nothing until it has one.
        if (this.#isSmall && this.#access === 'refused') return;
        const interval = this.#isSmall ? SMALL_INTERVAL : widget.updateInterval;
        this.#wait(this.#isStale ? SHORTEST_INTERVAL : interval);
    }

    #wait(time) {
        clearTimeout(this.#timer);
        this.#timer = setTimeout(() => this.#ask(), time);
    }

    /** Asks again soon, since something has changed. */
    #askSoon() {
        if (this.#isStale || !this.#life) return;
        this.#isStale = true;
        if (this.#isAsking) return;
        this.#wait(Math.max(0, this.#askedAt + SHORTEST_INTERVAL - performance.now()));
    }

    async #read(signal) {
        this.#askedAt = performance.now();
        const status = await this.#server.json('v1/status', { signal });
        this.#problem = null;
        this.#took(status);
        if (this.#isSmall) return;
        this.#follow(signal);
        if (status.tenant === undefined && this.#cluster !== null) await this.#readCluster(signal);
    }

    /** What is wrong with a cluster isn't wrong with the pool. */
    async #readCluster(signal) {
        try {
            this.#cluster = (await this.#server.json('v1/cluster', { signal })).cluster;
        } catch (error) {
            if (signal.aborted) throw error;
            // An older server has no clusters.
            this.#cluster = error.status === 404 ? null : { problem: short(error.message) };
        }
    }

    #failed(error) {
        this.#problem = error.status === 401 ? null : short(error.message);
        if (!this.#server.refuses(error)) return;
        this.#forget();
        this.#view.refuse('The server doesn’t know this token.');
    }

    #took(status) {
        const before = this.#status;
        if (before && status.uptime_seconds < before.uptime_seconds) {
            this.#history = new History();
            this.#packages = null;
            this.#cluster = undefined;
            this.#ended = null;
        }
        this.#status = status;
        const ended = status.totals && doneOf(status.totals);
        // The statistics have begun again.
        if (ended < this.#ended) this.#history = new History();
        const hasMoved = this.#ended !== null && ended > this.#ended;
        const isNow = hasMoved || status.running > 0;
        if (isNow || (this.#lastActivity === null && status.last_ended)) {
            const ago = isNow ? 0 : status.last_ended.age_seconds * 1000;
            this.#lastActivity = new Date(Date.now() - ago).toISOString();
        }
        this.#ended = ended;
        if (status.totals) this.#history.count(status.uptime_seconds, ended);
    }

    /** Follows what the scheduler decides, unless somebody does or may not. */
    async #follow(signal) {
        if (this.#isFollowing || this.#access === 'tenant') return;
        this.#isFollowing = true;
        try {
            for await (const { name, data } of this.#server.events('v1/decisions', { signal })) {
                if (name === 'decision') this.#history.decided(data);
                this.#askSoon();
            }
        } catch {
            // The next answer to `#read` begins it again.
        } finally {
            this.#isFollowing = false;
        }
    }

    // -- What the user does --

    /** `why` returns a text for some reasons of a failure. */
    async #act(text, path, why = () => null, body = undefined) {
        const life = this.#life;
        try {
            await this.#server.json(path, { method: 'POST', body, signal: life.signal });
            if (this.#life !== life) return;
            this.#notice(text, 'good');
        } catch (error) {
            if (life.signal.aborted) return;
            this.#notice(why(error.reason) ?? error.message, 'bad');
        }
        this.#askSoon();
    }

    #interrupt(job) {
        const why = (reason) => {
            const text = `Job ${job} has ended, or didn’t come over HTTP and can’t be interrupted here.`;
            return reason === 'no_job' ? text : null;
        };
        this.#act(`Job ${job} is interrupted.`, `v1/jobs/${job}/interrupt`, why);
    }

    #retire(worker) {
        const why = (reason) => {
            if (reason !== 'no_route') return null;
            this.#canRetire = false;
            this.#show();
            return 'This server can’t retire workers.';
        };
        const text = `Worker ${worker} ends after its present job; another takes its place.`;
        this.#act(text, `v1/workers/${worker}/retire`, why);
    }

    /** Lists what programs can import, or hides the list. */
    async #list() {
        const life = this.#life;
        let packages = null;
        try {
            if (!this.#packages)
                packages = (await this.#server.json('v1/packages', { signal: life.signal })).packages;
        } catch (error) {
            if (!life.signal.aborted) this.#notice(error.message, 'bad');
        }
        if (this.#life !== life) return;
        this.#packages = packages;
        this.#show();
    }

    #notice(text, how) {
        this.#view.notice(sentence(text), how);
        clearTimeout(this.#hideNotice);
        this.#hideNotice = setTimeout(() => this.#view.notice('', ''), TIME_TO_READ);
    }

    /** Takes a token; returns whether it could be one. */
    #enter(token) {
        const isToken = TOKEN_FORM.test(token);
        this.#view.refuse(
            isToken ? '' : 'A token has 16 to 512 letters, digits or characters of -._~+/=',
        );
        if (isToken) {
            this.#server.use(token);
            // What is asked now was asked without it.
            this.#isStale = true;
            this.#ask();
        }
        return isToken;
    }

    /** Forgets the token, and all that its user has seen and done. */
    #forget() {
        this.#server.use(null);
        // Ends the program and the stream that were begun with the token.
        this.#life.abort();
        this.#life = new AbortController();
        clearTimeout(this.#hideNotice);
        this.#status = this.#packages = this.#lastActivity = this.#ended = null;
        this.#cluster = undefined;
        this.#history = new History();
        this.#canRetire = true;
        this.#view.close();
        this.#build();
        this.#show();
        this.#ask();
    }

    // -- What is seen --

    #build() {
        const runner = new Runner(
            this.#server,
            () => this.#life.signal,
            () => this.#askSoon(),
        );
        const actions = {
            enter: (token) => this.#enter(token),
            forget: () => {
                this.#forget();
                this.#view.focus();
            },
            list: () => this.#list(),
            reset: () => this.#act('The statistics begin again.', 'v1/statistics/reset'),
            drain: () => this.#act('The pool drains.', 'v1/drain', undefined, {}),
            interrupt: (job) => this.#interrupt(job),
            retire: (worker) => this.#retire(worker),
        };
        this.#view = new View(runner, actions, this.#isSmall);
        const root = this.shadowRoot ?? this.attachShadow({ mode: 'open' });
        root.adoptedStyleSheets = [STYLE_SHEET];
        root.replaceChildren(...this.#view.elements);
    }

    #show() {
        const access = this.#access;
        this.#view.show({
            access,
            status: access === 'refused' ? null : this.#status,
            problem: this.#problem,
            packages: this.#packages,
            cluster: this.#cluster,
            history: this.#history,
            hasToken: this.#server.asks && this.#server.hasToken,
            canRetire: this.#canRetire,
            ...this.getStatus(),
        });
    }
}

