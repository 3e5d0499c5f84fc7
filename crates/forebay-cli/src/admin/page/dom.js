// Elements. Texts are never read as HTML.

export const $ = (id) => document.getElementById(id);

/** Element with attributes and children; a child is an element or a text. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(key, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/** Sets a text only if it changes, so that a reader is not told again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Table row: each cell is a text, or `[text, class]`. */
export function row(...cells) {
  return make("tr", {}, ...cells.map((cell) => {
    const [content, kind] = Array.isArray(cell) ? cell : [cell];
    return make("td", { class: kind }, content);
  }));
}
