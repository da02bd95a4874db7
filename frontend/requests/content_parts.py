"""A message's content in parts: detects whether a chat template loops over them, and joins them for others.

Many templates expect content as text; they get the joined parts. A template that loops over the parts anywhere gets
them everywhere, and wherever it expects text they act as the joined text. Its syntax tree shows which it is: where it
reads `message.content`, under which names it passes that on, and whether it loops over it or reads one of its parts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from jinja2 import nodes

# Filters that take a list's items one by one, and those that pick one of them.
_ITEM_FILTERS = frozenset(("map", "select", "reject", "selectattr", "rejectattr", "groupby"))
_PICKING_FILTERS = frozenset(("first", "last"))


class Parts(list[dict[str, Any]]):
    """The parts for a template to loop over; printed, joined to a text or searched, they act as their joined text."""

    def __str__(self) -> str:
        return "\n".join(part["text"] for part in self if "text" in part)

    def __add__(self, other: Any) -> Any:
        return str(self) + other if isinstance(other, str) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return other + str(self) if isinstance(other, str) else NotImplemented

    def __contains__(self, item: object) -> bool:
        return item in str(self) if isinstance(item, str) else super().__contains__(item)

    def __getattr__(self, name: str) -> Any:
        """Methods of the joined text, such as `split` and `startswith`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(str(self), name)


def goes_through_parts(tree: nodes.Template) -> bool:
    """Whether the template loops over a message's content or reads a part of it, under any name."""
    names = _Names(tree)
    return any(names.is_content(loop.iter) for loop in tree.find_all(nodes.For)) or any(
        names.looks_into_parts(node) for node in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Filter))
    )


class _Names:
    """Names in a template that refer to a content, or to one of its parts.

    Scopes are ignored: a name that refers to a content anywhere does so everywhere.
    """

    def __init__(self, tree: nodes.Template) -> None:
        self._contents: set[str] = set()
        self._parts: set[str] = set()
        bindings = list(_bindings(tree))
        num_known = -1
        while num_known < (num_known := len(self._contents) + len(self._parts)):
            self._contents |= {name for name, value in bindings if self.is_content(value)}
            self._parts |= {name for name, value in bindings if self._is_part(value)}

    def is_content(self, node: nodes.Node | None) -> bool:
        match node:
            case nodes.Getattr(attr="content") | nodes.Getitem(arg=nodes.Const(value="content")):
                return True
            case nodes.Call(node=nodes.Getattr(attr="get"), args=[nodes.Const(value="content"), *_]):
                return True
            case nodes.CondExpr(expr1=left, expr2=right) | nodes.Or(left=left, right=right):
                return self.is_content(left) or self.is_content(right)
            case nodes.Filter(name=name, node=inner):
                return name not in _PICKING_FILTERS and self.is_content(inner)
            case nodes.Getitem(node=inner, arg=nodes.Slice()):
                return self.is_content(inner)
            case _:
                return _name(node) in self._contents

    def _is_part(self, node: nodes.Node | None) -> bool:
        match node:
            case nodes.Filter(name=name, node=inner):
                return name in _PICKING_FILTERS and self.is_content(inner)
            case nodes.Getitem(node=inner, arg=arg):
                is_number = not isinstance(arg, nodes.Slice) and not isinstance(getattr(arg, "value", None), str)
                return is_number and self.is_content(inner)
            case _:
                return _name(node) in self._parts

    def looks_into_parts(self, node: nodes.Node) -> bool:
        """Whether it reads a field that parts have and characters don't, or filters the parts one by one."""
        match node:
            case nodes.Getattr(node=inner, attr=name) | nodes.Getitem(node=inner, arg=nodes.Const(value=str(name))):
                return self._is_part(inner) and not hasattr(str, name)
            case nodes.Filter(node=inner, name=name, kwargs=kwargs):
                is_by_item = name in _ITEM_FILTERS or any(keyword.key == "attribute" for keyword in kwargs)
                return is_by_item and self.is_content(inner)
        return False


def _bindings(tree: nodes.Template) -> Iterator[tuple[str, nodes.Node]]:
    """Every name in the template, with each expression that it may refer to."""
    for assignment in tree.find_all(nodes.Assign):
        yield from _bound(assignment.target, assignment.node)
    for block in tree.find_all(nodes.With):
        for target, given in zip(block.targets, block.values, strict=True):
            yield from _bound(target, given)
    for loop in tree.find_all(nodes.For):
        for value in _items(loop.iter):
            yield from _bound(loop.target, value)
    yield from _arguments(tree)


def _bound(target: nodes.Node, value: nodes.Node) -> Iterator[tuple[str, nodes.Node]]:
    if isinstance(target, nodes.Tuple) and isinstance(value, (nodes.Tuple, nodes.List)):
        for each, item in zip(target.items, value.items):
            yield from _bound(each, item)
    elif (name := _name(target)) is not None:
        yield name, value


def _items(node: nodes.Node | None) -> Sequence[nodes.Node]:
    """The items of a loop that may be contents: a list's items, or those that `map` takes from each message."""
    if isinstance(node, (nodes.List, nodes.Tuple)):
        return node.items
    while isinstance(node, nodes.Filter):
        if node.name == "map":
            names = [key.value for key in node.kwargs if key.key == "attribute"]
            return [nodes.Getattr(node.node, name.value, "load") for name in names if isinstance(name, nodes.Const)]
        node = node.node
    return []


def _arguments(tree: nodes.Template) -> Iterator[tuple[str, nodes.Node]]:
    """The parameters of macros, and of blocks that call one, with their arguments."""
    blocks: list[tuple[str, nodes.Macro | nodes.CallBlock]] = [
        *((macro.name, macro) for macro in tree.find_all(nodes.Macro)),
        *(("caller", block) for block in tree.find_all(nodes.CallBlock)),
    ]
    calls = list(tree.find_all(nodes.Call))
    for name, block in blocks:
        names = [parameter.name for parameter in block.args]
        yield from zip(reversed(names), reversed(block.defaults))
        for call in calls:
            if _name(call.node) == name:
                yield from zip(names, call.args)
                yield from ((keyword.key, keyword.value) for keyword in call.kwargs)


def _name(node: nodes.Node | None) -> str | None:
    """The name of a variable, or of a namespace's attribute."""
    match node:
        case nodes.Name(name=name):
            return name
        case nodes.NSRef(name=holder, attr=attr) | nodes.Getattr(node=nodes.Name(name=holder), attr=attr):
            return f"{holder}.{attr}"
    return None
