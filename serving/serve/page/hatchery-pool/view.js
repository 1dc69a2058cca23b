// What is seen of a pool.

/** Most rows in the lists of the pool. */
const MOST_TENANTS = 12;
const MOST_WORKERS = 200;
const MOST_SESSIONS = 50;

const SHARES = ['p50', 'p95', 'p99'];

class View {
    /** Shows a recording, for which no server is needed. */
    timeline = new Timeline();
    #isSmall;
    #phase = h('span', { class: 'phase', role: 'status' }, 'connecting');
    #about = h('span', { class: 'about' });
    #notice = h('p', { class: 'notice', role: 'status' });
    #who = h('span', { class: 'who' });
    #forget;
    #reset;
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
    #trees = treesTable();
    #forks = panel('Forks', { hidden: true }, this.#trees.element);
    #sessions = sessionsTable();
    #cluster = new ClusterView();
    #list;
    #packages = h('ul', { class: 'packages', tabindex: 0, 'aria-label': 'Packages' });
    /** The packages that are listed. */
    #listed = null;
    /** The counts beside the titles of lists. */
    #counts = {};
    /** What only an administrator sees. */
    #ofAll = [];

    /**
     * `actions` are `enter`, `forget`, `list`, `reset`, `drain`, `interrupt` and `retire`. The small
     * form has one panel, and no actions.
     */
    constructor(runner, actions, isSmall) {
        this.runner = runner;
        this.#isSmall = isSmall;
        this.#workers = workersTable(actions);
        this.#forget = button('Forget token', { class: 'quiet' }, actions.forget);
        this.#dialog = this.#question(actions.drain);
        const ask = () => this.#dialog.showModal();
        this.#list = button('List packages', { 'aria-expanded': 'false' }, actions.list);
        const why = { 'aria-describedby': 'why' };
        this.#reset = button('Reset statistics', why, actions.reset);
        this.#drain = button('Drain…', { class: 'danger', 'aria-describedby': 'why' }, ask);
        this.#gate = this.#entrance(actions.enter);
        const figures = this.#overview();
        const about = [h('h1', {}, 'Hatchery'), this.#phase, this.#about];
        if (isSmall) {
            const head = h('header', {}, ...about);
            this.#pool = h('section', { class: 'small', 'aria-label': 'Hatchery' }, head, figures);
            this.elements = [this.#pool];
            return;
        }
        const actors = [this.#who, this.#forget, this.#reset, this.#drain];
        const buttons = h('div', { class: 'actions' }, ...actors);
        const head = h('header', {}, ...about, this.#notice, buttons);
        this.#pool = h('div', { class: 'pool' }, this.#why, figures, ...this.#panels());
        this.elements = [head, this.#gate, this.#pool, this.#dialog];
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

    /** Lets a token be typed. */
    focus() {
        this.#gate.querySelector('input').focus();
    }

    /** Closes the question and the recording that may be open. */
    close() {
        this.timeline.end();
        if (this.#dialog.open) this.#dialog.close();
    }

    show(seen) {
        const { access, status, problem, packages, history, hasToken, canRetire } = seen;
        const { state, message, cluster } = seen;
        const isAdministrator = access === 'administrator' && status !== null;
        const unknown = access === 'refused' ? 'locked' : 'connecting';
        say(this.#phase, problem ? 'no connection' : (status?.phase ?? unknown));
        // A program that fails is nothing wrong with the pool.
        const how = state === 'error' && !problem ? 'idle' : state;
        this.#phase.className = `phase ${status?.phase === 'draining' ? 'draining' : how}`;
        this.#phase.title = message;
        const parts = [];
        if (status?.uptime_seconds !== undefined) parts.push(`up ${age(status.uptime_seconds)}`);
        if (status) parts.push(`version ${status.version}`);
        say(this.#about, parts.join(' · '));
        const tenant = access === 'tenant' ? `tenant ${short(status?.tenant, 40)}` : '';
        say(this.#who, isAdministrator ? 'administrator' : tenant);
        this.#forget.hidden = !hasToken;
        this.#reset.hidden = this.#drain.hidden = access === 'refused';
        this.#reset.disabled = !isAdministrator;
        this.#drain.disabled = !isAdministrator || status.phase !== 'open';
        this.#gate.hidden = access !== 'refused';
        this.#pool.hidden = access === 'refused';
        // What was seen last is old while the server is gone.
        this.#pool.classList.toggle('stale', Boolean(problem));
        this.#why.classList.toggle('problem', Boolean(problem));
        say(this.#why, problem ? `${sentence(problem)}; trying again.` : whyNot(access, status));
        this.#showPackages(packages);
        if (!status) return;

        const isAll = status.tenant === undefined;
        for (const element of this.#ofAll) element.hidden = !isAll;
        this.#showFigures(status, isAll);
        if (this.#isSmall) return;
        this.#showSessions(status.sessions);
        this.#cluster.show(isAll ? cluster : null);
        const trees = status.trees ?? [];
        this.#forks.element.hidden = trees.length === 0;
        this.#trees.show(trees);
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
        const close = () => this.#dialog.close();
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
        steps.extra.append('since the start or the last reset');
        const workers = panel('Workers', {}, this.#workers.element);
        const errors = panel('Last errors', {}, this.#errors.element);
        const sessions = panel('Sessions', half, this.#sessions.element);
        const packages = panel('Packages', half, this.#list, this.#packages);
        this.#counts = {
            tenants: queue.extra.appendChild(h('span')),
            workers: workers.extra,
            sessions: sessions.extra,
            packages: packages.extra,
        };
        const elements = (panels) => panels.map(({ element }) => element);
        this.#ofAll.push(...elements([rates, latencies, queue, steps, workers, errors]));
        const upper = elements([rates, latencies, queue, steps]);
        const lower = elements([workers, errors, this.#forks, sessions, packages]);
        const own = [this.runner.element, this.timeline.element];
        return [...upper, ...own, ...this.#cluster.elements, ...lower];
    }

    // -- What they show --

    #showPackages(packages) {
        if (packages === this.#listed) return;
        this.#listed = packages;
        say(this.#list, packages ? 'Hide packages' : 'List packages');
        this.#list.ariaExpanded = String(packages !== null);
        const told = packages ? `${count(packages.length)}, with the standard library` : '';
        say(this.#counts.packages, told);
        const items = (packages ?? []).map(({ name, version }) => {
            return h('li', {}, short(name, 60), ' ', h('span', {}, short(version, 30)));
        });
        this.#packages.replaceChildren(...items);
    }

    #showSessions(all) {
        const sessions = this.#some('sessions', all, MOST_SESSIONS);
        const names = new Map(all.map(({ session, name }) => [session, name]));
        const parent = ({ fork }) => names.get(fork?.parent);
        this.#sessions.show(sessions.map((session) => ({ ...session, parent: parent(session) })));
        this.runner.offer(sessions.map(({ name }) => name));
    }

    #showFigures(status, isAll) {
        const { Running, Waiting, Memory, Sessions, ...others } = this.#figures;
        say(Running.value, count(status.running));
        say(Waiting.value, count(waiting(status)));
        say(Sessions.value, count(status.sessions.length));
        if (!isAll) return;
        const { memory, places, totals } = status;
        const rates = others['Jobs a second'];
        const badly = totals.failed + totals.limited + totals.sandbox_failed;
        say(rates.value, rate(status.jobs_per_second));
        say(rates.detail, `${count(doneOf(totals))} ended, ${count(badly)} failed`);
        say(Running.detail, `on ${counted(status.workers.length, 'worker')}`);
        const oldest = status.oldest_wait_seconds;
        say(Waiting.detail, oldest === null ? 'none' : `the oldest for ${duration(oldest)}`);
        const used = usedOf(memory);
        say(Memory.value, bytes(used));
        say(Memory.detail, `reserved of ${bytes(memory.limit_bytes)}`);
        this.#memory.style.width = share(used, memory.limit_bytes);
        say(Sessions.detail, placesOf(places));
    }

    #showAll(status) {
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

