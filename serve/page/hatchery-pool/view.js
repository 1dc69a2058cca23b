// What is seen of a pool.

/** Most rows in the lists of the pool. */
const MOST_TENANTS = 12;
const MOST_WORKERS = 200;
const MOST_SESSIONS = 50;

const SHARES = ['p50', 'p95', 'p99'];

class View {
    #phase = h('span', { class: 'phase', role: 'status' }, 'connecting');
    #about = h('span', { class: 'about' });
    #notice = h('p', { class: 'notice', role: 'status' });
    #who = h('span', { class: 'who' });
    #forget;
    #drain;
    #dialog;

    #gate;
    #refused = h('p', { class: 'refused', role: 'alert' });

    #pool;
    #why = h('p', { class: 'why', id: 'why' });
    #figures = {};
    #memory = h('span');
    #rates = new Chart(['rate']);
    #latencies = new Chart(SHARES);
    #steps = stepsTable();
    #tenants = tenantsTable();
    #workers;
    #errors = errorsTable();
    #sessions = sessionsTable();
    #cluster = new ClusterView();
    #packages = h('ul', { class: 'packages', tabindex: 0, 'aria-label': 'Packages' });
    /** The counts beside the titles of lists. */
    #counts = {};
    /** What only an administrator sees. */
    #ofAll = [];

    /** `actions` are `enter`, `forget`, `drain`, `interrupt` and `retire`. */
    constructor(runner, actions) {
        this.runner = runner;
        this.#workers = workersTable(actions);
        this.#forget = button('Forget token', { class: 'quiet' }, actions.forget);
        this.#dialog = this.#question(actions.drain);
        const ask = () => this.#dialog.showModal();
        this.#drain = button('Drain…', { class: 'danger', 'aria-describedby': 'why' }, ask);
        this.#gate = this.#entrance(actions.enter);
        this.#pool = h('div', { class: 'pool' }, this.#why, this.#overview(), ...this.#panels());
        const about = [h('h1', {}, 'Hatchery'), this.#phase, this.#about, this.#notice];
        const buttons = h('div', { class: 'actions' }, this.#who, this.#forget, this.#drain);
        this.elements = [h('header', {}, ...about, buttons), this.#gate, this.#pool, this.#dialog];
    }

    /** Says how something that was asked for went. */
    notice(text, how) {
        this.#notice.className = `notice ${how}`;
        say(this.#notice, text);
        this.#notice.title = text;
    }

    /** Says what is wrong with the token. */
    refuse(text) {
        say(this.#refused, text);
    }

    /** Closes the question that may be open. */
    close() {
        if (this.#dialog.open) this.#dialog.close();
    }

    show(seen) {
        const { access, status, problem, packages, history, hasToken, canRetire } = seen;
        const { state, message, cluster } = seen;
        const isAdministrator = access === 'administrator' && status !== null;
        const unknown = access === 'refused' ? 'locked' : 'connecting';
        say(this.#phase, problem ? 'no connection' : (status?.phase ?? unknown));
        this.#phase.className = `phase ${status?.phase === 'draining' ? 'draining' : state}`;
        this.#phase.title = message;
        const parts = [];
        if (status?.uptime_seconds !== undefined) parts.push(`up ${age(status.uptime_seconds)}`);
        if (status) parts.push(`version ${status.version}`);
        say(this.#about, parts.join(' · '));
        const tenant = access === 'tenant' ? `tenant ${short(status?.tenant, 40)}` : '';
        say(this.#who, isAdministrator ? 'administrator' : tenant);
        this.#forget.hidden = !hasToken;
        this.#drain.hidden = access === 'refused';
        this.#drain.disabled = !isAdministrator || status.phase !== 'open';
        this.#gate.hidden = access !== 'refused';
        this.#pool.hidden = access === 'refused';
        say(this.#why, problem ? `${problem}; trying again.` : whyNot(access, status));
        if (!status) return;

        this.#showOwn(status, packages);
        const isAll = status.tenant === undefined;
        this.#cluster.show(isAll ? cluster : null);
        for (const element of this.#ofAll) element.hidden = !isAll;
        if (!isAll) return;
        this.#showAll(status);
        this.#showRates(history.rates(status.uptime_seconds));
        this.#showLatencies(history.latencies(status.uptime_seconds));
        const isOpen = status.phase === 'open';
        this.#showWorkers(status, {
            interrupt: isAdministrator,
            retire: isAdministrator && canRetire && isOpen,
        });
    }

    // -- The parts --

    #question(drain) {
        const text =
            'It finishes the jobs that it has admitted, and accepts no more. ' +
            'Only a new start of the server undoes that.';
        const close = () => this.close();
        const confirm = button('Drain', { class: 'danger' }, () => {
            close();
            drain();
        });
        const cancel = button('Cancel', { autofocus: true }, close);
        return h(
            'dialog',
            { 'aria-labelledby': 'drain' },
            h('h2', { id: 'drain' }, 'Drain the pool?'),
            h('p', {}, text),
            h('div', { class: 'controls' }, confirm, cancel),
        );
    }

    #entrance(enter) {
        const input = h('input', {
            type: 'password',
            id: 'token',
            autocomplete: 'off',
            spellcheck: 'false',
        });
        const text =
            'It is one of those that the server was started with, by --token-file. ' +
            'The page keeps it until this tab is closed.';
        const send = h('button', { type: 'submit', class: 'main' }, 'Use token');
        const gate = h(
            'form',
            { class: 'gate', hidden: true },
            h('h2', {}, 'This server needs a token'),
            h('p', {}, text),
            h('div', { class: 'controls' }, h('label', { for: 'token' }, 'Token'), input, send),
            this.#refused,
        );
        gate.addEventListener('submit', (event) => {
            event.preventDefault();
            if (enter(input.value.trim())) input.value = '';
        });
        return gate;
    }

    #overview() {
        const figures = ['Jobs a second', 'Running', 'Waiting', 'Memory', 'Sessions'].map(
            (name) => {
                const value = h('span', { class: 'value' }, '–');
                const detail = h('span', { class: 'detail' });
                this.#figures[name] = { value, detail };
                const bar = name === 'Memory' ? [h('span', { class: 'bar' }, this.#memory)] : [];
                const made = h(
                    'div',
                    { class: 'figure' },
                    h('h2', {}, name),
                    value,
                    ...bar,
                    detail,
                );
                if (!['Running', 'Waiting', 'Sessions'].includes(name)) this.#ofAll.push(made);
                return made;
            },
        );
        return h('div', { class: 'figures' }, ...figures);
    }

    #panels() {
        const key = (name) => h('span', { class: `key ${name}` }, name);
        const half = { class: 'half' };
        const rates = panel('Jobs a second', half, this.#rates.element);
        const latencies = panel('Latency', half, this.#latencies.element);
        latencies.extra.append('admitted to ended ', ...SHARES.map(key));
        const queue = panel('Queue', half, this.#tenants.element);
        queue.extra.append(...PRIORITIES.map(key));
        const steps = panel('Steps of jobs', half, this.#steps.element);
        steps.extra.append('since the start');
        const workers = panel('Workers', {}, this.#workers.element);
        const errors = panel('Last errors', {}, this.#errors.element);
        const sessions = panel('Sessions', half, this.#sessions.element);
        const packages = panel('Packages', half, this.#packages);
        this.#counts = {
            tenants: queue.extra.appendChild(h('span')),
            workers: workers.extra,
            sessions: sessions.extra,
            packages: packages.extra,
        };
        const elements = (panels) => panels.map(({ element }) => element);
        this.#ofAll.push(...elements([rates, latencies, queue, steps, workers, errors]));
        const upper = elements([rates, latencies, queue, steps]);
        const lower = elements([workers, errors, sessions, packages]);
        return [...upper, this.runner.element, ...this.#cluster.elements, ...lower];
    }

    // -- What they show --

    /** Shows what tenants see as well. */
    #showOwn(status, packages) {
        const { Running, Waiting, Sessions } = this.#figures;
        say(Running.value, count(status.running));
        say(Waiting.value, count(waiting(status)));
        say(Sessions.value, count(status.sessions.length));
        const sessions = this.#some('sessions', status.sessions, MOST_SESSIONS);
        this.#sessions.show(sessions);
        this.runner.offer(sessions.map(({ name }) => name));
        if (!packages || this.#packages.childElementCount > 0) return;
        say(this.#counts.packages, `${count(packages.length)}, with the standard library`);
        const items = packages.map(({ name, version }) => {
            return h('li', {}, short(name, 60), ' ', h('span', {}, short(version, 30)));
        });
        this.#packages.append(...items);
    }

    #showAll(status) {
        const { memory, places, totals } = status;
        const { Running, Waiting, Memory, Sessions, ...others } = this.#figures;
        const rates = others['Jobs a second'];
        const badly = totals.failed + totals.limited + totals.sandbox_failed;
        say(rates.value, rate(status.jobs_per_second));
        say(rates.detail, `${count(doneOf(totals))} ended, ${count(badly)} badly`);
        say(Running.detail, `on ${count(status.workers.length)} workers`);
        const oldest = status.oldest_wait_seconds;
        say(Waiting.detail, oldest === null ? 'none' : `the oldest for ${duration(oldest)}`);
        const used = usedOf(memory);
        say(Memory.value, bytes(used));
        say(Memory.detail, `of ${bytes(memory.limit_bytes)}`);
        this.#memory.style.width = share(used, memory.limit_bytes);
        const inMemory = count(places.parked + places.compressed);
        const where = [`${count(places.on_workers)} on workers`, `${inMemory} in memory`];
        say(Sessions.detail, `${where.join(', ')}, ${count(places.on_disk)} on disk`);

        this.#steps.show(STEPS.map((step) => ({ step, ...status.latency[step] })));
        const tenants = status.tenants.map((tenant) => ({ ...tenant, depths: depthsOf(tenant) }));
        tenants.sort((a, b) => b.depths.all - a.depths.all);
        const deepest = tenants[0]?.depths.all;
        const shown = this.#some('tenants', tenants, MOST_TENANTS);
        this.#tenants.show(shown.map((tenant) => ({ ...tenant, deepest })));
        const sessions = new Map(status.sessions.map((session) => [session.session, session]));
        const errors = errorsOf(status);
        this.#errors.show(
            errors.map((error) => ({ ...error, rests: sessions.get(error.session) })),
        );
    }

    #showWorkers(status, may) {
        const names = new Map(status.sessions.map(({ session, name }) => [session, name]));
        const workers = this.#some('workers', status.workers, MOST_WORKERS);
        const named = workers.map((worker) => ({
            ...worker,
            name: names.get(worker.session),
            may,
        }));
        this.#workers.show(named);
    }

    #showRates(points) {
        const most = nice(Math.max(1, ...points.map(([, value]) => value)));
        const label = (value) => (most >= 4 ? count(value) : String(value));
        const ticks = [0, most / 2, most].map((value) => [value, label(value)]);
        const text = `Jobs a second over the last 3 minutes: ${rate(points.at(-1)?.[1] ?? 0)} now.`;
        this.#rates.draw([points], ticks, (value) => value / most, text);
    }

    /** Draws percentiles by their magnitude, since they can be far apart. */
    #showLatencies(lines) {
        const magnitude = (value) => Math.log10(Math.max(1e-6, value));
        const magnitudes = lines.flat().map(([, value]) => magnitude(value));
        const low = Math.floor(Math.min(-3, ...magnitudes));
        const high = Math.ceil(Math.max(0, ...magnitudes));
        const step = high - low > 4 ? 2 : 1;
        const ticks = [];
        for (let power = low; power <= high; power += step) {
            const value = 10 ** power;
            ticks.push([value, duration(value).replace(/\.0+ /, ' ')]);
        }
        const latest = lines.map((points, index) => {
            return `${SHARES[index]} ${duration(points.at(-1)?.[1])}`;
        });
        const text = `Latency over the last 3 minutes, latest: ${latest.join(', ')}.`;
        const place = (value) => (magnitude(value) - low) / (high - low);
        this.#latencies.draw(lines, ticks, place, text);
    }

    /** Returns the first of these, and says how many there are if that isn't all. */
    #some(name, items, most) {
        const isCut = items.length > most;
        say(this.#counts[name], isCut ? ` ${most} of ${count(items.length)}` : '');
        return items.slice(0, most);
    }
}

