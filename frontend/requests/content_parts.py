"""A message's content in parts: whether a chat template loops over them, and what others get in their place.

Many templates know content as text alone; they get the parts joined. A template that goes through the parts anywhere
gets them everywhere, and where it takes the content for text they act as the joined one. Whether it does is read from
its syntax tree: what is `message.content`, under which names it goes on, and whether something loops over it or looks
into one of its parts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from jinja2 import nodes

# Filters that take a list's items one by one, and those that pick one of them.
_ITEM_FILTERS = frozenset(("map", "select", "reject", "selectattr", "rejectattr", "groupby"))
_PICKING_FILTERS = frozenset(("first", "last"))


class Parts(list[dict[str, Any]]):
    """The parts as a template loops over them; printed, joined to a text or searched, they are their joined text."""

    def __str__(self) -> str:
        return "\n".join(part["text"] for part in self if "text" in part)

    def __add__(self, other: Any) -> Any:
        return str(self) + other if isinstance(other, str) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return other + str(self) if isinstance(other, str) else NotImplemented

    def __contains__(self, item: object) -> bool:
        return item in str(self) if isinstance(item, str) else super().__contains__(item)

    def __getattr__(self, name: str) -> Any:
        """A text's methods, such as `split` and `startswith`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(str(self), name)


def goes_through_parts(tree: nodes.Template) -> bool:
    """Whether the template loops over a message's content or looks into a part of it, under whatever name."""
    names = _Names(tree)
    return any(names.is_content(loop.iter) for loop in tree.find_all(nodes.For)) or any(
        names.looks_into_parts(node) for node in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Filter))
    )


class _Names:
    """The names in a template that stand for a content, or for one part of it.

    Scopes are not told apart: a name that stands for a content anywhere does so everywhere.
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
        """It reads what a part has and a character hasn't, or filters the parts one by one."""
        match node:
            case nodes.Getattr(node=inner, attr=name) | nodes.Getitem(node=inner, arg=nodes.Const(value=str(name))):
                return self._is_part(inner) and not hasattr(str, name)
            case nodes.Filter(node=inner, name=name, kwargs=kwargs):
                is_by_item = name in _ITEM_FILTERS or any(keyword.key == "attribute" for keyword in kwargs)
                return is_by_item and self.is_content(inner)
        return False


def _bindings(tree: nodes.Template) -> Iterator[tuple[str, nodes.Node]]:
    """Every name in the template with each expression that it may stand for."""
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
    """What a loop over it gives, where that can be a content: a list's items, or what `map` takes from each message."""
    if isinstance(node, (nodes.List, nodes.Tuple)):
        return node.items
    while isinstance(node, nodes.Filter):
        if node.name == "map":
            names = [key.value for key in node.kwargs if key.key == "attribute"]
            return [nodes.Getattr(node.node, name.value, "load") for name in names if isinstance(name, nodes.Const)]
        node = node.node
    return []


def _arguments(tree: nodes.Template) -> Iterator[tuple[str, nodes.Node]]:
    """The parameters of macros, and of blocks that call one, with what they are called with."""
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
    """Of a variable, or of what a namespace holds."""
    match node:
        case nodes.Name(name=name):
            return name
        case nodes.NSRef(name=holder, attr=attr) | nodes.Getattr(node=nodes.Name(name=holder), attr=attr):
            return f"{holder}.{attr}"
    return None
