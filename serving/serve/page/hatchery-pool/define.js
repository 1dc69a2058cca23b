// The end of the module.

if (!customElements.get(widget.element)) customElements.define(widget.element, HatcheryPool);

