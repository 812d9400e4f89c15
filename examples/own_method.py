"""Write a method: it subtracts the running mean of all features before an image is compared with the classes.

python examples/own_method.py
ostta run --method examples/own_method.py:Centred --desired sample:cifar10c --undesired sample:mnist
"""

import ostta
from ostta.data import open_dataset
from ostta.methods import FrozenMethod, Look, MethodSummary, TensorState


class Centred(FrozenMethod):
    summary = MethodSummary("nothing", "a mean feature, score bank", "1 forward", "an example")

    def start(self):
        return TensorState(mean=self.classifier[0] * 0)

    def look(self, state, features, views):
        return Look(views, features, features @ self.classifier.T, (features - state.mean) @ self.classifier.T, None)

    def commit(self, state, look, decision, trained):  # only this function changes the state
        state.mean.lerp_(look.features, 0.01)


if __name__ == "__main__":  # ostta.testing.check_method(Centred) tests the method
    snowy = open_dataset("sample:cifar10c")
    adapter = ostta.load("embedded", snowy.classes, method=Centred)
    print(sum(adapter.step(snowy.image(n)).best == snowy.classes[snowy.labels[n]] for n in range(50)), "of 50 right")
