#!/usr/bin/env python3
"""co_await stands alone on its line: a whole statement, or the right side of =. No braces, lambda or ?: in its operand,
never in a condition. Some compilers miscompile other forms silently.

Usage: check_coroutines.py [ROOT]; with --self-test it checks itself.
"""
import pathlib
import re
import sys

# After an `if (...)`, an `else` or both a whole statement may follow.
ALLOWED = re.compile(r"^\s*(?:else )?(?:if \((?!.*co_await.*\)\s).*\) )?(?:(?:const\s+)?(?:auto|[\w:<>]+)\s*(?:&\s*)?(?:\[[\w,\s]+\]|\w+)\s*=\s*|[\w.\->\[\]]+\s*=\s*|co_return\s+)?co_await\s+[^{}?]*;\s*$")


def statements(text):
    """(line number, statement) for each statement with co_await; comments and strings are blanked first."""
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', re.sub(r"//[^\n]*", "", text))
    for match in re.finditer(r"\bco_await\b", text):
        begin = max(text.rfind(each, 0, match.start()) for each in ";{}") + 1
        end, depth = match.end(), 0
        while end < len(text):
            depth += (text[end] in "({[") - (text[end] in ")}]")
            if text[end] == ";" and depth <= 0:
                break
            end += 1
        yield text.count("\n", 0, match.start()) + 1, " ".join(text[begin:end + 1].split())


def faults(name, text):
    for line, statement in statements(text):
        if not ALLOWED.match(statement):
            yield "%s:%d: %s" % (name, line, statement[:100])


def self_test():
    bad = ["if (co_await a()) {}", "f(co_await a());", "auto x = co_await a(Options{1});", "x = y ? co_await a() : 2;",
           "while (co_await a()) {}", "auto x = co_await a([] { return 1; });", "return 1 + co_await a();",
           "else if (co_await a()) b();", "const bool x = y || co_await a();"]
    good = ["co_await a();", "auto x = co_await a(b, c);", "const auto [e, n] = co_await a(b);", "x = co_await a();",
            "co_return co_await a();", "if (b && !c) co_await a();", "else co_await a();",
            "else if (b) co_await a();", "// if (co_await a())\n"]
    for text in bad:
        assert list(faults("t", "{ " + text)), "not noticed: " + text
    for text in good:
        assert not list(faults("t", "{ " + text)), "wrongly noticed: " + text


def main():
    self_test()
    if "--self-test" in sys.argv:
        return 0
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = [fault for folder in ("src", "bench", "tests") for path in sorted((root / folder).rglob("*"))
             if path.suffix in (".h", ".cpp") and "node_modules" not in path.parts
             for fault in faults(path.relative_to(root).as_posix(), path.read_text())]
    for fault in found:
        print("coroutines: " + fault)
    return 1 if found else 0


sys.exit(main())
