// Elements from the plain trees of viewer/serialise.py. Texts become texts, never HTML.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  function element([tag, attributes, children]) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") Object.assign(made.style, value);
      else made.setAttribute(name, value);
    }
    made.append(...children.map(node));
    return made;
  }

  const node = (tree) => (typeof tree === "string" ? tree : element(tree));

  // Fill the elements with these ids. `parts`: id → trees.
  T.fillParts = function (parts) {
    for (const [id, trees] of Object.entries(parts)) document.getElementById(id).replaceChildren(...trees.map(node));
  };
})(window.twintap);
