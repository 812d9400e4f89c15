"""Margin: how much better an image fits its best class than the second-best one."""

from ostta.scores import Score, Scored


class Margin(Score):
    about = "difference of the two largest cosines"
    scale = None

    def value(self, look):
        cosines = look.cosines.sort(descending=True).values.tolist()
        return Scored(cosines[0] - (cosines[1] if len(cosines) > 1 else 0.0))
