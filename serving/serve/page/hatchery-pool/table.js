// Tables of what the pool has.

/** A table whose rows stay the same elements while they are about the same things. */
class Table {
    #rows = new Map();
    #about;
    #body = h('tbody');
    #none;

    /**
     * `kind` is a class for the style. `columns` have a `name`, and maybe a `width` and what they are (`is`): of a `number` or `wide`.
     * `key` tells items apart. `make` returns the `contents` of cells that aren't text, by column, and
     * whatever else `update` needs. `texts` returns the texts of the other cells, `null` for the rest.
     */
    constructor(about) {
        this.#about = { make: () => ({}), update: () => {}, ...about };
        const { label, kind, columns, none } = about;
        const headings = columns.map(({ name, is, width }) => {
            const heading = h('th', { scope: 'col', class: is ?? 'text' }, name);
            if (width) heading.style.width = width;
            return heading;
        });
        const head = h('thead', {}, h('tr', {}, ...headings));
        this.#none = h('p', { class: 'none' }, none);
        this.element = h(
            'div',
            { class: `table ${kind}` },
            h('table', { 'aria-label': label }, head, this.#body),
            this.#none,
        );
    }

    show(items) {
        const { key, texts, update } = this.#about;
        const before = this.#rows;
        this.#rows = new Map();
        items.forEach((item, index) => {
            let name = String(key(item));
            while (this.#rows.has(name)) name += ' again';
            const row = before.get(name) ?? this.#row(item);
            before.delete(name);
            this.#rows.set(name, row);
            texts(item, row.made).forEach((text, column) => {
                const cell = row.cells[column];
                if (text === null || cell.textContent === text) return;
                cell.textContent = text;
                // The style cuts long texts.
                cell.title = text.length > 12 ? text : '';
            });
            update(item, row.made, row.element);
            const there = this.#body.children[index];
            if (there !== row.element) this.#body.insertBefore(row.element, there ?? null);
        });
        for (const row of before.values()) row.element.remove();
        this.#none.hidden = items.length > 0;
    }

    #row(item) {
        const made = this.#about.make(item);
        const cells = this.#about.columns.map(({ name, is }) => {
            return h(
                'td',
                { class: is ?? 'text', 'data-label': name },
                ...(made.contents?.[name] ?? []),
            );
        });
        return { element: h('tr', {}, ...cells), cells, made };
    }
}

