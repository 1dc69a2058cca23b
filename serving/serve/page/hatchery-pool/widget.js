// <hatchery-pool>: what a pool does, in a browser, and a box to run programs in.
//
// Everything that comes from the server can hold text of untrusted programs. So nothing here writes
// HTML: elements are made by their names, text goes into text nodes, and what readers can't see, such
// as escape sequences, becomes visible (`visible`). Whatever has no end is cut, and says so.
//
// The attribute `server` names the server; without it, it is the one that the module is from. Timers
// and requests live from `connectedCallback` to `disconnectedCallback`.
//
// The server sends this folder as one module, whose parts `page.rs` lists.

/** What hosts of widgets ask for. */
export const widget = Object.freeze({
    element: 'hatchery-pool',
    displayName: 'Hatchery pool',
    icon: '🐣',
    category: 'monitoring',
    updateInterval: 2000,
});
export default widget;

