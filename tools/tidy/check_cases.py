#!/usr/bin/env python3
"""The table of cases in tests/README.md names tests that exist: unit tests by name, end-to-end files that hold the case.

Usage: check_cases.py [ROOT]; with --self-test it checks itself.
"""
import pathlib
import re
import sys

ROW = re.compile(r"^\| (\d+) \| [^|]+ \| ([^|]*) \| ([^|]*) \|$", re.M)
UNIT = re.compile(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)|RC_GTEST_\w+\((\w+), (\w+)", re.M)


def faults(table, unit_tests, end_to_end):
    """table: the page; unit_tests: names as Suite.Test; end_to_end: text of each file by its name without .test.mjs"""
    rows = ROW.findall(table)
    if not rows:
        yield "no table of cases"
    for number, files, units in rows:
        files = [each.strip() for each in files.split(",") if each.strip()]
        names = re.findall(r"`([^`]+)`", units)
        if not files and not names:
            yield "case %s has no test" % number
        for name in names:
            if name not in unit_tests:
                yield "case %s: there is no unit test %s" % (number, name)
        for file in files:
            if file not in end_to_end:
                yield "case %s: there is no tests/e2e/%s.test.mjs" % (number, file)
        numbered = re.compile(r"[(\"'`]case (?:\d+ and )*%s\b|and %s:" % (number, number))
        if files and not any(numbered.search(end_to_end.get(file, "")) for file in files):
            yield "case %s: no end-to-end test in %s names it" % (number, ", ".join(files))


def self_test():
    row = "| 7 | what | %s | %s |\n"
    tests, files = {"A.B"}, {"one": 'test("case 7: x"'}
    for bad in ("", row % ("", ""), row % ("", "`A.C`"), row % ("two", ""), "| 8 | what | one | `A.B` |\n"):
        assert list(faults(bad, tests, files)), "not noticed: " + bad
    for good in (row % ("one", "`A.B`"), row % ("", "`A.B`"), row % ("one", "")):
        assert not list(faults(good, tests, files)), "wrongly noticed: " + good


def main():
    self_test()
    if "--self-test" in sys.argv:
        return 0
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    unit = {".".join(part for part in match if part) for path in root.glob("src/**/*_test.cpp") for match in UNIT.findall(path.read_text())}
    end_to_end = {path.name.removesuffix(".test.mjs"): path.read_text() for path in (root / "tests/e2e").glob("*.test.mjs")}
    found = list(faults((root / "tests/README.md").read_text(), unit, end_to_end))
    for fault in found:
        print("tests/README.md: " + fault)
    return 1 if found else 0


sys.exit(main())
