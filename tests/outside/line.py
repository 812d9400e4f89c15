"""Line: an image is known from a fixed score on."""

from ostta import Decision, Verdict
from ostta.identifiers import Identifier


class Line(Identifier):
    about = "known from a score of 0.3 on"

    def peek(self, score, evidence=None):
        return Decision(Verdict.of(score >= 0.3, score, 0.3, 0.3), 0.3, 0.3, 0.3)
