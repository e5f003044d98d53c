// What is wider than the page can be moved sideways with the keyboard too.
const reachable = () => {
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset picture, .formula")) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  }
};
for (const event of ["load", "resize"]) window.addEventListener(event, reachable);
