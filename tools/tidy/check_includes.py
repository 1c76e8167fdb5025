#!/usr/bin/env python3
"""Includes run one way, libllama stays in src/engine, and heavy headers stay out of our headers.

    base <- kv <- {engine, cluster} <- http <- cli <- main.cpp

Usage: check_includes.py [ROOT]; with --self-test it checks itself.
"""
import pathlib
import re
import sys

MAY_INCLUDE = {
    "base": {"base"},
    "kv": {"base", "kv"},
    "engine": {"base", "kv", "engine"},
    "cluster": {"base", "kv", "cluster"},
    "http": {"base", "kv", "engine", "cluster", "http"},
    "cli": {"base", "kv", "engine", "cluster", "http", "cli"},
}
LIBLLAMA = re.compile(r"^(llama|ggml|gguf)[-\w]*\.h$")
HEAVY = re.compile(r"^(boost/(asio|beast|json)|CLI/|toml\+\+|spdlog/)")
# Internal headers whose subject is the heavy library itself; nothing outside their folder includes them.
HEAVY_BY_NATURE = {"http/json_fields.h", "http/json_text.h", "http/connection_socket.h", "http/workers.h", "engine/schema_converter.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.M)


def faults(name, text):
    """name: path below src/, such as kv/cache.h"""
    folder = name.split("/")[0] if "/" in name else ""
    for target in INCLUDE.findall(text):
        other = target.split("/")[0]
        if folder in MAY_INCLUDE and "/" in target and other in MAY_INCLUDE and other not in MAY_INCLUDE[folder]:
            yield "%s includes %s: %s must not see %s" % (name, target, folder, other)
        if LIBLLAMA.match(target) and folder != "engine":
            yield "%s includes %s: only src/engine knows libllama" % (name, target)
        own = name.endswith(".h") and not name.endswith(("_test.h", "test_client.h"))
        # A header that speaks Asio (awaitable, socket) may name that one part; Beast and JSON trees may not leak.
        light = target in ("boost/asio/awaitable.hpp", "boost/asio/ip/tcp.hpp", "boost/asio/any_io_executor.hpp",
                           "boost/asio/steady_timer.hpp", "boost/asio/thread_pool.hpp", "boost/asio/io_context.hpp",
                           "boost/asio/cancellation_signal.hpp", "boost/asio/use_awaitable.hpp", "boost/json/fwd.hpp")
        if own and HEAVY.match(target) and not light and name not in HEAVY_BY_NATURE:
            yield "%s includes %s: heavy headers stay out of our headers" % (name, target)


def self_test():
    bad = [("kv/a.cpp", '#include "engine/b.h"\n'), ("cluster/a.cpp", '#include "engine/b.h"\n'),
           ("http/a.cpp", "#include <llama.h>\n"), ("http/a.h", "#include <boost/beast/http.hpp>\n"),
           ("engine/a.h", "#include <spdlog/spdlog.h>\n")]
    good = [("http/a.cpp", '#include "engine/b.h"\n#include <boost/beast/http.hpp>\n'), ("engine/a.cpp", "#include <llama.h>\n"),
            ("http/a.h", "#include <boost/asio/awaitable.hpp>\n"), ("main.cpp", '#include "cli/a.h"\n')]
    for name, text in bad:
        assert list(faults(name, text)), "not noticed: " + name + " " + text
    for name, text in good:
        assert not list(faults(name, text)), "wrongly noticed: " + name + " " + text


def main():
    self_test()
    if "--self-test" in sys.argv:
        return 0
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "src"
    found = [fault for path in sorted(source.rglob("*")) if path.suffix in (".h", ".cpp")
             for fault in faults(path.relative_to(source).as_posix(), path.read_text())]
    for fault in found:
        print("include direction: " + fault)
    return 1 if found else 0


sys.exit(main())
