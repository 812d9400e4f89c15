// The values in charts of images: probabilities if the session has them, otherwise scores.

/** Returns the points with a `value` and the `line` of the threshold. A threshold that depends on the class is left out. */
export function onScale(points) {
  const probable = points.some((point) => Number.isFinite(point.probability));
  const found = points
    .map((point) => ({ ...point, value: probable ? point.probability : point.score, line: probable ? point.accept : point.threshold }))
    .filter((point) => Number.isFinite(point.value));
  const byClass = probable && new Set(found.map((point) => point.line)).size > 1;
  return { probable, points: byClass ? found.map((point) => ({ ...point, line: null })) : found };
}
