#!/usr/bin/env python3
"""No file that everything passes through: at most 800 lines, and a word from 500 on. No path of somebody's machine.

Usage: check_files.py [ROOT]
"""
import pathlib
import re
import subprocess
import sys

LINES_MAX, LINES_WARN = 800, 500
SOURCE = {".h", ".cpp", ".py", ".ts", ".tsx", ".js", ".mjs", ".cmake", ""}
PRIVATE = re.compile(r"(?<![\w.])/(?:work|root|home)/\w")

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
found = 0
for name in subprocess.run(["git", "-C", str(root), "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines():
    path = root / name
    if not path.is_file() or path.suffix not in SOURCE | {".md", ".json", ".yml"} or name.startswith(("models/", "tools/tidy/")):
        continue
    text = path.read_text(errors="replace")
    lines = text.count("\n")
    if path.suffix in SOURCE and lines > LINES_MAX and not name.startswith("tools/demo_model/"):
        print("files: %s has %d lines; split it by meaning (at most %d)" % (name, lines, LINES_MAX))
        found += 1
    elif path.suffix in (".h", ".cpp") and lines > LINES_WARN:
        print("files: note: %s has %d lines" % (name, lines), file=sys.stderr)
    for number, line in enumerate(text.splitlines(), 1):
        if PRIVATE.search(line) and path.suffix != ".json":
            print("files: %s:%d names a private path" % (name, number))
            found += 1
sys.exit(1 if found else 0)
