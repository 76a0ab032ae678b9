"""A back end for omniidl that prints the repository id of each declaration and the values of constants."""

from omniidl import idlast, idltype


def shown(node):
    kind, value = node.constKind(), node.value()
    if kind == idltype.tk_enum:
        return value.repoId()
    if kind == idltype.tk_boolean:
        return "true" if value else "false"
    if kind in (idltype.tk_float, idltype.tk_double, idltype.tk_longdouble):
        return repr(float(value))
    if kind == idltype.tk_char:
        return str(ord(value))
    if kind == idltype.tk_string:
        return " ".join(str(ord(each)) for each in value)
    if kind == idltype.tk_wstring:
        return " ".join(str(each) for each in value)
    return str(value)


def parts(node):
    """Returns the declarations within a declaration, including types that members define in place."""
    if getattr(node, "constrType", lambda: False)():
        for name in ("aliasType", "memberType", "caseType", "switchType", "boxedType"):
            if hasattr(node, name):
                yield getattr(node, name)().decl()
    # Members have no repository id.
    if isinstance(node, (idlast.Member, idlast.UnionCase)):
        return
    for name in ("declarations", "definitions", "contents", "declarators", "members", "cases", "enumerators"):
        yield from getattr(node, name, list)()


def visit(node):
    # State members and factories have no repository id.
    if isinstance(node, (idlast.StateMember, idlast.Factory)):
        return
    if isinstance(node, idlast.DeclRepoId) and not node.file().startswith("<"):
        value = " = " + shown(node) if isinstance(node, idlast.Const) else ""
        print(node.repoId() + value)
    for part in parts(node):
        visit(part)


def run(tree, arguments):
    visit(tree)
