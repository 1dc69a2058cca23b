// The tables of the pool.

function numbers(names, width) {
    return names.map((name) => ({ name, is: 'number', width }));
}

function stepsTable() {
    const shares = ['p50', 'p95', 'p99', 'max'];
    return new Table({
        label: 'Durations of the steps of jobs',
        kind: 'steps',
        columns: [{ name: 'step' }, ...numbers(['jobs', ...shares])],
        none: '',
        key: ({ step }) => step,
        texts: (step) => {
            const times = shares.map((name) =>
                step.count > 0 ? duration(step[`${name}_seconds`]) : '–',
            );
            return [step.step, count(step.count), ...times];
        },
    });
}

function tenantsTable() {
    return new Table({
        label: 'Jobs by tenant and priority',
        kind: 'tenants',
        columns: [
            { name: 'tenant' },
            ...numbers(['weight', 'running', ...PRIORITIES], '5em'),
            { name: 'waiting', width: '18%' },
        ],
        none: 'No job waits or runs.',
        key: ({ tenant }) => tenant,
        make: () => {
            const parts = PRIORITIES.map((name) => h('span', { class: name }));
            return { contents: { waiting: [h('span', { class: 'bar' }, ...parts)] }, parts };
        },
        texts: ({ tenant, weight, running, depths }) => {
            const figures = [weight, running, ...PRIORITIES.map((name) => depths[name])];
            return [short(tenant, 60), ...figures.map(count), null];
        },
        update: ({ depths, deepest }, { parts }) => {
            PRIORITIES.forEach((name, index) => {
                parts[index].style.width = share(depths[name], deepest);
            });
        },
    });
}

/** `interrupt` is given a job, `retire` a worker. */
function workersTable({ interrupt, retire }) {
    return new Table({
        label: 'Workers',
        kind: 'cards',
        columns: [
            { name: 'worker', width: '4.5em' },
            { name: 'python', width: '5em' },
            { name: 'state', width: '7em' },
            ...numbers(['for'], '6.8em'),
            ...numbers(['job'], '5.2em'),
            { name: 'session' },
            ...numbers(['age'], '7em'),
            ...numbers(['resident'], '6.5em'),
            ...numbers(['served'], '5.5em'),
            { name: 'last failure' },
            { name: 'actions', is: 'buttons', width: '11.5em' },
        ],
        none: 'There are no workers.',
        key: ({ worker }) => worker,
        make: ({ worker }) => {
            const made = { job: null };
            made.interrupt = button(
                'Interrupt',
                { 'aria-label': `Interrupt the job of worker ${worker}` },
                () => interrupt(made.job),
            );
            made.retire = button('Retire', { 'aria-label': `Retire worker ${worker}` }, () =>
                retire(worker),
            );
            return { ...made, made, contents: { actions: [made.interrupt, made.retire] } };
        },
        texts: (worker) => [
            String(worker.worker),
            short(worker.python ?? 'default', 60),
            worker.activity.replaceAll('_', ' '),
            duration(worker.since_seconds),
            worker.job == null ? '–' : String(worker.job),
            worker.session == null ? '–' : short(worker.name ?? `number ${worker.session}`, 60),
            age(worker.age_seconds),
            bytes(worker.process_private_bytes ?? worker.memory_bytes),
            count(worker.jobs_served),
            worker.last_error == null ? '–' : short(worker.last_error, 120),
            null,
        ],
        update: ({ activity, job, may }, { made }, row) => {
            row.className = activity;
            made.job = job;
            made.interrupt.disabled = !may.interrupt || job == null;
            made.retire.disabled = !may.retire;
        },
    });
}

function errorsTable() {
    const clock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
    return new Table({
        label: 'Last errors',
        kind: 'cards',
        columns: [
            { name: 'time', width: '5.5em' },
            ...numbers(['job', 'worker'], '4.8em'),
            { name: 'tenant', width: '9%' },
            { name: 'session', width: '13%' },
            { name: 'session rests', width: '13%' },
            { name: 'error', is: 'wide' },
        ],
        none: 'No program has failed.',
        // An error has no number; its time is rounded, so it may seem to change.
        key: ({ kind, job, worker, at }) => [kind, worker, job ?? `at ${at}`].join(' '),
        make: ({ age_seconds: ago, kind, text, traceback }) => {
            const said = kind === 'sandbox' ? `sandbox: ${short(text)}` : short(text);
            const error = traceback
                ? h('details', {}, h('summary', {}, said), h('pre', {}, visible(traceback)))
                : said;
            return { time: clock.format(Date.now() - ago * 1000), contents: { error: [error] } };
        },
        texts: (error, { time }) => [
            time,
            error.job == null ? '–' : String(error.job),
            error.worker == null ? '–' : String(error.worker),
            error.tenant == null ? '–' : short(error.tenant, 60),
            error.session == null ? '–' : short(error.rests?.name ?? `number ${error.session}`, 60),
            error.session == null ? '–' : error.rests ? placeOf(error.rests.place) : 'closed',
            null,
        ],
        update: ({ kind }, _, row) => {
            row.className = kind;
        },
    });
}

function treesTable() {
    return new Table({
        label: 'Trees of forks',
        kind: 'trees',
        columns: [
            { name: 'forks of', width: '25%' },
            ...numbers(['forks', 'parents', 'depth'], '6em'),
            { name: 'forks by depth' },
        ],
        none: '',
        key: ({ root }) => root,
        texts: ({ root, forks, parents, depth, levels }) => [
            short(root, 60),
            count(forks),
            count(parents),
            count(depth),
            [...levels.map(count), ...(depth > levels.length ? ['…'] : [])].join(' › '),
        ],
    });
}

function sessionsTable() {
    return new Table({
        label: 'Sessions',
        kind: 'sessions',
        columns: [
            { name: 'session' },
            { name: 'python', width: '5em' },
            { name: 'fork of' },
            { name: 'rests' },
            ...numbers(['waiting'], '5.5em'),
        ],
        none: 'No session is open.',
        key: ({ name }) => name,
        texts: ({ name, python, fork, parent, place, queue_depth: depth }) => [
            short(name, 60),
            short(python ?? 'default', 60),
            fork ? short(parent ?? `number ${fork.parent}`, 60) : '–',
            placeOf(place),
            count(depth),
        ],
    });
}

