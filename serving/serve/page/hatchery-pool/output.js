// The output of a program.

/** Most characters of an output, of one of its lines, and of a value or a traceback. */
const MOST_OUTPUT = 100_000;
const MOST_LINE = 2_000;
const MOST_LAST = 20_000;
/** Most pieces of text, figures and tables. */
const MOST_PARTS = 200;

/** Shows what a program writes, as text, and its figures and tables. */
class Output {
    #body;
    #length = 0;
    #column = 0;
    #skipped = 0;
    #droppedCharacters = 0;
    #droppedFigures = 0;
    #parts = 0;
    /** The text that is being written. */
    #text = null;

    constructor() {
        // The style keeps it at its end, which takes no measuring here.
        this.#body = h('div');
        this.element = h(
            'div',
            { class: 'output', tabindex: 0, role: 'log', 'aria-label': 'Output of the program' },
            this.#body,
        );
        this.more = h('p', { class: 'more', 'aria-live': 'polite' });
    }

    clear() {
        this.#body.replaceChildren();
        say(this.more, '');
        this.#length = this.#column = this.#skipped = this.#parts = 0;
        this.#droppedCharacters = this.#droppedFigures = 0;
        this.#text = null;
    }

    get isEmpty() {
        return !this.#body.hasChildNodes();
    }

    /** Appends what the program writes to `stdout` or `stderr`. */
    write(kind, text) {
        const shown = visible(this.#clipped(text));
        const room = Math.max(0, MOST_OUTPUT - this.#length);
        if (shown.length > room) this.#drop(shown.length - room);
        if (room === 0) return;
        this.#length += shown.length;
        this.#append(kind, shown.slice(0, room));
    }

    /** Appends what the program ended with, for which there is always room. */
    tell(kind, text) {
        this.end();
        const cut = text.length > MOST_LAST ? `${text.slice(0, MOST_LAST)}…` : text;
        this.#append(kind, visible(cut.endsWith('\n') ? cut : `${cut}\n`), true);
    }

    /** Shows something in the best of its forms; there is room for it if it `isLast`. */
    show(bundle, isLast = false) {
        this.end();
        const made = picture(bundle) ?? table(bundle['text/html']);
        if (made) {
            if (this.#isFull() && !isLast) return this.#drop(0, 1);
            this.#text = null;
            this.#body.append(made);
            return;
        }
        const text =
            bundle['text/plain'] ?? `(something of the type ${Object.keys(bundle).join(', ')})`;
        if (isLast) this.tell('value', text);
        else this.write('value', `${text}\n`);
    }

    /** Ends the last line, so that something else can follow. */
    end() {
        if (this.#column > 0) this.write(this.#text?.kind ?? 'stdout', '\n');
    }

    #append(kind, text, isLast = false) {
        if (this.#text?.kind !== kind) {
            if (this.#isFull() && !isLast) return this.#drop(text.length);
            const node = document.createTextNode('');
            this.#body.append(h('pre', { class: kind }, node));
            this.#text = { kind, node };
        }
        this.#text.node.appendData(text);
    }

    #isFull() {
        this.#parts += 1;
        return this.#parts > MOST_PARTS;
    }

    #drop(characters, figures = 0) {
        this.#droppedCharacters += characters;
        this.#droppedFigures += figures;
        const parts = [];
        if (this.#droppedCharacters > 0)
            parts.push(counted(this.#droppedCharacters, 'more character'));
        if (this.#droppedFigures > 0) parts.push(counted(this.#droppedFigures, 'more figure'));
        say(this.more, `Not shown: ${parts.join(' and ')}.`);
    }

    /** Cuts long lines. */
    #clipped(text) {
        return text
            .split('\n')
            .map((line, index) => {
                let end = '';
                if (index > 0) {
                    end = this.#skipped > 0 ? ` … ${counted(this.#skipped, 'more character')}\n` : '\n';
                    this.#column = this.#skipped = 0;
                }
                const kept = line.slice(0, Math.max(0, MOST_LINE - this.#column));
                this.#column += line.length;
                this.#skipped += line.length - kept.length;
                return end + kept;
            })
            .join('');
    }
}

/** Says how a program ended, and what it used, in parts. */
function howEnded(outcome, usage) {
    const { status, exit_code: code, exception, error, message, truncated } = outcome;
    const how = status === 'exited' ? `exited with ${code}` : short(status).replaceAll('_', ' ');
    const parts = [how, duration(usage.wall_ms / 1000), `peak ${bytes(usage.peak_memory_bytes)}`];
    const why = exception ? '' : (error?.message ?? message);
    if (why) parts.push(short(why));
    if (truncated) parts.push('some output was dropped');
    return parts;
}

