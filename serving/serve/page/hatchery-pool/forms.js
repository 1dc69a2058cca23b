// Figures and tables that a program shows.

/** Most characters of an image in base64. */
const MOST_IMAGE = 8_000_000;
/** The largest table that is shown, and the longest text in which one is looked for. */
const MOST_ROWS = 100;
const MOST_COLUMNS = 30;
const MOST_HTML = 500_000;

/** Returns an image, if there is one among these forms. Scripts within images don't run. */
function picture(bundle) {
    const of = (url) => {
        const image = h('img', {
            alt: short(bundle['text/plain'] ?? 'figure', 100),
            decoding: 'async',
        });
        image.src = url;
        return h('figure', {}, image);
    };
    for (const type of ['image/png', 'image/jpeg']) {
        const data = bundle[type];
        if (typeof data !== 'string') continue;
        if (data.length <= MOST_IMAGE && /^[A-Za-z0-9+/=\s]+$/.test(data))
            return of(`data:${type};base64,${data}`);
    }
    const drawing = bundle['image/svg+xml'];
    if (typeof drawing === 'string' && drawing.length <= MOST_IMAGE) {
        return of(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawing.toWellFormed())}`);
    }
    return null;
}

const TOKEN = /<(\/?)([a-z][a-z0-9]*)\b([^<>]*)>|[^<]+|</gi;
const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0' };

/** Returns the text of a data frame's HTML as a table of text; `null` if there is none in it. */
function table(html) {
    const begin = typeof html === 'string' ? html.search(/<table\b/i) : -1;
    if (begin < 0 || html.length > MOST_HTML) return null;
    const rows = [];
    let cell = null;
    let rest = 0;
    for (const [text, close, name, attributes] of html.slice(begin).matchAll(TOKEN)) {
        const tag = name?.toLowerCase();
        if (tag === 'table' && close) break;
        if (tag === 'tr' && !close) {
            rest = Math.max(0, rows.length + 1 - MOST_ROWS);
            rows.push([]);
        } else if ((tag === 'td' || tag === 'th') && rows.length > 0) {
            const across = Number(/\bcolspan="?(\d{1,3})/i.exec(attributes)?.[1] ?? 1);
            cell = close ? null : { is: tag, text: '', across: Math.min(across, MOST_COLUMNS) };
            if (cell) rows.at(-1).push(cell);
        } else if (!tag && cell) {
            cell.text += text;
        }
    }
    if (rows.length === 0) return null;
    const columns = rows.reduce((most, row) => Math.max(most, row.length), 0);
    const shown = rows.slice(0, MOST_ROWS).map((row) => {
        const cells = row.slice(0, MOST_COLUMNS).map(({ is, text, across }) => {
            return h(is, { colspan: across > 1 ? across : null }, short(unescaped(text.trim())));
        });
        return h('tr', {}, ...cells);
    });
    const cut = [];
    if (rest > 0) cut.push(counted(rest, 'more row'));
    if (columns > MOST_COLUMNS) cut.push(counted(columns - MOST_COLUMNS, 'more column'));
    const note = cut.length > 0 ? [h('figcaption', {}, `Not shown: ${cut.join(' and ')}.`)] : [];
    return h('figure', { class: 'frame' }, h('table', {}, h('tbody', {}, ...shown)), ...note);
}

function unescaped(text) {
    return text.replace(/&(?:#(\d{1,7}|x[\da-f]{1,6})|([a-z]{2,4}));/gi, (entity, code, name) => {
        if (name) return ENTITIES[name] ?? entity;
        const point = Number(code.replace(/^x/i, '0x'));
        return point <= 0x10ffff ? String.fromCodePoint(point) : entity;
    });
}

