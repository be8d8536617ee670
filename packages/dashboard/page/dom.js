// Finds, makes and changes the page's elements. A text is set only if it differs, so that an update keeps the user's
// selection and focus.

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

/** @type {(text: string) => void} announces the text through screen readers */
export const say = (text) => setText(byId('said'), text);

/**
 * Copies the text of `element` and announces `done`; `name` names the text if copying fails. Uses the selection, because
 * the clipboard API exists only on localhost and over HTTPS.
 * @type {(element: Element, name: string, done: string) => boolean}
 */
export const copy = (element, name, done) => {
  getSelection()?.selectAllChildren(element);
  const isCopied = document.execCommand('copy');
  say(isCopied ? done : `Could not copy; the ${name} is selected instead`);
  return isCopied;
};
