"""List the code and the sentence of every error of ostta; `--write` updates tests/sentences.txt.

python tools/sentences.py [--write]
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "ostta"
SNAPSHOT = ROOT / "tests" / "sentences.txt"
TRANSLATE, INTACT = "translate_errors", "require_intact"


def template(node: ast.expr | None) -> str:
    """Return a sentence with {…} for every value that is known at run time only."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) if isinstance(part, ast.Constant) else "{…}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return "{…}"


def error_classes(trees: list[ast.Module]) -> dict[str, str]:
    """Return the classes of errors, with the code that each has by default."""
    found = {"Error": "error"}
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for _ in range(3):  # subclasses of subclasses
        for node in classes:
            bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in found]
            if bases:
                own = [
                    statement.value.value
                    for statement in node.body
                    if isinstance(statement, ast.Assign | ast.AnnAssign)
                    and isinstance(statement.value, ast.Constant)
                    and "code" in ast.unparse(statement).split("=")[0]
                ]
                found[node.name] = str(own[0]) if own else found[bases[0]]
    return found


def sentences(source: Path = SOURCE) -> list[str]:
    """Return one line an error: its code and its sentence, sorted and without repetitions."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in sorted(source.rglob("*.py"))]
    classes = error_classes(trees)
    lines = set()
    for tree in trees:
        assignments = [
            (node.lineno, target.id, node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        ]
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            name, arguments = node.func.id, list(node.args)
            if name in classes and arguments:
                code = next((template(key.value) for key in node.keywords if key.arg == "code"), classes[name])
            elif name == TRANSLATE and len(arguments) > 1:
                code = template(arguments.pop(0))
            elif name == INTACT and len(arguments) == 3:
                what, reason = map(template, arguments[1:])
                lines.add(f"state-damaged: The stored {what} is damaged: {reason}.")
                continue
            else:
                continue
            message = arguments[0]
            if isinstance(message, ast.Name):
                # The last assignment before the call.
                earlier = [each for each in assignments if each[1] == message.id and each[0] <= node.lineno]
                message = max(earlier, key=lambda each: each[0])[2] if earlier else message
            lines.add(f"{code}: {' '.join(template(message).split())}")
    return sorted(lines)


if __name__ == "__main__":
    text = "\n".join(sentences()) + "\n"
    if "--write" in sys.argv[1:]:
        SNAPSHOT.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
