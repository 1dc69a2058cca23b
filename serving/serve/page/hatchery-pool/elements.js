// Elements, made by their names: there is no HTML here.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
        if (value === true) element.setAttribute(name, '');
        else if (value !== false && value != null) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
}

function h(name, attributes = {}, ...children) {
    return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
    return fill(document.createElementNS(SVG, name), attributes, children);
}

/** Sets a text if it is another one, so that nothing is laid out and read out needlessly. */
function say(element, text) {
    if (element.textContent !== text) element.textContent = text;
}

function button(text, attributes, press) {
    const made = h('button', { type: 'button', ...attributes }, text);
    made.addEventListener('click', press);
    return made;
}

function panel(title, attributes, ...children) {
    const heading = h('h2', {}, title);
    const extra = h('span', { class: 'extra' });
    const head = h('div', { class: 'head' }, heading, extra);
    const element = h('section', { 'aria-label': title, ...attributes }, head, ...children);
    return { element, extra };
}

