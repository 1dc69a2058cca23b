// The box to run programs in.

const EXAMPLE = `import numpy as np

for size in (10, 1_000, 100_000):
    print(f"{size:>7}  {np.random.default_rng(7).normal(size=size).mean():+.4f}")
`;

class Runner {
    #server;
    #signal;
    #tell;
    /** Ends the program that runs. */
    #running = null;
    #output = new Output();
    #program = h('textarea', {
        'aria-label': 'Program',
        spellcheck: 'false',
        autocapitalize: 'off',
        autocomplete: 'off',
        rows: 12,
    });
    #session = h(
        'select',
        { 'aria-label': 'Where the program runs' },
        h('option', { value: '' }, 'fresh interpreter'),
    );
    #run = button(
        'Run',
        { class: 'main', title: 'Ctrl+Enter', 'aria-keyshortcuts': 'Control+Enter' },
        () => this.#start(),
    );
    #stop = button('Stop', { disabled: true }, () => this.#running?.abort());
    #state = h('p', { class: 'state', role: 'status' }, 'Ctrl+Enter runs the program.');

    /** `signal` returns what ends when the component is taken away; `tell` is called at each change. */
    constructor(server, signal, tell) {
        this.#server = server;
        this.#signal = signal;
        this.#tell = tell;
        this.#program.value = EXAMPLE;
        this.#program.addEventListener('keydown', (event) => {
            if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
                event.preventDefault();
                this.#start();
            }
        });
        const controls = h('div', { class: 'controls' }, this.#run, this.#stop, this.#session);
        this.element = panel(
            'Run a program',
            { class: 'runner' },
            h('div', { class: 'editor' }, this.#program, controls),
            h('div', { class: 'result' }, this.#output.element, this.#output.more, this.#state),
        ).element;
    }

    /** Offers these sessions to run in. */
    offer(names) {
        const options = this.#session.options;
        const before = [...options].slice(1).map((option) => option.value);
        if (before.length === names.length && before.every((name, index) => name === names[index]))
            return;
        const chosen = this.#session.value;
        const made = names.map((name) =>
            h('option', { value: name }, `session ${short(name, 40)}`),
        );
        this.#session.replaceChildren(options[0], ...made);
        this.#session.value = names.includes(chosen) ? chosen : '';
    }

    end() {
        this.#running?.abort();
    }

    async #start() {
        if (this.#running) return;
        const running = new AbortController();
        this.#running = running;
        this.#run.disabled = true;
        this.#stop.disabled = false;
        this.#output.clear();
        this.#say('waits for a worker', 'busy');
        try {
            await this.#follow(AbortSignal.any([running.signal, this.#signal()]));
        } catch (error) {
            this.#output.end();
            if (running.signal.aborted) this.#say('stopped; the job is cancelled', 'bad');
            else this.#say(error instanceof Problem ? error.message : short(error), 'bad');
        } finally {
            this.#running = null;
            this.#run.disabled = false;
            this.#stop.disabled = true;
            this.#tell();
        }
    }

    async #follow(signal) {
        const session = this.#session.value;
        const path = session ? `v1/run?session=${encodeURIComponent(session)}` : 'v1/run';
        const body = { code: this.#program.value };
        let job = '';
        for await (const { name, data } of this.#server.events(path, {
            method: 'POST',
            body,
            signal,
        })) {
            if (name === 'admitted') {
                job = `job ${data.job}`;
                this.#say(`${job} waits for a worker`, 'busy');
                this.#tell();
            } else if (name === 'started') this.#say(`${job} runs`, 'busy');
            else if (name === 'retried') this.#output.clear();
            else if (name === 'output') this.#output.write(data.stream, data.text);
            else if (name === 'display') this.#output.show(data.bundle);
            else if (name === 'outcome') return this.#ended(job, data);
        }
        throw new Problem('the server ended before the job did');
    }

    #ended(job, outcome) {
        this.#output.end();
        const forms = { 'text/plain': outcome.repr, ...outcome.bundle };
        if (outcome.repr) this.#output.show(forms, true);
        if (outcome.exception) this.#output.tell('error', outcome.exception);
        const [how, ...parts] = howEnded(outcome, outcome.usage);
        this.#say([`${job} ${how}`, ...parts].join(' · '), outcome.success ? 'good' : 'bad');
    }

    #say(text, how) {
        say(this.#state, sentence(text));
        this.#state.className = `state ${how}`;
    }
}

