// bringIntoView scrolls to element unless part of it is in view already, as on a large screen,
// and returns whether it did.
export function bringIntoView(element, part = element) {
  const { top, bottom } = part.getBoundingClientRect();
  const above = parseFloat(getComputedStyle(element).scrollMarginTop);
  if (top >= above && bottom <= innerHeight) return false;
  element.scrollIntoView({ block: "start" });
  return true;
}
