/** Show one puzzle of a case study at a time, the one that the address names. Without this all stand below each other. */
export function showOneCase() {
  const cases = [...document.querySelectorAll(".case")];
  const links = [...document.querySelectorAll(".picker a")];

  function choose() {
    const named = cases.find((section) => `#${section.id}` === location.hash);
    const chosen = named ?? cases[0];
    cases.forEach((section, number) => {
      section.hidden = section !== chosen;
      if (section === chosen) links[number].setAttribute("aria-current", "true");
      else links[number].removeAttribute("aria-current");
    });
    if (named) named.scrollIntoView();
  }

  if (!cases.length) return;
  window.addEventListener("hashchange", choose);
  choose();
}
