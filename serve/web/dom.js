/** Elements by one call. Styles are set through CSSOM: the page's policy forbids style attributes. */

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") setStyle(element, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function setStyle(element, style) {
  for (const [name, value] of Object.entries(style)) element.style.setProperty(name, value);
}

/** Return an HTML element: `h("p", {class: "note", onclick: f}, "text", child)`. */
export function h(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Return an SVG element. */
export function s(name, attributes, ...children) {
  return filled(document.createElementNS(SVG_NAMESPACE, name), attributes, children);
}

/** Put children in place of what an element holds. */
export function refill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

let lastId = 0;

/** Return an id that no other element of the page has. */
export function freshId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}

/** Say a sentence to those who listen to the page instead of looking at it. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Return whether keys typed now belong to a form's field and not to the page. */
export function isTyping(event) {
  const target = event.target;
  const fields = "input:not([type=checkbox], [type=radio]), select, textarea, dialog";
  return event.ctrlKey || event.metaKey || event.altKey || (target instanceof Element && target.closest(fields) !== null);
}

/** Return whether a key that was pressed works a button, a link or a switch. */
export function isOnControl(event) {
  return event.target instanceof Element && event.target.closest("button, summary, a, input") !== null;
}

/** Read a setting of this browser; `otherwise` where there is none. */
export function recalled(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`cast_ray.${name}`)) ?? otherwise;
  } catch {
    return otherwise; // no storage in this browser, or somebody else's text
  }
}

/** Keep a setting of this browser, where it has room for one. */
export function remember(name, value) {
  try {
    localStorage.setItem(`cast_ray.${name}`, JSON.stringify(value));
  } catch {
    // Private windows may refuse storage: the setting then lasts as long as the page.
  }
}
