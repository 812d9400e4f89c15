"""A method of your own: the running mean of all features is taken away before an image is compared with the classes.

python examples/own_method.py
ostta run --method examples/own_method.py:Centred --desired sample:cifar10c --undesired sample:mnist
"""

import ostta
from ostta.data import open_dataset
from ostta.methods import Look, State
from ostta.methods.zero_shot import ZeroShot


class Mean(State):
    def __init__(self, mean):
        self.mean = mean

    def tensors(self):  # what a state file keeps
        return {"mean": self.mean}

    def load(self, tensors):  # from a file, which may hold anything
        if tensors.keys() != {"mean"} or tensors["mean"].shape != self.mean.shape:
            raise ostta.Error("The stored tensors are not one mean feature.")
        self.mean = tensors["mean"]


class Centred(ZeroShot):
    def start(self):
        return Mean(self.classifier[0] * 0)

    def look(self, state, features, views):
        return Look(views, features, features @ self.classifier.T, (features - state.mean) @ self.classifier.T, None)

    def commit(self, state, look, decision, trained):  # the one place that may change the state
        state.mean = state.mean.lerp(look.features, 0.01)


if __name__ == "__main__":  # ostta.testing.check_method(Centred) says whether it keeps the promises
    snowy = open_dataset("sample:cifar10c")
    adapter = ostta.load("embedded", snowy.classes, method=Centred)
    print(sum(adapter.step(snowy.image(n)).best == snowy.classes[snowy.labels[n]] for n in range(50)), "of 50 right")
