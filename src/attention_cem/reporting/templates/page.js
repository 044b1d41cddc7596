"use strict";
(() => {
  const root = document.documentElement;
  const remember = (key, value) => { try { localStorage.setItem(key, value); } catch { /* a page from disk may have no storage */ } };
  const recall = (key) => { try { return localStorage.getItem(key); } catch { return null; } };

  const setLanguage = (language) => {
    root.lang = language;
    document.title = document.querySelector("h1 ." + language).textContent;
    for (const input of document.querySelectorAll("[data-label-en]")) {
      input.setAttribute("aria-label", language === "zh" ? input.dataset.labelZh : input.dataset.labelEn);
    }
  };
  const wanted = recall("report-language") || ((navigator.language || "en").startsWith("zh") ? "zh" : "en");
  setLanguage(wanted === "zh" ? "zh" : "en");
  document.getElementById("language").addEventListener("click", () => {
    const next = root.lang === "zh" ? "en" : "zh";
    setLanguage(next);
    remember("report-language", next);
  });

  const theme = recall("report-theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remember("report-theme", root.dataset.theme);
  });

  // One slider moves them all: the same face in two runs is compared at the same cut.
  const sliders = [...document.querySelectorAll(".slider input")];
  for (const slider of sliders) {
    slider.addEventListener("input", () => {
      for (const other of sliders) other.value = slider.value;
      for (const grid of document.querySelectorAll(".faces")) grid.style.setProperty("--cut", slider.value + "%");
    });
  }

  const tip = document.getElementById("tip");
  const show = (mark, x, y) => {
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
    tip.style.top = Math.max(4, y - box.height - 12) + "px";
  };
  const markOf = (event) => event.target instanceof Element ? event.target.closest("[data-tip]") : null;
  document.addEventListener("pointermove", (event) => {
    const mark = markOf(event);
    if (mark) show(mark, event.clientX, event.clientY);
    else if (!document.activeElement || !document.activeElement.dataset.tip) tip.hidden = true;
  });
  document.addEventListener("focusin", (event) => {
    const mark = markOf(event);
    if (!mark) { tip.hidden = true; return; }
    const box = mark.getBoundingClientRect();
    show(mark, box.right, box.top);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  addEventListener("beforeprint", () => { for (const details of document.querySelectorAll("details")) details.open = true; });
})();
