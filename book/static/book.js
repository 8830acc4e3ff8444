// The theme's arrows in the sidebar have no name that a screen reader could say.
document.addEventListener("DOMContentLoaded", () => {
  for (const arrow of document.querySelectorAll(".bd-sidenav summary")) {
    const page = arrow.closest("li").querySelector("a").textContent.trim();
    arrow.setAttribute("aria-label", `Pages under ${page}`);
  }
});
