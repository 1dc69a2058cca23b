// Text and figures as people read them.

/** Most characters of a text in a cell. */
const MOST_TEXT = 300;

const UNSEEN =
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Makes control characters and those that change the direction of text visible. */
function visible(text) {
    return text.replaceAll('\r\n', '\n').replace(UNSEEN, (character) => {
        const code = character.charCodeAt(0);
        if (code < 0x20) return String.fromCharCode(0x2400 + code);
        return code === 0x7f ? '\u2421' : `\\u{${code.toString(16)}}`;
    });
}

/** Returns text of one line for a cell. */
function short(text, most = MOST_TEXT) {
    const all = String(text ?? '');
    const cut = visible(all.slice(0, most)).replaceAll('\n', ' ');
    return all.length > most ? `${cut}…` : cut;
}

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const digits = (value) => value.toPrecision(3).replace(/e.*/, '');

function count(value) {
    return whole.format(value ?? 0);
}

/** Returns a number with its noun. */
function counted(value, noun) {
    return `${count(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/** Begins a text with a capital letter. */
function sentence(text) {
    return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}

function scaled(value, units, base) {
    let unit = 0;
    while (value >= base * 0.9995 && unit + 1 < units.length) {
        value /= base;
        unit += 1;
    }
    const figure = value >= 999.5 ? String(Math.round(value)) : digits(value);
    return `${value === 0 ? '0' : figure} ${units[unit]}`;
}

function bytes(value) {
    if (value == null) return '–';
    if (value < 1024) return `${value} B`;
    return scaled(value / 1024, ['KiB', 'MiB', 'GiB', 'TiB'], 1024);
}

function duration(seconds) {
    if (seconds == null) return '–';
    if (seconds < 59.95) {
        if (seconds === 0) return '0 s';
        return scaled(seconds * 1e9, ['ns', 'µs', 'ms', 's'], 1000);
    }
    const total = Math.round(seconds);
    const [days, hours] = [Math.floor(total / 86400), Math.floor((total % 86400) / 3600)];
    const minutes = Math.floor((total % 3600) / 60);
    const two = (value) => String(value).padStart(2, '0');
    if (days > 0) return `${days} d ${two(hours)} h`;
    if (hours > 0) return `${hours} h ${two(minutes)} min`;
    return `${minutes} min ${two(total % 60)} s`;
}

/** Whole seconds, for durations that are seen to run. */
function age(seconds) {
    return seconds != null && seconds < 60 ? `${Math.floor(seconds)} s` : duration(seconds);
}

function rate(value) {
    return value >= 100 ? count(value) : value.toFixed(1);
}

