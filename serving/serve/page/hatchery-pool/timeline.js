// A recording as a timeline of its turns, with their outputs and figures.

/** Most turns that are listed, and how many more each time. */
const MOST_TURNS = 20_000;
const MORE_TURNS = 200;
/** Most of the calls of host functions, of files, and characters of one of them or of an input. */
const MOST_CALLS = 100;
const MOST_INPUT = 2_000;
/** Most bytes of an output that are read. */
const MOST_READ = 16 * 2 ** 20;
/** What a cell shows beside text and figures, for front ends. */
const OWN_FORM = 'application/vnd.hatchery.notebook+json';
/** The inputs of a turn beside its program. */
const INPUTS = ['name', 'call', 'variables', 'args', 'env', 'stdin_function', 'workdir'];

const json = (value) => short(JSON.stringify(value) ?? '', MOST_INPUT);
const listOf = (value) => (Array.isArray(value) ? value : []);
const fieldsOf = (value) => (value !== null && typeof value === 'object' ? value : {});
const stringOf = (value) => (typeof value === 'string' ? value : '');
const secondsOf = (ms) => (Number.isFinite(ms) && ms > 0 ? ms / 1000 : 0);

/** Opens a recording of this machine and shows it. Nothing of it is sent to the server. */
class Timeline {
    #input = h('input', { type: 'file', 'aria-label': 'File of a recording' });
    #close = button('Close recording', { hidden: true }, () => this.end());
    #about = h('p', { class: 'about', role: 'status' });
    #list = h('ol', { class: 'turns', 'aria-label': 'Turns of the recording' });
    #more = button('Show more turns', { hidden: true }, () => {
        this.#append(this.#rows.length + MORE_TURNS);
    });
    #reader = null;
    #header = {};
    #turns = [];
    /** How many turns the file has, which may be more than are listed, and the time that they took. */
    #count = 0;
    #seconds = 0;
    #rows = [];

    constructor() {
        this.#input.addEventListener('change', () => this.#open(this.#input.files[0]));
        this.element = panel(
            'Recording',
            { class: 'recording' },
            h('div', { class: 'controls' }, this.#input, this.#close),
            this.#about,
            this.#list,
            this.#more,
        ).element;
        this.end();
    }

    /** Closes the recording, and forgets what was read. */
    end() {
        this.#reader = null;
        this.#input.value = '';
        this.#clear();
        this.#close.hidden = true;
        say(this.#about, 'A file of --record. It is read in this browser and not sent anywhere.');
    }

    #clear() {
        [this.#header, this.#turns, this.#rows] = [{}, [], []];
        this.#count = this.#seconds = 0;
        this.#list.replaceChildren();
        this.#more.hidden = true;
    }

    async #open(file) {
        if (!file) return;
        const reader = new RecordReader(file);
        this.#reader = reader;
        this.#clear();
        this.#close.hidden = false;
        say(this.#about, 'Reading.');
        let how;
        try {
            how = await this.#read(reader);
        } catch (error) {
            how = error instanceof Unreadable ? error.message : `It can’t be read: ${short(error)}`;
        }
        if (this.#reader === reader) this.#tell(how ?? '');
    }

    /** Reads all records. Returns how the file ended; nothing once another file is open. */
    async #read(reader) {
        let last = null;
        let said = performance.now();
        for (let record; (record = await reader.next()); last = record.head.type) {
            if (this.#reader !== reader) return null;
            this.#take(record);
            if (performance.now() - said < 200) continue;
            // Lets the page be drawn while a large file is read.
            this.#tell(`Reading, ${(100 * reader.progress).toFixed(0)} %.`);
            await new Promise((resolve) => setTimeout(resolve));
            said = performance.now();
        }
        if (this.#reader !== reader) return null;
        if (last === null) throw new Unreadable('The file is empty.');
        const end = last === 'end' ? '' : 'It was cut off after its last whole record.';
        const unchecked = 'Its seals aren’t checked here; `hatchery replay` does.';
        return `${end} ${reader.isChecked ? 'Its seals are right.' : unchecked}`.trim();
    }

    #take({ head, blobs, at, length }) {
        const isFirst = this.#header.type === undefined;
        if (isFirst && head.type !== 'recording') throw new Unreadable('This isn’t a recording.');
        if (isFirst && head.format !== FORMAT)
            throw new Unreadable(`Its format is ${json(head.format)}, and this page shows ${FORMAT}.`);
        if (isFirst) this.#header = head;
        if (head.type === 'state') {
            const turn = this.#turns[head.after - 1];
            if (turn) turn.state = stringOf(head.reason);
        }
        if (head.type !== 'turn' && head.type !== 'sample') return;
        this.#count += 1;
        if (this.#turns.length >= MOST_TURNS) return;
        const outcome = fieldsOf(head.outcome);
        const begin = this.#seconds;
        const seconds = secondsOf(head.measured?.usage?.wall_ms);
        this.#seconds += seconds;
        const isSample = head.type === 'sample';
        const status = isSample ? fieldsOf(head.verdict).verdict : outcome.status;
        const isGood = isSample ? status === 'passed' : outcome.success === true;
        const title = isSample ? json(fieldsOf(head.task).task_id) : firstLine(head.program);
        const how = stringOf(status).replaceAll('_', ' ');
        this.#turns.push({ at, length, blobs, begin, seconds, isGood, title, how: short(how, 40) });
    }

    #tell(text) {
        const { kind, session, hatchery, machine, seed } = this.#header;
        const parts = [];
        if (kind) {
            const name = session ? `session ${short(session, 60)}` : short(kind, 20);
            const turns = counted(this.#count, kind === 'session' ? 'turn' : 'run');
            parts.push(`${sentence(name)}, ${turns}, ${duration(this.#seconds)}.`);
            parts.push(`Hatchery ${short(hatchery, 20)}, ${short(machine, 30)}, seed ${json(seed)}.`);
        }
        if (this.#count > this.#turns.length)
            parts.push(`Only the first ${count(this.#turns.length)} are listed.`);
        say(this.#about, [...parts, text].join(' '));
        this.#append(Math.max(MORE_TURNS, this.#rows.length));
    }

    /** Lists turns up to this number. */
    #append(end) {
        const begin = this.#rows.length;
        const added = this.#turns.slice(begin, end);
        const made = added.map((turn, index) => this.#row(turn, begin + index + 1));
        this.#rows.push(...made);
        this.#list.append(...made.map(({ element }) => element));
        this.#lay();
    }

    /** Places the bars of the turns, which depend on how long all took. */
    #lay() {
        this.#more.hidden = this.#rows.length >= this.#turns.length;
        const rest = this.#turns.length - this.#rows.length;
        say(this.#more, `Show ${count(Math.min(rest, MORE_TURNS))} more of ${count(rest)}`);
        for (const { turn, bar } of this.#rows) {
            bar.style.marginLeft = share(98e6 * turn.begin, 100e6 * this.#seconds);
            bar.style.width = share(98e6 * turn.seconds, 100e6 * this.#seconds);
        }
    }

    #row(turn, number) {
        const bar = h('span');
        const title = h('code', {}, turn.title);
        const how = h('span', { class: turn.isGood ? 'good' : 'bad' }, turn.how);
        const summary = h(
            'summary',
            {},
            h('span', { class: 'number' }, String(number)),
            title,
            h('span', { class: 'bar', title: `at ${duration(turn.begin)}` }, bar),
            h('span', { class: 'number' }, duration(turn.seconds)),
            how,
        );
        const details = h('details', {}, summary);
        const body = h('div', { class: 'turn' });
        const reader = this.#reader;
        details.addEventListener('toggle', async () => {
            body.remove();
            if (!details.open) return;
            try {
                body.replaceChildren(...(await partsOf(reader, turn)));
            } catch (error) {
                body.replaceChildren(h('p', { class: 'bad' }, short(error)));
            }
            if (details.open) details.append(body);
        });
        return { element: h('li', {}, details), turn, bar };
    }
}

/** Returns the source of a program. That of a cell is an argument of a call of Hatchery's own code. */
function sourceOf(program) {
    const { code, call } = fieldsOf(program);
    const { module, args } = fieldsOf(call);
    return stringOf(/^hatchery_/.test(module) ? fieldsOf(listOf(args)[0]).json : code);
}

function firstLine(program) {
    const line = /\S.*/.exec(sourceOf(program).slice(0, 10_000))?.[0];
    const { module, function: name } = fieldsOf(fieldsOf(program).call);
    return short(line ?? (name ? `${stringOf(module)}.${stringOf(name)}()` : ''), 120);
}

/** Returns the elements of a turn, or of a sample. */
async function partsOf(reader, turn) {
    const head = await reader.head(turn);
    if (head.type === 'sample') {
        const parts = ['verdict', 'sample', 'task', 'settings'].map((name) => [name, head[name]]);
        return parts.map(([name, value]) => textOf(name, JSON.stringify(value, null, 2) ?? ''));
    }
    const blob = (number) => {
        return (Number.isSafeInteger(number) && turn.blobs[number]) || { at: 0, length: 0 };
    };
    const [program, outcome] = [fieldsOf(head.program), fieldsOf(head.outcome)];
    const facts = INPUTS.filter((name) => program[name] != null).map((name) => {
        return [name.replaceAll('_', ' '), json(program[name])];
    });
    if (program.stdin !== undefined) {
        const text = await reader.text(blob(program.stdin), 4 * MOST_INPUT);
        facts.push(['stdin', short(text, MOST_INPUT)]);
    }
    for (const [path, number] of Object.entries(fieldsOf(program.files)).slice(0, MOST_CALLS))
        facts.push(['file', `${short(path)} (${bytes(blob(number).length)})`]);
    facts.push(...callsOf(head.host_calls));
    for (const { path, change, contents } of listOf(outcome.files).slice(0, MOST_CALLS))
        facts.push([short(change, 20), `${short(path)} (${bytes(blob(contents).length)})`]);
    const { peak_memory_bytes } = fieldsOf(head.measured?.usage);
    const usage = { wall_ms: turn.seconds * 1000, peak_memory_bytes };
    facts.push(['ended', howEnded(outcome, usage).join(' · ')]);
    if (outcome.interrupted_at) facts.push(['interrupted', short(outcome.interrupted_at)]);
    if (head.taken) facts.push(['can’t be repeated', short(head.taken, 60)]);
    if (turn.state) facts.push(['state kept', short(turn.state, 60)]);
    const shown = facts.flatMap(([name, text]) => [h('dt', {}, name), h('dd', {}, text)]);
    const output = await outputOf(reader, outcome, blob);
    return [textOf('Program', sourceOf(program)), ...output, h('dl', {}, ...shown)];
}

/** Returns what a turn wrote and showed. A recording doesn't say what of it came first. */
async function outputOf(reader, outcome, blob) {
    const output = new Output();
    for (const stream of ['stdout', 'stderr']) {
        const written = blob(outcome[stream]);
        if (written.length > 0) output.write(stream, await reader.text(written, MOST_READ));
        output.end();
        const rest = written.length - MOST_READ;
        if (rest > 0) output.tell(stream, `… ${bytes(rest)} more aren’t read here`);
    }
    for (const bundle of listOf(outcome.displays)) {
        const forms = formsOf(bundle);
        if (Object.keys(forms).length > 0) output.show(forms);
    }
    if (outcome.repr) output.show(formsOf({ 'text/plain': outcome.repr, ...outcome.bundle }), true);
    if (outcome.exception) output.tell('error', stringOf(outcome.exception));
    if (output.isEmpty) return [];
    return [output.element, output.more];
}

/** Returns the forms of something shown, each as text. */
function formsOf(bundle) {
    const forms = Object.entries(fieldsOf(bundle)).filter(([type]) => type !== OWN_FORM);
    const text = (form) => (typeof form === 'string' ? form : JSON.stringify(form));
    return Object.fromEntries(forms.map(([type, form]) => [type, text(form)]));
}

function callsOf(recording) {
    const { calls, network } = fieldsOf(recording);
    const [called, exchanged] = [listOf(calls), listOf(fieldsOf(network).exchanges)];
    const facts = called.slice(0, MOST_CALLS).map((call) => {
        const { name, arguments: given, answer } = fieldsOf(call);
        const { returned, raised } = fieldsOf(answer);
        const error = listOf(raised).map((part) => short(part));
        const how = raised ? `raised ${error.join(': ')}` : answer ? json(returned) : 'no answer';
        return ['host call', `${short(name, 60)}(${json(given)}) → ${how}`];
    });
    const room = MOST_CALLS - facts.length;
    facts.push(...exchanged.slice(0, room).map((exchange) => ['network', json(exchange)]));
    const rest = called.length + exchanged.length - facts.length;
    if (rest > 0) facts.push(['not shown', counted(rest, 'more call')]);
    return facts;
}

function textOf(label, text) {
    const cut = text.length > MOST_LAST ? `${text.slice(0, MOST_LAST)}…` : text;
    return h('pre', { class: 'code', role: 'group', 'aria-label': label, tabindex: 0 }, visible(cut));
}

