(() => {
  const root = document.documentElement;
  const slides = [...document.querySelectorAll(".slide")];
  const place = document.getElementById("place");
  const wide = () => innerWidth >= 800;
  let now = 0;

  const show = (number) => {
    now = Math.max(0, Math.min(slides.length - 1, number));
    slides.forEach((slide, index) => slide.classList.toggle("now", index === now));
    place.textContent = `${now + 1} / ${slides.length}`;
    if (location.hash !== `#${now + 1}`) history.replaceState(null, "", `#${now + 1}`);
  };
  const speak = (language) => {
    root.dataset.lang = language;
    root.lang = language === "zh" ? "zh-Hans" : "en";
    document.title = document.querySelector(`meta[name="title-${language}"]`).content;
    document.getElementById("language").textContent = language === "zh" ? "English" : "中文";
  };
  const other = () => speak(root.dataset.lang === "zh" ? "en" : "zh");
  const fit = () => {
    document.body.classList.toggle("deck", wide());
    root.style.setProperty("--fit", Math.min(innerWidth / 1280, innerHeight / 720));
  };
  const full = () => (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen());

  const keys = {
    ArrowRight: () => show(now + 1), ArrowDown: () => show(now + 1), PageDown: () => show(now + 1), " ": () => show(now + 1),
    ArrowLeft: () => show(now - 1), ArrowUp: () => show(now - 1), PageUp: () => show(now - 1),
    Home: () => show(0), End: () => show(slides.length - 1), f: full,
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "l" || event.key === "L") return other();
    if (event.target.tagName === "BUTTON" && event.key === " ") return;
    const act = wide() && keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  let start = null;
  addEventListener("touchstart", (event) => { start = event.touches.length === 1 ? event.touches[0] : null; }, { passive: true });
  addEventListener("touchend", (event) => {
    if (!start || !wide()) return;
    const x = event.changedTouches[0].clientX - start.clientX, y = event.changedTouches[0].clientY - start.clientY;
    if (Math.abs(x) > 50 && Math.abs(x) > 1.5 * Math.abs(y)) show(now + (x < 0 ? 1 : -1));
  });
  document.getElementById("back").addEventListener("click", () => show(now - 1));
  document.getElementById("next").addEventListener("click", () => show(now + 1));
  document.getElementById("language").addEventListener("click", other);
  addEventListener("hashchange", () => show(Number(location.hash.slice(1)) - 1 || 0));
  addEventListener("resize", fit);

  speak(navigator.language.startsWith("zh") ? "zh" : "en");
  fit();
  show(Number(location.hash.slice(1)) - 1 || 0);
})();
