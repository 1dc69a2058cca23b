// Charts.

/** The time that charts cover, and what is one point in them, in seconds. */
const SPAN = 180;
const STEP = 2;

/** Lines over the last `SPAN` seconds. */
class Chart {
    #lines;
    #grid = svg('g', { class: 'grid' });
    #area;
    #labels = h('div', { class: 'axis', 'aria-hidden': true });
    #svg;

    constructor(names) {
        this.#lines = names.map((name) => svg('path', { class: `line ${name}` }));
        this.#area = svg('path', { class: 'area' });
        this.#svg = svg(
            'svg',
            { role: 'img', viewBox: `0 0 ${SPAN} 100`, preserveAspectRatio: 'none' },
            this.#grid,
            this.#area,
            // Widest first, so that lines of the same values are all seen.
            ...[...this.#lines].reverse(),
        );
        const times = h(
            'div',
            { class: 'times', 'aria-hidden': true },
            h('span', {}, '3 min ago'),
            h('span', {}, 'now'),
        );
        this.element = h('div', { class: 'chart' }, this.#labels, this.#svg, times);
    }

    /** Draws lines of points `[seconds ago, value]`; `ticks` are values with their labels. */
    draw(lines, ticks, place, description) {
        const y = (value) => (100 - 100 * Math.min(1, Math.max(0, place(value)))).toFixed(2);
        this.#grid.replaceChildren(
            ...ticks.map(([value]) => svg('line', { x1: 0, x2: SPAN, y1: y(value), y2: y(value) })),
        );
        this.#labels.replaceChildren(
            ...ticks.map(([value, text]) => {
                const label = h('span', {}, text);
                label.style.top = `${y(value)}%`;
                return label;
            }),
        );
        lines.forEach((points, index) => {
            let last = Infinity;
            const path = points.map(([ago, value]) => {
                const isNext = last - ago <= STEP * 3;
                last = ago;
                const at = `${(SPAN - ago).toFixed(2)} ${y(value)}`;
                // A point of its own is a line of no length, which has round ends.
                return isNext ? `L${at}` : `M${at}h.01`;
            });
            this.#lines[index].setAttribute('d', path.join('') || 'M0 0');
            this.#lines[index].toggleAttribute('hidden', points.length === 0);
        });
        this.#svg.setAttribute('aria-label', description);
        if (lines.length > 1 || lines[0].length < 2) return;
        const corners = lines[0].map(([ago, value]) => `L${(SPAN - ago).toFixed(2)} ${y(value)}`);
        const [first, last] = [SPAN - lines[0][0][0], SPAN - lines[0].at(-1)[0]];
        this.#area.setAttribute('d', `M${first} 100${corners.join('')}L${last} 100Z`);
    }
}

