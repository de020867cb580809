/** Small pictures on buttons: fonts differ too much in the signs that they have. */

import { s } from "./dom.js";

const PATHS = {
  first: "M4.5 4v12M15.5 4L7.5 10l8 6z",
  back: "M13 4l-7 6l7 6",
  play: "M6 4l10 6l-10 6z",
  pause: "M6.5 4v12M13.5 4v12",
  on: "M7 4l7 6l-7 6",
  last: "M15.5 4v12M4.5 4l8 6l-8 6z",
};

/** Return the picture of that name; what it means must stand on its button. */
export function icon(name) {
  return s("svg", { class: `pictogram ${name}`, viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true", focusable: "false" }, s("path", { d: PATHS[name] }));
}
