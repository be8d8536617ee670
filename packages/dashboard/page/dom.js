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

/** @type {(element: Element | undefined, text: string) => void} */
export const setText = (element, text) => {
  if (element !== undefined && element.textContent !== text) {
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

/**
 * Has a screen reader read `text` out.
 * @param {string} text
 */
export function say(text) {
  setText(byId('said'), text);
}

/**
 * Copies what `element`, a `name`, holds, and reads out `done`. A browser has no clipboard for a page that comes neither
 * from its own machine nor by HTTPS: then the text is selected and copied the old way.
 * @type {(element: Element, name: string, done: string, onCopied?: () => void) => void}
 */
export const copy = (element, name, done, onCopied) => {
  const write = async () => {
    if (window.isSecureContext) {
      await navigator.clipboard.writeText(element.textContent);
      return;
    }
    getSelection()?.selectAllChildren(element);
    if (!document.execCommand('copy')) {
      throw new Error('the browser did not copy');
    }
  };
  write().then(
    () => {
      say(done);
      onCopied?.();
    },
    () => {
      say(`Could not copy: the ${name} is selected instead`);
    },
  );
};
