// Finds, makes and changes the elements of the page. A text is set only where it differs, so that an update takes
// nobody the selection or the focus.

/** @param {string} id */
export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) {
    throw new Error(`the page has no ${id}`);
  }
  return element;
}

/** @type {(element: Element | null | undefined, text: string) => void} */
export const setText = (element, text) => {
  if (element && element.textContent !== text) {
    element.textContent = text;
  }
};

/**
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Partial<HTMLElementTagNameMap[Name]>} [properties]
 * @param {readonly (Node | string)[]} children
 */
export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/** @type {(text: string) => void} has a screen reader read it out */
export const say = (text) => {
  setText(byId('said'), text);
};

/**
 * Copies the text of `element`, a `name`, and reads out `done`. By selection: a page that comes neither from its own
 * machine nor by HTTPS has no other clipboard.
 * @type {(element: Element, name: string, done: string) => boolean}
 */
export const copy = (element, name, done) => {
  getSelection()?.selectAllChildren(element);
  const isCopied = document.execCommand('copy');
  say(isCopied ? done : `Could not copy: the ${name} is selected instead`);
  return isCopied;
};
