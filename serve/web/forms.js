/** Fields with their errors beside them. */

import { ApiError } from "./api.js";
import { freshId, h, refill } from "./dom.js";

/** Return a labelled field; `name` is the interface's name of what goes in, for its errors. */
export function field(name, label, input, hint) {
  const id = freshId(name);
  input.id = id;
  input.setAttribute("aria-describedby", `${id}-error`);
  return h("div", { class: "field", "data-field": name },
    h("label", { for: id }, label), input, hint ? h("p", { class: "hint" }, hint) : null,
    h("p", { class: "error", id: `${id}-error`, role: "alert" }));
}

/** Return a set of radio buttons; `options` are `[value, label, hint]`. */
export function choice(name, legend, options, chosen, onChange) {
  const items = options.map(([value, label, hint]) =>
    h("label", { class: "option" },
      h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onChange(value) }),
      h("span", {}, h("b", {}, label), hint ? h("small", {}, hint) : null)));
  return h("fieldset", { class: "choice", "data-field": name }, h("legend", {}, legend), h("div", { class: `options of-${options.length}` }, items), h("p", { class: "error", role: "alert" }));
}

/** Take all errors of a form away. */
export function clearErrors(form) {
  for (const place of form.querySelectorAll(".error")) place.textContent = "";
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  form.querySelector(".error-box")?.remove();
}

/** Show an error beside the field that it is about, or above the form's buttons. */
export function showError(form, error) {
  if (!(error instanceof ApiError)) throw error;
  const name = (error.field ?? "").split(/[.[]/)[0];
  const found = name ? form.querySelector(`[data-field="${CSS.escape(name)}"]`) : null;
  if (!found || found.closest("[hidden]")) {
    form.querySelector(".form-end").before(errorBox(error));
    return;
  }
  found.closest("details")?.setAttribute("open", "");
  found.querySelector(".error").textContent = error.message;
  const input = found.querySelector("input, textarea, select");
  input.setAttribute("aria-invalid", "true");
  input.focus();
}

/** Return an error as a box; errors that are no refusal of the server are faults of the page. */
export function errorBox(error) {
  if (!(error instanceof ApiError)) throw error;
  return h("div", { class: "error-box", role: "alert" }, h("p", {}, error.message), h("code", {}, error.code));
}

/** Run `work()` and show what it is refused in `place`. */
export async function orError(place, work) {
  try {
    await work();
  } catch (error) {
    refill(place, errorBox(error));
  }
}
