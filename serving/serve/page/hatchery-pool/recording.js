// The file of a recording, which is read here and goes nowhere. docs/recordings.md has the format.

/** Most bytes of the line of a record, of a whole record, and of a part of the file in memory. */
const MOST_HEAD = 64 * 2 ** 20;
const MOST_RECORD = 256 * 2 ** 20;
const WINDOW = 2 ** 20;
/** A line end, 64 hexadecimal digits and a line end. */
const SEAL_END = 66;
const SEAL_FORM = /^\n[0-9a-f]{64}\n$/;
/** The version of the format that this page shows. */
const FORMAT = 1;

/** Why a recording can't be read any further. */
class Unreadable extends Error {}

/** Reads records one after another, and checks their seals where the browser can. */
class RecordReader {
    #file;
    #at = 0;
    #seal = '0'.repeat(64);
    #window = { at: 0, bytes: new Uint8Array() };
    /** Whether every seal so far was computed, too. Browsers do that for local and secure pages. */
    isChecked = Boolean(globalThis.crypto?.subtle);

    constructor(file) {
        this.#file = file;
    }

    /** The share of the file that was read. */
    get progress() {
        return this.#at / Math.max(1, this.#file.size);
    }

    /** Returns the next record with the places of its line and its blobs; `null` at the end. */
    async next() {
        const at = this.#at;
        if (at === this.#file.size) return null;
        const line = await this.#line(at);
        const damaged = (why) => {
            const place = at === 0 ? '' : ` What stands before is unchanged.`;
            return new Unreadable(`The file is damaged from byte ${count(at)} on: ${why}.${place}`);
        };
        if (!line) throw await this.#cut(at, damaged('a line has no end'));
        const head = objectOf(line);
        if (!head) throw damaged('a line isn’t a JSON object');
        const lengths = head.blobs ?? [];
        const isLength = (length) => Number.isSafeInteger(length) && length >= 0;
        if (!Array.isArray(lengths) || !lengths.every(isLength))
            throw damaged('blobs have no lengths');
        let end = at + line.length;
        const blobs = lengths.map((length) => {
            end += length;
            return { at: end - length, length };
        });
        if (end + SEAL_END > this.#file.size)
            throw await this.#cut(at, damaged('blobs are longer than the file'));
        const seal = asciiOf(await this.#bytes(end, SEAL_END));
        if (!SEAL_FORM.test(seal) || !(await this.#fits(at, end + 1, seal.slice(1, -1))))
            throw damaged('a seal doesn’t match');
        this.#seal = seal.slice(1, -1);
        this.#at = end + SEAL_END;
        return { head, blobs, at, length: line.length };
    }

    /** Reads the line of a record again. */
    async head({ at, length }) {
        return objectOf(await this.#bytes(at, length)) ?? {};
    }

    /** Returns the text at the beginning of a blob. */
    async text(blob, most) {
        const bytes = await this.#bytes(blob.at, Math.min(blob.length, most));
        return new TextDecoder().decode(bytes);
    }

    async #line(at) {
        const rest = this.#file.size - at;
        for (let length = 4096; ; length *= 8) {
            const bytes = await this.#bytes(at, Math.min(length, rest));
            const end = bytes.indexOf(10);
            if (end >= 0) return bytes.subarray(0, end + 1);
            if (length >= rest) return null;
            if (length >= MOST_HEAD) throw new Unreadable('A record is too large for this page.');
        }
    }

    /** Returns that the file was cut, unless it ends as a whole record does. */
    async #cut(at, damaged) {
        const from = Math.max(0, this.#file.size - SEAL_END);
        if (SEAL_FORM.test(asciiOf(await this.#bytes(from, this.#file.size - from)))) return damaged;
        return new Unreadable(`The file was cut off within the record at byte ${count(at)}.`);
    }

    async #fits(at, end, seal) {
        if (!this.isChecked) return true;
        if (end - at > MOST_RECORD) {
            this.isChecked = false;
            return true;
        }
        const sealed = new Uint8Array(32 + end - at);
        sealed.set(this.#seal.match(/../g).map((digits) => parseInt(digits, 16)));
        sealed.set(await this.#bytes(at, end - at), 32);
        const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', sealed));
        return [...digest].map((byte) => byte.toString(16).padStart(2, '0')).join('') === seal;
    }

    async #bytes(at, length) {
        const { at: begin, bytes } = this.#window;
        if (at < begin || at + length > begin + bytes.length) {
            const end = Math.min(this.#file.size, at + Math.max(length, WINDOW));
            this.#window = { at, bytes: new Uint8Array(await this.#file.slice(at, end).arrayBuffer()) };
        }
        const from = at - this.#window.at;
        const found = this.#window.bytes.subarray(from, from + length);
        // What is large is needed once.
        if (length > WINDOW) this.#window = { at: 0, bytes: new Uint8Array() };
        return found;
    }
}

function objectOf(line) {
    try {
        const value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(line));
        return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : null;
    } catch {
        return null;
    }
}

function asciiOf(bytes) {
    return String.fromCharCode(...bytes);
}

