// Describes, makes and updates the page's elements. An update changes only what differs, so that the user's selection and
// focus stay.

/** @typedef {Readonly<Record<string, unknown>>} Attributes */
/** @typedef {{ readonly tag: string, readonly attributes: Attributes, readonly children: readonly Child[] }} Description */
/** @typedef {Description | string} Child */

/**
 * Describes an element. `key` identifies the element among its siblings; without a key, its place identifies it. An
 * attribute that is a function is an event handler.
 * @type {(tag: string, attributes?: Attributes, ...children: readonly (Child | readonly Child[])[]) => Description}
 */
export const make = (tag, attributes = {}, ...children) => ({ tag, attributes, children: children.flat() });

/** @type {(id: string) => HTMLElement} */
export const byId = (id) => {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no ${id}`);
  return element;
};

/**
 * Updates the element with this id. Without `children`, the element keeps its present children.
 * @type {(id: string, attributes: Attributes, ...children: readonly (Child | readonly Child[])[]) => void}
 */
export const show = (id, attributes, ...children) => {
  const element = byId(id);
  updateAttributes(element, attributes);
  if (children.length > 0) updateChildren(element, children.flat());
};

/** @type {WeakMap<Node, Attributes>} the present attributes of each element */
const shown = new WeakMap();
/** @type {WeakMap<Node, string>} */
const keys = new WeakMap();

/** @type {(element: HTMLElement | SVGElement, attributes: Attributes) => void} */
const updateAttributes = (element, attributes) => {
  const before = shown.get(element);
  shown.set(element, attributes);
  for (const [name, value] of Object.entries(attributes)) {
    if (before !== undefined && value === before[name]) continue;
    if (typeof value === 'function') {
      Object.assign(element, { [name]: value });
    } else if (name === 'style') {
      // The content security policy forbids the attribute `style`, but not this property.
      element.style.cssText = String(value);
    } else if (value === undefined || value === false) {
      element.removeAttribute(name);
    } else if (name !== 'key') {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
};

/** @type {(parent: Element, children: readonly Child[]) => void} */
const updateChildren = (parent, children) => {
  const wanted = new Map(children.map((child, index) => [keyOf(child, index), child]));
  /** @type {Map<string | undefined, ChildNode>} */
  const present = new Map();
  for (const node of [...parent.childNodes]) {
    const key = keys.get(node);
    if (key !== undefined && wanted.has(key)) {
      present.set(key, node);
    } else {
      node.remove();
    }
  }
  let next = parent.firstChild;
  for (const [key, child] of wanted) {
    const node = present.get(key) ?? create(child, key);
    update(node, child);
    // Moves only nodes that are out of place, because a moved element loses the focus.
    if (node === next) {
      next = next.nextSibling;
    } else {
      parent.insertBefore(node, next);
    }
  }
};

/** @type {(child: Child, index: number) => string} */
const keyOf = (child, index) =>
  typeof child === 'string' ? `text ${index}` : `${child.tag} ${String(child.attributes['key'] ?? index)}`;

/** @type {(child: Child, key: string) => ChildNode} */
const create = (child, key) => {
  const namespace = `http://www.w3.org/${typeof child !== 'string' && ['svg', 'path'].includes(child.tag) ? '2000/svg' : '1999/xhtml'}`;
  const node = typeof child === 'string' ? new Text() : document.createElementNS(namespace, child.tag);
  keys.set(node, key);
  return node;
};

/** @type {(node: Node, child: Child) => void} */
const update = (node, child) => {
  if (typeof child !== 'string') {
    const element = /** @type {HTMLElement} */ (node);
    updateAttributes(element, child.attributes);
    updateChildren(element, child.children);
  } else if (node.nodeValue !== child) {
    node.nodeValue = child;
  }
};

/** @type {(text: string) => void} announces the text through screen readers */
export const say = (text) => show('said', {}, text);

/**
 * Copies the text of `element` and announces `done`. If copying fails, announces that the text, called `name`, is
 * only selected. Uses the selection, because the clipboard API exists only on localhost and over HTTPS.
 * @type {(element: Element, name: string, done: string) => boolean}
 */
export const copy = (element, name, done) => {
  getSelection()?.selectAllChildren(element);
  const isCopied = document.execCommand('copy');
  say(isCopied ? done : `Could not copy; the ${name} is selected instead`);
  return isCopied;
};
