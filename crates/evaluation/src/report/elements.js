// Texts come in as data and go out as `textContent` or as letters on a canvas: never as markup.
const byId = (id) => document.getElementById(id);

// An element with attributes and children, which are elements or texts.
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
};
