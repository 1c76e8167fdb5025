#!/usr/bin/env python3
"""clang-tidy over our sources, two at a time, skipping what has not changed since it was last found clean.

A file is known by the hash of its preprocessed dependencies' contents (from its .d line in the build) and of .clang-tidy.
Usage: run_clang_tidy.py BUILD_DIR
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

build = pathlib.Path(sys.argv[1]).resolve()
root = pathlib.Path(__file__).resolve().parents[2]
cache = build / "tidy-cache"
cache.mkdir(exist_ok=True)
config = (root / ".clang-tidy").read_bytes()
ours = [entry for entry in json.loads((build / "compile_commands.json").read_text())
        if pathlib.Path(entry["file"]).is_relative_to(root) and not pathlib.Path(entry["file"]).is_relative_to(build)]
ours = list({entry["file"]: entry for entry in ours}.values())


def own_dependencies(entry):
    """The file and every header of ours that it includes, found by the compiler itself."""
    command = shlex.split(entry["command"]) if "command" in entry else entry["arguments"]
    if os.path.basename(command[0]) == "ccache":
        command = command[1:]
    keep, skip = [], False
    for word in command:
        if skip:
            skip = False
        elif word in ("-o", "-MT", "-MF"):
            skip = True
        elif word not in ("-c", "-MD"):
            keep.append(word)
    out = subprocess.run(keep + ["-MM"], cwd=entry["directory"], capture_output=True, text=True)
    names = out.stdout.replace("\\\n", " ").split()[1:]
    paths = {(pathlib.Path(entry["directory"]) / name).resolve() for name in names}
    return sorted(path for path in paths if path.is_relative_to(root))


def check(entry):
    digest = hashlib.sha256(config)
    for path in own_dependencies(entry):
        digest.update(path.read_bytes())
    stamp = cache / digest.hexdigest()
    if stamp.exists():
        return entry["file"], 0, ""
    run = subprocess.run(["clang-tidy-19", "-p", str(build), "--quiet", "--warnings-as-errors=*", entry["file"]],
                         capture_output=True, text=True)
    if run.returncode == 0:
        stamp.touch()
    return entry["file"], run.returncode, run.stdout


failed = 0
with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
    for done, (file, code, output) in enumerate(pool.map(check, ours), 1):
        if sys.stderr.isatty():
            print("\rclang-tidy %d/%d" % (done, len(ours)), end="", file=sys.stderr)
        if code != 0:
            failed += 1
            print(output)
if sys.stderr.isatty():
    print(file=sys.stderr)
print("clang-tidy: %d files, %d with findings" % (len(ours), failed))
sys.exit(1 if failed else 0)
